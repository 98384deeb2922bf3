"""Every case of seed 1, compared with the output of the real Kafka Streams."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.differential.cases import CACHED, CACHED_WITH_HEADERS, FOUND, SEED_1, WITH_HEADERS, Case, compare, forgets_a_delete, read_cases
from tests.differential.topologies import REBUILT, reason_out_of_reach

OUTLIVED = {
    *(f"cogroup_windowed-1-00{number}" for number in ("01", "14", "16")),
    *(f"session_regroup-1-00{number}" for number in ("00", "03", "10", "17", "18", "19")),
    *(f"suppress_session-1-00{number}" for number in ("04", "07", "13")),
}
"""Cases in which a window that its store has given up lives on in the cache of Kafka Streams, or one comes late for its store from there."""

FORGOTTEN = {"versioned_tt_inner-1-0074", "versioned_tt_outer-1-0059"}
"""Cases in which Kafka Streams forgets a delete, as it had the timestamp of the value that it deletes: then something older is the latest again."""


@pytest.mark.parametrize("name", REBUILT)
def test_a_topology_gives_the_results_of_kafka_streams(name: str) -> None:
    """Record by record: keys, values, timestamps, order per topic, the step that causes each, and how many records are dropped."""
    cases = [case for case in read_cases(SEED_1, name) if reason_out_of_reach(name, case["params"]) is None]
    assert cases
    for case in cases:
        mismatch = compare(case)
        assert (mismatch is None) is (case["id"] not in FORGOTTEN), str(mismatch)
        assert mismatch is None or forgets_a_delete(case)


@pytest.mark.parametrize("name", [path.name.removesuffix(".jsonl.xz") for path in sorted(CACHED.iterdir())])
def test_a_cache_gives_the_results_of_that_of_kafka_streams(name: str) -> None:
    """Both drivers flush after each record: the last of several updates of a row comes, with the old value sent before."""
    cases = [case for case in read_cases(CACHED, name) if reason_out_of_reach(name, case["params"]) is None and case["id"] not in OUTLIVED]
    assert cases
    for case in cases:
        mismatch = compare(case)
        assert mismatch is None, str(mismatch)


HEADED = [*sorted(WITH_HEADERS.iterdir()), *sorted(CACHED_WITH_HEADERS.iterdir())]


@pytest.mark.parametrize("path", HEADED, ids=lambda path: f"{path.parent.name}-{path.name.removesuffix('.jsonl.xz')}")
def test_stores_with_headers_give_the_results_of_those_of_kafka_streams(path: Path) -> None:
    """With `dsl_store_format=HEADERS`: the headers of each result, too, with and without a cache."""
    for case in read_cases(path.parent, path.name.removesuffix(".jsonl.xz")):
        mismatch = compare(case)
        assert mismatch is None, str(mismatch)


JOINED_LATE = {"session-1-0058"}
"""Cases in which a late record joins two sessions, of which one has come out so long ago that only a long retention still has it."""


@pytest.mark.parametrize("name", ["tumbling", "hopping", "session"])
def test_final_results_need_no_long_retention(name: str) -> None:
    """A difference on purpose: without a retention we give the results of Kafka Streams with a long one, which it loses with its default."""
    cases = [case for case in read_cases(SEED_1, name) if case["params"]["emit"] == "close" and case["id"] not in JOINED_LATE]
    assert cases
    for case in cases:
        params = {parameter: value for parameter, value in case["params"].items() if parameter != "retention"}
        mismatch = compare({**case, "params": params})
        assert mismatch is None, str(mismatch)


@pytest.mark.parametrize("case", [json.loads(line) for line in FOUND.read_text().splitlines()], ids=lambda case: case["id"])
def test_former_bugs_stay_fixed(case: Case) -> None:
    """The least cases of differences that other seeds have shown."""
    mismatch = compare(case)
    assert mismatch is None, str(mismatch)
