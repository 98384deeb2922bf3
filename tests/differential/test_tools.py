"""The tools of the comparison: the generators of cases, and the detection of a difference."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.differential.cases import SEED_1, compare, read_cases
from tests.differential.combine import combine, write_cases
from tests.differential.generate import SPECS, make_case


def a_case() -> Any:
    return next(case for case in read_cases(SEED_1, "branch_merge") if case["expected"] and case["params"]["default"])


@pytest.mark.parametrize("name", SPECS)
def test_the_input_of_a_case_is_a_function_of_seed_topology_and_index(name: str) -> None:
    """The generated cases equal those that went through Kafka Streams."""
    for index, case in enumerate(read_cases(SEED_1, name)):
        assert make_case(name, 1, index) == {part: case[part] for part in ("id", "topology", "params", "steps")}


@pytest.mark.parametrize("change", ["key", "value", "timestamp", "topic", "after_step"])
def test_a_difference_in_any_column_is_noticed(change: str) -> None:
    """One record that is expected otherwise fails the case, and the step is told."""
    case = copy.deepcopy(a_case())
    row = case["expected"][0]
    step = row["after_step"]
    row[change] = row[change] + 1 if isinstance(row[change], int) else "out-other" if change == "topic" else "other"
    mismatch = compare(case)
    assert mismatch is not None
    assert mismatch.step == step
    assert case["id"] in str(mismatch)


def test_a_missing_record_another_order_and_another_count_of_dropped_ones_are_noticed() -> None:
    """Nothing that Kafka Streams does is left out of the comparison."""
    case = a_case()
    assert compare(case) is None
    assert compare({**case, "expected": case["expected"][1:]}) is not None
    assert compare({**case, "expected": case["expected"][::-1]}) is not None
    assert compare({**case, "dropped": case["dropped"] + 1}) is not None


def test_an_error_is_a_difference() -> None:
    """It is told with the name of the case."""
    case = a_case()
    mismatch = compare({**case, "params": {}})
    assert mismatch is not None
    assert "KeyError" in str(mismatch)


def test_results_are_joined_with_their_input(tmp_path: Path) -> None:
    """The results of the other kind of store are kept where they differ."""
    case = make_case("stream_count", 1, 0)
    rows = [{"after_step": 0, "key": "k1", "value": "1", "timestamp": 3}]
    result = {"id": case["id"], "expected": rows, "dropped": 1}
    for name, lines in (("input", case), ("expected", result), ("other", {**result, "dropped": 2})):
        (tmp_path / name).write_text(json.dumps(lines) + "\n")
    write_cases(tmp_path / "input", tmp_path / "expected", tmp_path / "other", tmp_path / "out")
    assert read_cases(tmp_path / "out", "stream_count") == [{**case, "expected": rows, "dropped": 1, "dropped_other_store": 2}]


@pytest.mark.parametrize("wrong", [{"id": "another"}, {"error": "step 3: NullPointerException"}])
def test_a_run_that_did_not_happen_is_no_case(wrong: dict[str, str]) -> None:
    """Neither an error of Kafka Streams, nor results that are not of this input."""
    case = make_case("stream_count", 1, 0)
    result = {"id": case["id"], "expected": [], "dropped": 0}
    with pytest.raises(ValueError, match=r"another|NullPointerException"):
        combine(case, {**result, **wrong}, result)
