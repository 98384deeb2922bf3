"""The places of commits."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ks_actors import serdes
from ks_actors.config._exception_handlers import log_and_continue
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.ks_actors.runtime.helpers import feed_all
from tests.ks_actors.task.changing_topologies import TOPOLOGIES, build
from tests.ks_actors.task.commit_driving import Case, differences, outcome

ALONE = ("reduce", "aggregate", "chain", "tumbling", "hopping", "sliding", "unlimited", "reduced windows", "sessions", "closed windows", "table")
"""Topologies that read one topic and have no other between their nodes."""


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_results_do_not_depend_on_the_places_of_commits(name: str) -> None:
    """Output, stores and changelogs are as with a commit behind each record, though functions change all that they get."""
    found = 0
    for seed in range(10_000):
        case = Case.random(Random(seed))
        if case.topology == name:
            assert differences(case) == []
            found += 1
            if found == 4:
                return


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("name", ALONE)
def test_an_app_that_commits_seldom_is_as_one_that_commits_behind_each_record(name: str, guarantee: str) -> None:
    """The harness, which takes records in batches, writes the same as the driver, which takes them one by one."""
    case = next(case for seed in range(10_000) if (case := Case.random(Random(seed))).topology == name)
    rows = [row for topic, part, _ in case.pieces if topic == "in" for row in part]
    case = case._replace(hoards=False, cache_bytes=0, pieces=[("in", rows, False)])
    records = [TestRecord(key, {"n": number}, time) for key, number, time in rows]

    async def test(harness: AppHarness) -> list[Any]:
        await feed_all(harness, "in", records)
        return [(found.key, found.value, found.timestamp) for found in await harness.read("out", serdes.BYTES, serdes.BYTES)]

    found = run_app(
        test,
        build(name, case.value, case.store, hoards=False, caching=False),
        topics={"in": 1, "out": 1},
        processing_guarantee=guarantee,
        processing_exception_handler=log_and_continue,
    )
    assert found == [row[:3] for row in outcome(case, each=True).written]
