"""Left tables of joins by a foreign key with values of many types: sets, optional fields, defaults, through restarts and upgrades of the type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pytest

from ks_actors.dsl import Materialized, Produced, StreamsBuilder, TableJoined
from ks_actors.serdes import STRING, Serde, json, msgpack
from ks_actors.testing import AppHarness, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import STRINGS

pytestmark = pytest.mark.unmeasured

Shape = Literal["stored", "filtered", "stored twice", "mapped", "versioned"]


class Struct(msgspec.Struct):
    to: str
    tags: set[int]
    rate: float
    note: str | None = None


class LaterStruct(msgspec.Struct):
    to: str
    tags: set[int]
    rate: float
    note: str | None = None
    size: int = 0


class Frozen(msgspec.Struct, frozen=True):
    to: str
    tags: frozenset[int]
    rate: float
    note: str | None = None


class LaterFrozen(msgspec.Struct, frozen=True):
    to: str
    tags: frozenset[int]
    rate: float
    note: str | None = None
    size: int = 0


@dataclass
class Plain:
    to: str
    tags: set[int]
    rate: float
    note: str | None = None


@dataclass
class LaterPlain:
    to: str
    tags: set[int]
    rate: float
    note: str | None = None
    size: int = 0


class Named(NamedTuple):
    to: str
    tags: frozenset[int]
    rate: float
    note: str | None = None


class LaterNamed(NamedTuple):
    to: str
    tags: frozenset[int]
    rate: float
    note: str | None = None


class Typed(TypedDict):
    to: str
    tags: set[int]
    rate: float
    note: str | None


def untyped(to: str, tags: set[int], rate: float, note: str | None = None) -> dict[str, Any]:
    return {"to": to, "tags": tags, "rate": rate, "note": note}


TYPES: list[tuple[Any, Any]] = [
    (Struct, LaterStruct),
    (Frozen, LaterFrozen),
    (Plain, LaterPlain),
    (Named, LaterNamed),
    (Typed, Typed),
    (untyped, untyped),
]


def field(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) else getattr(value, name)


class Case(NamedTuple):
    """A left type of two versions, its form, and the table that has it."""

    types: tuple[Any, Any]
    form: Callable[[Any], Serde[Any]]
    shape: Shape
    store: Literal["in_memory", "rocksdb"]
    cache: int
    seed: int

    def topology(self, version: int) -> Topology:
        """Join rows that are made from text; the order in which a set's items come differs each time, as between processes."""
        type_ = self.types[version]
        serde = self.form(Any if type_ is untyped else type_)
        random = Random(self.seed)

        def make(text: str) -> Any:
            to, numbers, rate = text.split("|")
            tags = [int(number) for number in numbers.split(",")]
            random.shuffle(tags)
            # A whole number in the place of a float, as Python people give it. Not with a cache, which sends it as it is read again.
            number = int(float(rate)) if random.random() < 0.5 and type_ is not untyped and not self.cache else float(rate)
            return type_(
                to=to,
                tags=(frozenset if type_ in {Frozen, LaterFrozen, Named, LaterNamed} else set)(tags),
                rate=number,
                note=None if min(tags) % 128 else "n",
            )

        def again(value: Any) -> Any:
            return make("|".join((field(value, "to"), ",".join(map(str, field(value, "tags"))), str(field(value, "rate")))))

        def both(left: Any, right: str) -> str:
            return f"{field(left, 'to')} {sorted(field(left, 'tags'))} {float(field(left, 'rate'))} {right}"

        builder = StreamsBuilder()
        history = 60_000 if self.shape == "versioned" else None
        rows: Materialized[str, Any] = Materialized("l", STRING, serde, store_type=self.store, history_retention_ms=history)
        if self.shape == "mapped":
            left = builder.table("left", STRINGS, Materialized("texts", STRING, STRING, store_type=self.store)).map_values(make)
        else:
            left = builder.stream("left", STRINGS).map_values(make).to_table(rows)
        if self.shape == "filtered":
            left = left.filter(lambda _, value: "!" not in field(value, "to"))
        if self.shape == "stored twice":
            left = left.map_values(again, Materialized("m", STRING, serde, store_type=self.store))
        right = builder.table("right", STRINGS, Materialized("r", STRING, STRING, store_type=self.store))
        joined = left.join(right, both, Materialized("j", STRING, STRING), foreign_key=lambda value: field(value, "to"), joined=TableJoined("j"))
        joined.to_stream().to("out", Produced(STRING, STRING))
        return builder.build()


def case_of(seed: int) -> Case:
    random = Random(seed)
    shape: Shape = random.choice(["stored", "filtered", "stored twice", "mapped", "versioned"])
    return Case(
        random.choice(TYPES), random.choice([json, msgpack]), shape, random.choice(["in_memory", "rocksdb"]), random.choice([0, 0, 100_000]), seed
    )


@pytest.mark.parametrize("seed", range(examples(6)))
def test_what_is_joined_does_not_depend_on_how_left_values_are_written(seed: int) -> None:
    """Rows that one version of the left type has written get the right row's changes in each one: old, new, old again."""
    case = case_of(seed)
    wiped = seed % 3 == 0

    async def test(harness: AppHarness) -> None:
        random = Random(case.seed)
        left: dict[str, str] = {}
        for version in (0, 1, 0):
            await harness.crash()
            if wiped:
                harness.wipe_state()
            # Values that are computed anew have no bytes of an earlier version.
            await harness.restart(case.topology(0 if case.shape == "mapped" else version))
            for key in random.sample(range(6), 4 if not left else 1):
                numbers = sorted(random.sample(range(0, 2_000, 64), random.randrange(1, 9)))
                left[f"l{key}"] = f"r{random.randrange(2)}|{','.join(map(str, numbers))}|{random.randrange(9)}"
                await harness.produce("left", f"l{key}", left[f"l{key}"])
            # Twice: what the first change of the right row leaves behind must not hide the left row from the second.
            for change in range(2):
                right = {f"r{to}": f"{version}.{change}.{random.random()}" for to in range(2)}
                for to, name in right.items():
                    await harness.produce("right", to, name)
                await harness.caught_up()
                got: dict[Any, Any] = {record.key: record.value for record in await harness.read("out")}
                expected = {}
                for row, text in left.items():
                    to, tags, rate = text.split("|")
                    expected[row] = f"{to} [{tags.replace(',', ', ')}] {float(rate)} {right[to]}"
                assert got == expected

    default = case.form(Any if case.types[0] is untyped else case.types[0])
    run_app(
        test,
        case.topology(0),
        seed=case.seed,
        topics={"left": 2, "right": 2, "out": 1},
        commit_interval_ms=100,
        default_value_serde=default,
        statestore_cache_max_bytes=case.cache,
    )


def test_a_left_serde_whose_bytes_vary_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    """One warning names the serde and the join whose responses are dropped; joins that go well, and serdes with stable bytes, are not told of."""
    drawn = iter(range(1_000))
    varying: Serde[str] = Serde.of(lambda text: f"{next(drawn)}:{text}".encode(), lambda data: data.decode().partition(":")[2], name="salted")
    for serde, told in ((STRING, 0), (varying, 1)):
        caplog.clear()
        builder = StreamsBuilder()
        left = builder.table("left", STRINGS).map_values(lambda text: text)
        right = builder.table("right", STRINGS)
        left.join(right, lambda one, other: one + other, foreign_key=lambda text: text[:1], joined=TableJoined("j")).to_stream().to(
            "out", Produced(STRING, STRING)
        )
        with TopologyTestDriver(builder.build(), {"default_key_serde": STRING, "default_value_serde": serde}) as driver:
            right_topic = driver.create_input_topic("right", STRING, STRING)
            right_topic.pipe_input("a", "1")
            driver.create_input_topic("left", STRING, STRING).pipe_input("k", "ab")
            right_topic.pipe_input("a", "2")
        found = [record.getMessage() for record in caplog.records if "as different bytes" in record.getMessage()]
        assert len(found) == told
        assert all("<Serde salted>" in text and "j-subscription-registration-topic" in text for text in found)
