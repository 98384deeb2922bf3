"""Every case of seed 1, compared with what the real Kafka Streams made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .cases import SEED_1, compare, read_cases
from .differences import DROPPED_DEPENDS_ON_STORE
from .topologies import REBUILT, reason_out_of_reach

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", REBUILT)
def test_a_topology_gives_what_kafka_streams_gives(name: str, tmp_path: Path) -> None:
    """Record by record: keys, values, timestamps, order per topic, the step that causes each, and how many records are dropped."""
    cases = [case for case in read_cases(SEED_1, name) if reason_out_of_reach(name, case["params"]) is None]
    assert cases
    for case in cases:
        mismatch = compare(case, tmp_path / case["id"], dropped=name not in DROPPED_DEPENDS_ON_STORE)
        assert mismatch is None, str(mismatch)


@pytest.mark.parametrize("name", ["tumbling", "hopping"])
def test_final_results_need_no_long_retention(name: str, tmp_path: Path) -> None:
    """A difference on purpose: without a retention that is set we give what Kafka Streams gives with a long one, and loses with its default."""
    cases = [case for case in read_cases(SEED_1, name) if case["params"]["emit"] == "close"]
    assert cases
    for case in cases:
        params = {parameter: value for parameter, value in case["params"].items() if parameter != "retention"}
        mismatch = compare({**case, "params": params}, tmp_path / case["id"])
        assert mismatch is None, str(mismatch)
