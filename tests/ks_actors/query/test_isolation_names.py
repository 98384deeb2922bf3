"""The spellings of a query's isolation."""

from __future__ import annotations

from typing import Any

import pytest

from ks_actors.log import IsolationLevel
from ks_actors.query import KeyQuery, StateQueryRequest
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import counting, feed, in_app

OPTIONS: dict[str, Any] = {
    "topics": {"in": 1, "out": 1},
    "processing_guarantee": "exactly_once_v2",
    "commit_interval_ms": 3_600_000,
    "transaction_timeout_ms": 3_600_000,
}


@pytest.mark.parametrize(("isolation", "count"), [(level, 2 if level is IsolationLevel.READ_UNCOMMITTED else 1) for level in IsolationLevel])
@in_app(counting(), **OPTIONS)
async def test_the_name_of_a_level_means_that_level(harness: AppHarness, isolation: Any, count: int) -> None:
    """As in the setting; the weaker level instead would show what a rollback takes back."""
    await feed(harness, "in", "a", "1")
    await harness.produce("in", "a", "2")
    await harness.kit.clock.advance(1)
    for given in (isolation, isolation.value):
        assert await harness.app.store("counts", isolation=given).get("a") == count
        found = await harness.app.query(StateQueryRequest(store="counts", query=KeyQuery("a"), isolation=given))
        assert [result.value for result in found.partition_results.values()] == [count]


@in_app(counting(), **OPTIONS)
async def test_an_unknown_level_is_an_error(harness: AppHarness) -> None:
    """It names the levels that there are."""
    unknown: Any = "nonsense"
    with pytest.raises(ValueError, match=r"isolation is 'nonsense': give .*READ_COMMITTED"):
        harness.app.store("counts", isolation=unknown)
    with pytest.raises(ValueError, match="nonsense"):
        await harness.app.query(StateQueryRequest(store="counts", query=KeyQuery("a"), isolation=unknown))
