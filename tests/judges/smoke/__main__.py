"""Judge an app of ours by Kafka's SmokeTestDriver: `make judge-smoke`."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from tests.judges.smoke.jars import missing_tests
from tests.judges.smoke.options import parse
from tests.judges.smoke.run import judge, midnight_is_near
from tests.kafka.broker import missing_tools

_OK, _FAILED, _TROUBLE = 0, 1, 2


def main() -> int:
    options = parse(sys.argv[1:])
    trouble = missing_tools() or missing_tests()
    if trouble is None and midnight_is_near(options.seconds + 150):
        trouble = "midnight UTC is near, when windows of a day end in the middle of the run: start after 00:01 UTC"
    if trouble is not None:
        print(f"no run: {trouble}", file=sys.stderr)  # noqa: T201 - for the user of the command
        return _TROUBLE
    work = Path(options.work_dir or tempfile.mkdtemp(prefix="smoke-")).resolve()
    verdict = asyncio.run(judge(options, work))
    if verdict.ok and not options.work_dir:
        shutil.rmtree(work)
    told = [line[:200] for line in verdict.said.splitlines() if not line.startswith(("\t", "{", "["))]
    if verdict.doubled:
        print(f"the driver wrote {verdict.doubled} records twice, as the broker went away: its verdict counts them as faults")  # noqa: T201 - for the user of the command
    print("\n".join(told[-40:]))  # noqa: T201 - for the user of the command
    print(f"exit codes {verdict.exits}, {verdict.unexpected} unexpected ends, {verdict.seconds:.0f} s")  # noqa: T201 - for the user of the command
    print("OK" if verdict.ok else f"FAILED: seed {options.seed}")  # noqa: T201 - for the user of the command
    return _OK if verdict.ok else _FAILED


sys.exit(main())
