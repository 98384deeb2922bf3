"""Verdicts of `compare` on random pairs of topologies, each judged by a restart and by a run from the beginning."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from ks_actors import App, KsActorsError, Processor, Record, StreamsConfig
from ks_actors.dsl import (
    CalendarWindows,
    Consumed,
    Grouped,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    TableJoined,
    TimeWindows,
    UnlimitedWindows,
)
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch
from ks_actors.serdes import INTEGER, LONG, STRING, json, msgpack
from ks_actors.topology import Effect, StoreType, Topology, compare, stores
from tests.examples_of import examples

STRINGS = Consumed(STRING, STRING)
RETENTION_MS = 10 * 86_400_000


class Sum(msgspec.Struct):
    n: int = 0


class WithDefault(msgspec.Struct):
    n: int = 0
    more: str = "-"


class WithOther(msgspec.Struct):
    other: int
    n: int = 0


class AsFloat(msgspec.Struct):
    n: float = 0.0


@dataclass
class AsText:
    n: str = ""


KEYS: dict[str, Any] = {"STRING": STRING, "json": json(str), "msgpack": msgpack(str)}
VALUES: dict[str, tuple[Any, Any, Any]] = {
    "LONG": (LONG, lambda: 0, lambda _, __, n: n + 1),
    "INTEGER": (INTEGER, lambda: 0, lambda _, __, n: n + 1),
    "json": (json(Sum), Sum, lambda _, __, it: Sum(it.n + 1)),
    "msgpack": (msgpack(Sum), Sum, lambda _, __, it: Sum(it.n + 1)),
    "default": (json(WithDefault), WithDefault, lambda _, __, it: WithDefault(it.n + 1)),
    "other": (json(WithOther), lambda: WithOther(1), lambda _, __, it: WithOther(1, it.n + 1)),
    "float": (json(AsFloat), AsFloat, lambda _, __, it: AsFloat(it.n + 1)),
    "text": (json(AsText), AsText, lambda _, __, it: AsText(it.n + "1")),
}
WINDOWS: dict[str, Any] = {
    "none": None,
    "tumbling": TimeWindows.of_size_with_no_grace(2_000),
    "shorter": TimeWindows.of_size_with_no_grace(1_000),
    "hopping": TimeWindows.of_size_with_no_grace(2_000).advance_by(1_000),
    "hopping more": TimeWindows.of_size_with_no_grace(2_000).advance_by(500),
    "grace": TimeWindows.of_size_and_grace(2_000, 1_000),
    "sliding": SlidingWindows.of_time_difference_with_no_grace(2_000),
    "unlimited": UnlimitedWindows.of(),
    "unlimited later": UnlimitedWindows.of().start_on(86_400_000),
    "days": CalendarWindows.days("UTC"),
    "weeks": CalendarWindows.weeks("UTC"),
    "session": SessionWindows.of_inactivity_gap_with_no_grace(1_000),
    "longer session": SessionWindows.of_inactivity_gap_with_no_grace(2_000),
    "session grace": SessionWindows.of_inactivity_gap_and_grace(1_000, 500),
}
LONG_LIVED = {"none", "unlimited", "unlimited later", "days", "weeks"}
"""Windows that no short retention can keep."""


@dataclass(frozen=True)
class Plan:
    """The parameters of a topology with one store, `rows`."""

    operation: str
    source: str = "in"
    key: str = "STRING"
    value: str = "LONG"
    windows: str = "tumbling"
    retention_ms: int = RETENTION_MS
    store_type: StoreType = "rocksdb"
    logging: bool = True
    reuse: bool = False
    moved: bool = False

    @property
    def store(self) -> str:
        return "rows-store" if self.operation == "distinct" else "rows"

    def build(self) -> Topology:
        builder = StreamsBuilder()
        if self.moved:
            builder.stream("first", STRINGS).group_by_key(Grouped(STRING, STRING)).count(Materialized("first", STRING, LONG))
        getattr(self, f"_{self.operation}")(builder)
        return builder.build(self.config(Path()))

    def config(self, state_dir: Path) -> StreamsConfig:
        return StreamsConfig(application_id="app", state_dir=state_dir, topology_optimization="reuse.ktable.source.topics" if self.reuse else "none")

    def _materialized(self, key: Any, value: Any, **options: Any) -> Materialized[Any, Any]:
        return Materialized("rows", key, value, store_type=self.store_type, logging=self.logging, **options)

    def _table(self, builder: StreamsBuilder) -> None:
        builder.table(self.source, STRINGS, self._materialized(STRING, STRING))

    def _global(self, builder: StreamsBuilder) -> None:
        table = builder.global_table(self.source, STRINGS, Materialized("rows", STRING, STRING, store_type=self.store_type))
        builder.stream("first", STRINGS).join(table, lambda key, _: key, lambda _, value: value)

    def _aggregate(self, builder: StreamsBuilder) -> None:
        serde, initializer, adder = VALUES[self.value]
        grouped = builder.stream("in", STRINGS).group_by_key(Grouped(KEYS[self.key], STRING))
        grouped.aggregate(initializer, adder, self._materialized(KEYS[self.key], serde))

    def _windowed(self, builder: StreamsBuilder) -> None:
        windows = WINDOWS[self.windows]
        grouped: Any = builder.stream("in", STRINGS).group_by_key(Grouped(KEYS[self.key], STRING))
        if windows is not None:
            grouped = grouped.windowed_by(windows)
        retention = {} if self.windows in LONG_LIVED else {"retention_ms": self.retention_ms}
        grouped.count(self._materialized(KEYS[self.key], LONG, **retention))

    def _distinct(self, builder: StreamsBuilder) -> None:
        within_ms = 1_000 if self.windows == "shorter" else 2_000
        builder.stream("in", STRINGS).distinct(within_ms, grace_ms=RETENTION_MS - within_ms, name="rows", key=KEYS[self.key])

    def _by_hand(self, builder: StreamsBuilder) -> None:
        class Keep(Processor[str, str, str, str]):
            def init(self, context: Any) -> None:
                self.store = context.get_state_store("rows")

            def process(self, record: Record[str, str]) -> None:
                self.store.put(record.key, len(record.value))

        value = INTEGER if self.value == "INTEGER" else LONG
        builder.add_state_store(stores.key_value("rows", KEYS[self.key], value, type=self.store_type, logging=self.logging))
        builder.stream("in", STRINGS).process(Keep, "rows")


CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {
    "table": {"source": ("in", "also"), "reuse": (False, True)},
    "global": {"source": ("in", "also"), "store_type": ("rocksdb", "in_memory")},
    "aggregate": {"key": tuple(KEYS), "value": tuple(VALUES)},
    "windowed": {"windows": tuple(WINDOWS), "key": ("STRING", "json"), "retention_ms": (RETENTION_MS, RETENTION_MS - 86_400_000)},
    "distinct": {"windows": ("tumbling", "shorter"), "key": ("STRING", "json")},
    "by_hand": {"key": tuple(KEYS), "value": ("LONG", "INTEGER")},
}
PLACES = {"store_type": ("rocksdb", "in_memory"), "logging": (True, True, False), "moved": (False, True)}


def drawn_pair(random: Random) -> tuple[Plan, Plan]:
    """Draw a topology, and a version of it with one or two differences."""
    operation = random.choice(list(CHOICES))
    choices: dict[str, tuple[Any, ...]] = dict(CHOICES[operation])
    if operation in {"aggregate", "windowed", "by_hand"}:
        choices |= PLACES
    own = {name: options for name, options in choices.items() if name in CHOICES[operation]}
    old = Plan(operation, **{name: random.choice(options) for name, options in choices.items()})
    changed = [random.choice(list(own)), *random.sample(list(choices), random.choice((0, 0, 1)))]
    return old, replace(old, **{name: random.choice(choices[name]) for name in changed})


async def write(log: EmbeddedLog, rows: dict[str, list[tuple[str, str, int]]]) -> None:
    producer = await log.producer(client_id="test")
    for topic, each in rows.items():
        batch = Batch([key.encode() for key, _, __ in each], [value.encode() for _, value, __ in each], [at for _, __, at in each])
        await producer.send([Outgoing(TopicPartition(topic, 0), batch)])
    await producer.close()


DAY_8 = 8 * 86_400_000
"""A time at which a day and a week begin apart, and windows that began at the epoch too."""
FIRST = {
    "in": [("a", "1", DAY_8 + 1_000), ("a", "2", DAY_8 + 2_600), ("b", "3", DAY_8 + 3_000), ("c", "4", DAY_8 + 4_400)],
    "also": [("a", "other", DAY_8 + 1_000), ("d", "5", DAY_8 + 2_000)],
    "first": [("a", "x", DAY_8 + 1)],
}
MORE = {
    "in": [("a", "22", DAY_8 + 4_500), ("b", "3", DAY_8 + 4_900)],
    "also": [("a", "else", DAY_8 + 6_000)],
    "first": [("a", "x", DAY_8 + 2)],
}


async def rows_of(plan: Plan, log: EmbeddedLog, state_dir: Path) -> list[tuple[Any, Any]]:
    """Run the app until it has read all; return the rows of its store."""
    async with App(plan.build(), plan.config(state_dir), log=log) as app:
        await app.wait_until_caught_up()
        store = app.store(plan.store)
        if plan.operation == "windowed" and "session" in plan.windows:
            return sorted([row async for row in store.find_sessions_range(None, None, 0, 2**62)], key=repr)
        if plan.store == "rows-store" or (plan.operation == "windowed" and plan.windows != "none"):
            return sorted([row async for row in store.fetch_all(0, 2**62)], key=repr)
        return sorted([row async for row in store.all()], key=repr)


@asynccontextmanager
async def log_with(rows: dict[str, list[tuple[str, str, int]]]) -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(name, 1) for name in ("in", "also", "first")])
        await write(log, rows)
        yield log


async def seen(old: Plan, new: Plan, path: Path) -> Effect:
    """Replace a running topology, and tell by the rows of its store what became of them."""
    async with log_with(FIRST) as log:
        before = await rows_of(old, log, path / "state")
        await write(log, MORE)
        try:
            after = await rows_of(new, log, path / "state")
        except KsActorsError as error:
            return Effect.MIXED if "cannot read" in str(error) else Effect.REFUSED
    async with log_with({topic: FIRST[topic] + MORE[topic] for topic in FIRST}) as log:
        whole = await rows_of(new, log, path / "whole")
    async with log_with(MORE) as log:
        rest = await rows_of(new, log, path / "rest")
    if after == whole:
        return Effect.KEPT if whole == before or old.source == new.source else Effect.REFILLED
    return Effect.LOST if after == rest else Effect.MIXED


def joining(key: Any, value: Any, initial: Any) -> Topology:
    """Join counts of a topic, of this type, with a table by a foreign key."""
    builder = StreamsBuilder()
    right = builder.table("also", STRINGS)
    left = builder.stream("in", STRINGS).group_by_key(Grouped(key, STRING))
    left.aggregate(lambda: initial, lambda _, __, it: it, Materialized("left", key, value)).join(
        right,
        lambda _, right, /: repr(right),
        foreign_key=lambda _: "a",
        joined=TableJoined("by"),
        materialized=Materialized("rows", key, STRING),
    )
    return builder.build()


@pytest.mark.parametrize(
    ("new", "effect"),
    [
        (joining(STRING, json(Sum), Sum()), Effect.KEPT),
        (joining(STRING, json(WithOther), WithOther(1)), Effect.MIXED),
        (joining(json(str), json(Sum), Sum()), Effect.MIXED),
    ],
)
async def test_subscriptions_of_another_left_type_are_mixed(new: Topology, effect: Effect, tmp_path: Path) -> None:
    """Subscriptions of a join by foreign keys are kept when the left serdes read the old rows: then a right row still changes results."""
    old = joining(STRING, json(Sum), Sum())
    verdicts = {each.name: each.effect for each in compare(old, new)}
    assert verdicts["by-subscription-store"] is effect
    assert verdicts["by-subscription-registration-topic"] is (effect if new.stores["left"].key is not STRING else Effect.KEPT)
    config = StreamsConfig(application_id="app", state_dir=tmp_path)
    async with log_with({"in": [("k", "1", 1)], "also": [("a", "first", 1)]}) as log:
        async with App(old, config, log=log) as app:
            await app.wait_until_caught_up()
            assert await app.store("rows").get("k") == "'first'"
        await write(log, {"also": [("a", "second", 2)]})
        if effect is Effect.MIXED:
            with pytest.raises(KsActorsError, match=r"cannot read|DecodeError"):
                async with App(new, config, log=log) as app:
                    await app.wait_until_caught_up()
            return
        async with App(new, config, log=log) as app:
            await app.wait_until_caught_up()
            assert await app.store("rows").get("k") == "'second'"


TRUE: dict[Effect, set[Effect]] = {Effect.RESTORED: {Effect.KEPT}, Effect.REFUSED: {Effect.REFUSED, Effect.MIXED}}
"""The observations that confirm a verdict, where they are not the verdict itself: an app may start, and be unable to read what is there."""


async def test_a_verdict_on_random_versions_is_what_a_restart_does(tmp_path: Path) -> None:
    """The verdict on a store is what its rows are after a restart, compared with those of a new app that reads all, or only what came since."""
    for seed in range(examples(10)):
        old, new = drawn_pair(Random(seed))
        (change,) = [each for each in compare(old.build(), new.build()) if each.kind == "store" and each.name == new.store]
        found = await seen(old, new, tmp_path / "app")
        assert found in TRUE.get(change.effect, {change.effect}), f"seed {seed}: {old} -> {new}: {change}"
        shutil.rmtree(tmp_path / "app", ignore_errors=True)


def test_default_serdes_are_compared_too() -> None:
    """A store whose serdes are the app's is mixed when the default of its values is another one, and kept as long as none is known."""
    builder = StreamsBuilder()
    builder.table("in", materialized=Materialized("rows"))
    topology = builder.build()
    effects = [
        [each.effect for each in compare(topology, topology, **serdes) if each.kind == "store"]
        for serdes in (
            {},
            {"old_serdes": (STRING, LONG), "new_serdes": (STRING, LONG)},
            {"old_serdes": (STRING, LONG), "new_serdes": (STRING, INTEGER)},
            {"old_serdes": (STRING, LONG), "new_serdes": (json(str), LONG)},
        )
    ]
    assert effects == [[Effect.KEPT], [Effect.KEPT], [Effect.MIXED], [Effect.MIXED]]
