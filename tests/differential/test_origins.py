"""A row that fails is said to come from its own record, in every graph: not from the one that let it go."""

from __future__ import annotations

import pytest

from tests.differential.cases import SEED_1, Case, read_cases
from tests.differential.generate import graph_of
from tests.differential.origins import fail_at_the_end, failures, in_an_app, marked, wrong
from tests.differential.test_batches import APART
from tests.differential.topologies import REBUILT, reason_out_of_reach
from tests.ks_actors.runtime.helpers import GUARANTEES

CACHES = (0, 10_000_000)
# The output of these is made in a punctuation, or when a window closes: it has no record of its own.
OF_NO_RECORD = {"punctuate_stream", "punctuate_wall"}
# It does not hold anything back, and is not made with the DSL, so the test cannot have it fail.
WITHOUT_DSL = {"papi_router"}
NAMES = [name for name in REBUILT if name not in WITHOUT_DSL]


def one_of_each_graph(name: str) -> list[Case]:
    """Return the first case of each graph of a topology, and the first of those that emit when windows close."""
    found: dict[tuple[str, bool], Case] = {}
    for case in read_cases(SEED_1, name):
        if reason_out_of_reach(name, case["params"]) is None:
            found.setdefault((graph_of(name, case["params"]), of_no_record(case)), marked(case))
    return list(found.values())


def of_no_record(case: Case) -> bool:
    return case["topology"] in OF_NO_RECORD or case["params"].get("emit") == "close"


@pytest.fixture(autouse=True)
def _all_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_at_the_end(monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_fails_names_its_own_record_in_an_app(name: str) -> None:
    """In every graph, under both guarantees, with caches and without: context and dead letter are the last record's that went into the row."""
    for case in one_of_each_graph(name):
        for cache in CACHES:
            for guarantee in GUARANTEES:
                found, letters = in_an_app(case, cache, guarantee)
                assert wrong(case, found) == []
                assert all((failure.context.topic is None) == of_no_record(case) for failure in found), case["id"]
                contexts = [failure.context for failure in found]
                assert [(letter.key, letter.value) for letter in letters] == [(each.source_raw_key, each.source_raw_value) for each in contexts]


@pytest.mark.parametrize("name", NAMES)
def test_a_row_that_fails_names_its_own_record_however_many_are_taken_at_a_time(name: str) -> None:
    """Batches give the same reports as single records; without a cache they are about the same rows, unless subtopologies meet again."""
    for case in one_of_each_graph(name):
        for cache in CACHES:
            alone, together = (failures(case, cache, one_by_one=one_by_one) for one_by_one in (True, False))
            assert wrong(case, alone) == wrong(case, together) == []
            assert cache or name in APART or sorted(map(str, alone)) == sorted(map(str, together)), case["id"]
