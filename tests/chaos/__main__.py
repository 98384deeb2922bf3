"""The command line of the chaos tester: see README.md."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.chaos.clients import Trouble
from tests.chaos.options import Options, parse
from tests.chaos.run import Failed, Run
from tests.kafka.broker import missing_tools

_OK, _VIOLATED, _TROUBLE = 0, 1, 2


async def tell(options: Options) -> tuple[int, dict[str, Any]]:
    """Run; return the exit code and the report."""
    run = Run(options)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        report = await run.main()
        code = _OK if report["ok"] else _VIOLATED
    except Failed as failed:
        report, code = run.report() | {"ok": False, "failure": str(failed)}, _VIOLATED
        for member in run.stage.members:
            lines = "\n    ".join(member.tail())
            print(f"--- member {member.number} ({member.status.value}), the end of its log:\n    {lines}", file=sys.stderr)  # noqa: T201 - a report for people
    except Trouble as trouble:
        report, code = run.report() | {"ok": False, "trouble": str(trouble)}, _TROUBLE
    finally:
        await run.clear()
    for violation in report.get("violations", ()):
        run.say(f"VIOLATION {violation}")
    for word in ("failure", "trouble"):
        if word in report:
            run.say(f"{word.upper()} {report[word]}")
    return code, report


def main(arguments: Sequence[str]) -> int:
    """Run; the report is the last line of stdout. 0: no violation, 1: a violation or no progress, 2: trouble that is not the app's."""
    options = parse(arguments)
    # Its clients say at length that the broker is away, which the tester knows.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    missing = missing_tools()
    if missing is not None:
        print(f"there can be no Kafka: {missing}", file=sys.stderr)  # noqa: T201 - a report for people
        return _TROUBLE
    code, report = asyncio.run(tell(options))
    if options.report:
        Path(options.report).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))  # noqa: T201 - a report for people
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
