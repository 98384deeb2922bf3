"""The command line of a driver's judge: why there is no run, and how a run has ended."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from tests.judges.drivers.jars import missing_tests
from tests.judges.drivers.options import Options
from tests.judges.drivers.run import Outcome
from tests.kafka.broker import missing_tools

_OK, _FAILED, _TROUBLE = 0, 1, 2
_LINES = 40


class Verdict(Protocol):
    """A judge's word on a run."""

    @property
    def ok(self) -> bool: ...

    @property
    def outcome(self) -> Outcome: ...

    # The lines that the user is told.
    def words(self) -> Sequence[str]: ...


def command(options: Options, judge: Callable[[Path], Awaitable[Verdict]]) -> int:
    """Do one run, unless something is missing, and tell how it ended; return the exit code. The files of a run that failed stay."""
    trouble = missing_tools() or missing_tests()
    if trouble is not None:
        print(f"no run: {trouble}", file=sys.stderr)  # noqa: T201 - for the user of the command
        return _TROUBLE
    work = Path(options.work_dir or tempfile.mkdtemp(prefix="judge-")).resolve()

    async def run() -> Verdict:
        return await judge(work)

    verdict = asyncio.run(run())
    outcome = verdict.outcome
    if verdict.ok and not options.work_dir:
        shutil.rmtree(work)
    done = ", ".join(f"{count} of {kind}" for kind, count in sorted(outcome.done.items()))
    print("\n".join(line[:200] for line in verdict.words()[-_LINES:]))  # noqa: T201 - for the user of the command
    print(f"{done or 'no faults'}; exit codes {outcome.exits}, {outcome.unexpected} unexpected ends, {outcome.seconds:.0f} s")  # noqa: T201 - for the user of the command
    print("OK" if verdict.ok else f"FAILED: seed {options.seed}, work in {work}")  # noqa: T201 - for the user of the command
    return _OK if verdict.ok else _FAILED
