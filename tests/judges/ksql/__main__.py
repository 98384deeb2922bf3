"""Judge ks-actors by ksql's compiled plans: `make judge-ksql KSQL_CASES=…`."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tests.judges.ksql.cases import read_cases
from tests.judges.ksql.judge import judge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=os.environ.get("KSQL_CASES"), help="a file of cases, or ksql's folder historical_plans")
    parser.add_argument("--only", default="", help="judge the cases with this text in their name")
    parser.add_argument("--least", type=int, default=0, help="fail if fewer cases pass")
    parser.add_argument("--verbose", action="store_true", help="name each case that is excused or left out")
    options = parser.parse_args()
    if options.cases is None:
        print("SKIPPED: name the cases with KSQL_CASES or --cases; docs/judges.md says where they come from")  # noqa: T201 - a report for people
        return 0
    logging.disable(logging.CRITICAL)
    outcomes: Counter[str] = Counter()
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for case in read_cases(Path(options.cases)):
        if options.only not in case.name:
            continue
        outcome, detail = judge(case)
        outcomes[outcome] += 1
        reasons[outcome][detail] += 1
        if outcome == "failed" or (options.verbose and outcome != "passed"):
            print(f"{outcome}: {case.name}: {detail}")  # noqa: T201 - a report for people
    for outcome in ("left out", "excused"):
        for reason, count in reasons[outcome].most_common():
            print(f"  {outcome} {count}: {reason}")  # noqa: T201 - a report for people
    print(", ".join(f"{outcomes[outcome]} {outcome}" for outcome in ("passed", "failed", "excused", "left out")))  # noqa: T201 - a report for people
    return int(outcomes["failed"] > 0 or outcomes["passed"] < options.least or not outcomes)


sys.exit(main())
