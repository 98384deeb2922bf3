"""Run one case in this process, and print its figures as JSON.

Usage: python -m benchmarks._runtime_child CASE ARGUMENTS-AS-JSON.
"""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import _runtime_cases, _runtime_flights
from ks_actors.app._event_loop import fastest_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

CASES: dict[str, Callable[..., Coroutine[Any, Any, dict[str, float]]]] = {
    "map": _runtime_cases.map_records,
    "count": _runtime_cases.count_records,
    "pause": _runtime_cases.commit_pauses,
    "async": _runtime_cases.async_calls,
    "flights": _runtime_flights.flights,
}


def main() -> None:
    """Run the case named on the command line."""
    name, arguments = sys.argv[1:]
    # Stall warnings from a busy machine are no result of these benchmarks.
    logging.getLogger("actors").setLevel(logging.ERROR)
    with asyncio.Runner(loop_factory=fastest_loop()) as runner:
        figures = runner.run(CASES[name](**json.loads(arguments)))
    print(json.dumps({**figures, "rss_mb": memory()}))


def memory() -> float:
    """Return the peak memory of this process, in MB.

    Linux's getrusage may report the parent's memory for a child.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main()
