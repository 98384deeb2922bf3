"""Compare cases with the output of our own driver.

    python -m tests.differential.compare DIRECTORY

reads DIRECTORY/<topology>.jsonl.xz, prints a line per topology and the first mismatches of each, and fails if there are any.
"""

from __future__ import annotations

import sys
from pathlib import Path

from .cases import compare, read_cases
from .topologies import reason_out_of_reach

SHOWN = 3


def main() -> None:
    failed = 0
    for path in sorted(Path(sys.argv[1]).glob("*.jsonl.xz")):
        name = path.name.removesuffix(".jsonl.xz")
        cases = read_cases(path.parent, name)
        reachable = [case for case in cases if reason_out_of_reach(name, case["params"]) is None]
        results = [compare(case) for case in reachable]
        wrong = [result for result in results if result is not None]
        failed += len(wrong)
        sys.stdout.write(f"{name}: {len(reachable) - len(wrong)} of {len(reachable)} as Kafka Streams, {len(cases) - len(reachable)} left out\n")
        sys.stdout.writelines(f"{mismatch}\n" for mismatch in wrong[:SHOWN])
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
