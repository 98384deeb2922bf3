"""Compare cases with the output of our own driver.

    python -m tests.differential.compare DIRECTORY

reads DIRECTORY/<topology>.jsonl.xz, prints a line per topology and the first mismatches of each, and fails if there are any. Cases in which Kafka
Streams forgets a delete are told of, and are no failures: a difference on purpose.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.differential.cases import compare, forgets_a_delete, read_cases
from tests.differential.topologies import reason_out_of_reach

SHOWN = 3


def main() -> None:
    failed = 0
    for path in sorted(Path(sys.argv[1]).glob("*.jsonl.xz")):
        name = path.name.removesuffix(".jsonl.xz")
        cases = read_cases(path.parent, name)
        reachable = [case for case in cases if reason_out_of_reach(name, case["params"]) is None]
        results = [(case, mismatch) for case in reachable if (mismatch := compare(case)) is not None]
        wrong = [mismatch for case, mismatch in results if not forgets_a_delete(case)]
        failed += len(wrong)
        same, purpose = len(reachable) - len(results), len(results) - len(wrong)
        forgotten = f", {purpose} with a delete that it forgets" if purpose else ""
        sys.stdout.write(f"{name}: {same} of {len(reachable)} as Kafka Streams{forgotten}, {len(cases) - len(reachable)} left out\n")
        sys.stdout.writelines(f"{mismatch}\n" for mismatch in wrong[:SHOWN])
        sys.stdout.flush()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
