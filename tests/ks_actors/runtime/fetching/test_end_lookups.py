"""Lookups of end offsets for idle tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, cast

from ks_actors.log import TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime.fetching._end_lookups import EndLookups
from tests.ks_actors.log.helpers import new_topic

if TYPE_CHECKING:
    from actors import Context


class NothingUpstream:
    def levels(self, topics: Collection[str]) -> list[frozenset[str]]:
        return []

    async def passed(self, levels: Iterable[frozenset[str]]) -> None:
        raise AssertionError


async def test_a_partition_that_is_wanted_before_it_is_assigned_is_looked_up_then() -> None:
    """A task may ask as soon as it begins; without an answer its windows would never close by the wall clock."""
    async with EmbeddedLog() as log:
        (partition,) = await new_topic(log)
        lookups = EndLookups(log, NothingUpstream())
        other = TopicPartition("other", 0)
        lookups.ask((partition,), cast("Context[Any]", None))
        assert lookups.begin(()) is None
        assert lookups.begin({other}) is None
        ends: Any = lookups.begin({partition})
        assert await ends == {partition: 0}
        lookups.end(failed=False)
        assert lookups.begin({partition}) is None
