"""Run sessions until the time is over, in a process of its own, since a sanitizer ends it. A file names the current session, for its successor."""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from time import monotonic

import tests.fuzz.preload  # noqa: F401 - before anything that loads the kernel
from tests.fuzz.sections import SECTIONS, play

MOST_SHOWN = 10
WIDTH = 60


def main(seconds: float, seed: int, sections: list[str], at: int) -> int:
    """Print a traceback for each session that failed; the last line is how many there were."""
    done: Counter[str] = Counter()
    failed: list[str] = []
    end, number = monotonic() + seconds, seed
    while monotonic() < end and len(failed) < MOST_SHOWN:
        for section in sections:
            name = f"{section}:{number}"
            os.pwrite(at, name.ljust(WIDTH).encode(), 0)
            try:
                play(section, number)
            except Exception:  # noqa: BLE001 - whatever it is, it is told with its seed
                failed.append(name)
                print(f"FAILED {name}\n{traceback.format_exc(limit=-6)}", flush=True)  # noqa: T201 - a report for people
            done[section] += 1
        number += 1
    print(f"seed {seed}: {done.total()} sessions ({', '.join(f'{count} {name}' for name, count in done.items())}), {len(failed)} failed")  # noqa: T201 - a report for people
    return 1 if failed else 0


if __name__ == "__main__":
    chosen = sys.argv[3].split(",") if sys.argv[3] else list(SECTIONS)
    with open(sys.argv[4], "wb") as where:  # noqa: PTH123 - written to by its number
        sys.exit(main(float(sys.argv[1]), int(sys.argv[2]), chosen, where.fileno()))
