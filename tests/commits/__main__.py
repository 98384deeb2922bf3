"""Look for a case whose results depend on where commits fall: `python -m tests.commits SEED NUMBER`."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from random import Random

from .driving import Case, differences


def main() -> int:
    """Try so many seeds; print what differs."""
    first, number = (int(argument) for argument in (*sys.argv[1:], "0", "5000")[:2])
    logging.disable(logging.CRITICAL)  # functions raise, and the handler goes on
    tried: Counter[str] = Counter()
    found = 0
    for seed in range(first, first + number):
        case = Case.random(Random(seed))
        tried[case.topology] += 1
        if wrong := differences(case):
            found += 1
            sys.stdout.write(f"seed {seed}: {wrong[0]}\n")
    sys.stdout.write(f"{number} seeds, {found} with differences; cases by topology: {dict(tried)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
