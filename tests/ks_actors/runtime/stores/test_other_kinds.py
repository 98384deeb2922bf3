"""A store of another kind under the name of a former one: its changelog has rows that it cannot read, so the start is refused."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest

from ks_actors import Processor, ProcessorContext, Record, StateError, StreamsError, TopologyError, stores
from ks_actors.dsl import Produced, StreamsBuilder
from ks_actors.records import Window, Windowed
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreSpec, Topology
from tests.ks_actors.runtime.helpers import STRINGS, in_virtual_time

TOPICS = {"in": 1, "out": 1}
CHANGELOG = "app-rows-changelog"
NOW = 1_764_000_000_123
DAY = 86_400_000
SPECS = {
    "key-value": stores.key_value("rows", STRING, LONG),
    "window": stores.window("rows", STRING, LONG, retention_ms=DAY, window_size_ms=60_000),
    "session": stores.session("rows", STRING, LONG, retention_ms=DAY),
    "versioned": stores.versioned_key_value("rows", STRING, LONG, history_retention_ms=DAY),
}
# The keys of these are alike: without the local state only the configs of the changelog tell them apart.
ALIKE = {("versioned", "key-value"), ("key-value", "versioned")}
# The changelog of the former one deletes or compacts records that the later one needs.
DELETING = {(before, after) for before in ("window", "session") for after in ("key-value", "versioned")} | {("key-value", "versioned")}


def put(kind: str, store: Any, key: str, time: int) -> None:
    if kind == "key-value":
        store.put(key, 1)
    elif kind == "session":
        store.put(Windowed(key, Window(time, time + 5)), 1)
    else:
        store.put(key, 1, time)


def putting(kind: str, spec: StoreSpec) -> Topology:
    class Putting(Processor[str, str, str, str]):
        stores = (spec,)

        def init(self, context: ProcessorContext[str, str]) -> None:
            self.context = context
            self.store = context.get_state_store("rows")

        def process(self, record: Record[str, str]) -> None:
            put(kind, self.store, record.key, record.timestamp)
            self.context.forward(record)

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(Putting).to("out", Produced(STRING, STRING))
    return builder.build()


@pytest.mark.parametrize(("before", "after"), [*permutations(SPECS, 2)])
@in_virtual_time
async def test_a_store_of_another_kind_is_refused_before_anything_is_restored(before: str, after: str) -> None:
    """The local state knows the kind; without it, the first key of the changelog that is none of its is named. The former version goes on."""
    async with AppHarness(putting(before, SPECS[before]), topics=TOPICS, processing_guarantee="at_least_once") as harness:
        for number, key in enumerate(["ann", "a key of some length", "bob"]):
            await harness.produce("in", key, "v", NOW + number)
        await harness.caught_up()
        await harness.close()
        later = putting(after, SPECS[after])
        if (before, after) in DELETING:
            with pytest.raises(
                TopologyError, match=f"{CHANGELOG} has .* if another kind of store has had that name before, give this one another name"
            ):
                await harness.restart(later)
            # As if somebody had changed the configs of the topic.
            configs = {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "0"}
            later = putting(after, msgspec.structs.replace(SPECS[after], changelog_configs=configs))
        with pytest.raises(
            StateError, match=rf"^store rows of task 0_0 was a {before} store, and is a {after} store now.*changelog {CHANGELOG}: give it"
        ):
            await harness.restart(later)
        if (before, after) not in ALIKE:
            harness.wipe_state()
            with pytest.raises(StreamsError, match=r"store rows cannot be restored: .* does not fit this store: .*reset the application") as raised:
                await harness.restart(later)
            assert (raised.value.topic, raised.value.partition, raised.value.offset) == (CHANGELOG, 0, 0)
            harness.wipe_state()
        await harness.restart(putting(before, SPECS[before]))


@pytest.mark.parametrize("kind", ["window", "session"])
@in_virtual_time
async def test_a_store_with_times_takes_back_all_that_it_may_have(kind: str) -> None:
    """Times of 0, of the first and the last ms that a clock in nanoseconds may give, and short and long keys."""
    times = [0, 1, 1 << 32, NOW, NOW * 1_000_000]
    async with AppHarness(putting(kind, SPECS[kind]), topics=TOPICS, processing_guarantee="at_least_once") as harness:
        for time in times:
            await harness.produce("in", "", "v", time)
            await harness.produce("in", "a key of some length", "v", time)
        await harness.caught_up()
        await harness.close()
        harness.wipe_state()
        await harness.restart(putting(kind, SPECS[kind]))


@in_virtual_time
async def test_a_window_store_takes_the_rows_of_one_with_duplicates() -> None:
    """It is no other kind: of the values of a window the last one counts."""
    former = stores.window("rows", STRING, LONG, retention_ms=DAY, window_size_ms=60_000, retain_duplicates=True)
    async with AppHarness(putting("window", former), topics=TOPICS, processing_guarantee="at_least_once") as harness:
        for _ in range(3):
            await harness.produce("in", "ann", "v", NOW)
        await harness.caught_up()
        await harness.restart(putting("window", SPECS["window"]))
        assert [row async for row in harness.app.store("rows").all()] == [(("ann", NOW), 1)]
