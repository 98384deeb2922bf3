"""Join generated input with the output of Kafka Streams: one file of cases per topology.

    python -m tests.differential.combine INPUT EXPECTED OTHER OUTDIR
    python -m tests.differential.combine --describe DESCRIBED FILE

OTHER is the same run with the other kind of store. Where it gave something else, the case has that as well, under `expected_other_store`.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

HEAD = """Topology.describe() of each topology of the oracle, once per combination of the parameters that change its graph.
Below each name: its stores, true = persistent where the store is not a parameter; and its nodes, in the order in which tasks initialize them.
The order of names behind "-->" is not the order of calls; children are called in the order in which the operators were.

"""


def combine(case: dict[str, Any], expected: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the case with its results."""
    if not case["id"] == expected["id"] == other["id"]:
        raise ValueError(f"results out of step: {case['id']}, {expected['id']}, {other['id']}")
    for result in (expected, other):
        if "error" in result:
            raise ValueError(f"{case['id']}: {result['error']}")
    whole = {**case, "expected": expected["expected"], "dropped": expected["dropped"]}
    for name in ("expected", "dropped"):
        if other[name] != expected[name]:
            whole[f"{name}_other_store"] = other[name]
    return whole


def write_cases(inputs: Path, expected: Path, other: Path, out: Path) -> None:
    topologies: dict[str, list[str]] = {}
    with inputs.open() as cases, expected.open() as results, other.open() as others:
        for lines in zip(cases, results, others, strict=True):
            case = combine(*map(json.loads, lines))
            topologies.setdefault(case["topology"], []).append(json.dumps(case, separators=(",", ":")) + "\n")
    out.mkdir(parents=True, exist_ok=True)
    for topology, cases_of_one in topologies.items():
        (out / f"{topology}.jsonl.xz").write_bytes(lzma.compress("".join(cases_of_one).encode(), preset=9 | lzma.PRESET_EXTREME))


def write_descriptions(described: Path, out: Path) -> None:
    parts = [HEAD]
    for line in described.read_text().splitlines():
        graph = json.loads(line)
        if "error" in graph:
            raise ValueError(f"{graph['id']}: {graph['error']}")
        told = f"stores: {json.dumps(graph['stores'], sort_keys=True)}\norder: {json.dumps(graph['order'])}\n"
        parts.append(f"===== {graph['id']}\n{told}{graph['describe']}\n")
    out.write_text("".join(parts))


def main() -> None:
    if sys.argv[1] == "--describe":
        write_descriptions(*map(Path, sys.argv[2:]))
    else:
        write_cases(*map(Path, sys.argv[1:]))


if __name__ == "__main__":
    main()
