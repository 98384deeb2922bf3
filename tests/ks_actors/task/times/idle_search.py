"""Look for a story in which a window has not exactly one final result: `python -m tests.ks_actors.task.times.idle_search SEED NUMBER`."""

from __future__ import annotations

import logging
import sys
from collections import Counter

from tests.ks_actors.task.times.idle_stories import Story, wrong_in


def main() -> int:
    """Try so many seeds; print what is wrong."""
    first, number = (int(one) for one in (*sys.argv[1:], "0", "1000")[:2])
    logging.disable(logging.CRITICAL)  # instances crash
    tried: Counter[str] = Counter()
    found = 0
    for seed in range(first, first + number):
        story = Story.of(seed)
        tried[story.kind] += 1
        try:
            wrong = wrong_in(story)
        except Exception as error:  # noqa: BLE001 - whatever a story ends by is to be seen
            wrong = [repr(error)]
        if wrong:
            found += 1
            sys.stdout.write(f"seed {seed}, {story}: {wrong[0]}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{number} seeds from {first} on, {found} with differences; {dict(tried)}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
