"""Search for a case with results that depend on the places of commits, or on evictions.

`python -m tests.ks_actors.task.commit_search moments|edges SEED NUMBER`.
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

from tests.ks_actors.task import commit_driving as driving
from tests.ks_actors.task import window_edges as edges

TRIES: dict[str, tuple[Callable[[Random], Any], Callable[[Any], list[str]]]] = {
    "moments": (driving.Case.random, driving.differences),
    "edges": (edges.Case.random, edges.differences),
}


def main() -> int:
    """Try so many seeds; print the differences."""
    what, first, number = (*sys.argv[1:], "moments", "0", "5000")[:3] if len(sys.argv) == 1 else (*sys.argv[1:], "0", "5000")[:3]
    make, compare = TRIES[what]
    logging.disable(logging.CRITICAL)  # functions raise, and the handler goes on
    tried: Counter[str] = Counter()
    found = 0
    for seed in range(int(first), int(first) + int(number)):
        case = make(Random(seed))
        tried[case[0]] += 1
        if wrong := compare(case):
            found += 1
            sys.stdout.write(f"seed {seed}: {wrong[0]}\n")
    sys.stdout.write(f"{what}: {number} seeds, {found} with differences; cases: {dict(tried)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
