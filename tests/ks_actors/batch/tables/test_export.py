"""Tables and topics as Parquet: typed rows of committed records."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import re
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypedDict

import msgspec
import pyarrow as pa
import pytest
from pyarrow import parquet

from ks_actors import App, ConfigError, SerializationError, StreamsConfig, Topology, UnknownStore, UnknownTopicOrPartition, serdes
from ks_actors.batch import ExportProgress, _reading
from ks_actors.batch._export_progress import Watch
from ks_actors.batch._reading import LogRange
from ks_actors.batch.tables import TopicColumns
from ks_actors.batch.tables._arrow_types import decoding_of, shape_of
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, SessionWindows, StreamsBuilder, TimeWindows, UnlimitedWindows
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch
from tests.ks_actors.batch.histories import fill
from tests.waiting import soon, until

TEXT = Consumed(serdes.STRING, serdes.STRING)


class Total(msgspec.Struct, frozen=True, array_like=True):
    count: int
    longest: tuple[int, str]
    parts: dict[str, float]
    last: str | None = None


def add(_: str, word: str, total: Total) -> Total:
    return Total(total.count + 1, max(total.longest, (len(word), word)), {**total.parts, word[:1]: 0.5}, word)


def topology() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", TEXT).group_by_key(Grouped(serdes.STRING, serdes.STRING))
    totals = words.aggregate(lambda: Total(0, (0, ""), {}), add, Materialized("totals", serdes.STRING, serdes.msgpack(Total)))
    totals.to_stream().to("totals-out", Produced(serdes.STRING, serdes.json(Total)))
    hours = words.windowed_by(TimeWindows.of_size_and_grace(1_000, 0)).count(Materialized("hours", serdes.STRING, serdes.LONG))
    hours.to_stream().to("hours-out", Produced(serdes.windowed(serdes.STRING, 1_000), serdes.LONG))
    words.windowed_by(SessionWindows.of_inactivity_gap_and_grace(100, 0)).count(Materialized("visits", serdes.STRING, serdes.LONG))
    words.count(Materialized("unlogged", serdes.STRING, serdes.LONG, logging=False))
    builder.table("rates", TEXT, Materialized("history", serdes.STRING, serdes.STRING, history_retention_ms=10_000))
    builder.global_table("names", TEXT, Materialized("names", serdes.STRING, serdes.STRING))
    words.windowed_by(UnlimitedWindows.of()).count(Materialized("forever", serdes.STRING, serdes.LONG))
    builder.stream(re.compile("orders-.*"), Consumed(serdes.STRING, serdes.json(int))).foreach(lambda *_: None)
    return builder.build()


WORDS = [("words", key.encode(), word.encode(), time) for time, (key, word) in enumerate([("a", "bee"), ("b", "cat"), ("a", "horse"), ("a", "ox")])]
TOPICS = {"words": 2, "totals-out": 2, "hours-out": 2, "names": 1, "stray": 1, "rates": 1, "orders-eu": 1}
RATES: list[tuple[str, bytes, bytes | None, int]] = [
    ("rates", key, value, time)
    for key, value, time in [
        (b"late", b"new", 200),
        (b"late", b"old", 100),
        (b"kept", b"new", 200),
        (b"kept", None, 100),
        (b"gone", None, 200),
        (b"gone", b"old", 100),
        (b"twice", b"one", 100),
        (b"twice", b"two", 100),
    ]
]
UTC = dt.UTC


def at(time_ms: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(time_ms / 1000, UTC)


@asynccontextmanager
async def an_app(directory: Path) -> AsyncIterator[App]:
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
        await fill(log, TOPICS, [*WORDS, *RATES, ("names", b"a", b"Ann", 5), ("stray", b"\xff", b"\xfe", 7), ("orders-eu", b"k", b"1", 9)])
        yield App(topology(), StreamsConfig(application_id="app", state_dir=directory / "state"), log=log)


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[App]:
    """An app that runs and has processed all."""
    async with an_app(tmp_path) as made, made:
        await made.wait_until_caught_up()
        yield made


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return the function that reads files of an export."""
    return rows_of(tmp_path)


def rows_of(directory: Path) -> Callable[..., list[dict[str, Any]]]:
    def read(name: str, *columns: str) -> list[dict[str, Any]]:
        files = sorted((directory / "out" / name).iterdir())
        return [row for file in files for row in parquet.ParquetFile(file).read(columns=list(columns) or None).to_pylist()]

    return read


async def test_tables_are_typed_rows(app: App, read: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """The last value of each key, in the types of its serde; windows and sessions have columns of their own."""
    assert await app.export(tmp_path / "out", tables=["totals", "hours", "visits", "names"]) == {"totals": 2, "hours": 2, "visits": 2, "names": 1}
    assert sorted(read("totals", "key", "timestamp", "value"), key=lambda row: row["key"]) == [
        {
            "key": "a",
            "timestamp": at(3),
            "value": {"count": 3, "longest": {"_1": 5, "_2": "horse"}, "parts": [("b", 0.5), ("h", 0.5), ("o", 0.5)], "last": "ox"},
        },
        {"key": "b", "timestamp": at(1), "value": {"count": 1, "longest": {"_1": 3, "_2": "cat"}, "parts": [("c", 0.5)], "last": "cat"}},
    ]
    windows = sorted(read("hours", "key", "window_start", "window_end", "value"), key=lambda row: row["key"])
    assert windows[0] == {"key": "a", "window_start": at(0), "window_end": at(1_000), "value": 3}
    sessions = sorted(read("visits", "key", "window_start", "window_end", "value"), key=lambda row: row["key"])
    assert sessions[0] == {"key": "a", "window_start": at(0), "window_end": at(3), "value": 3}
    assert read("names") == [{"partition": 0, "timestamp": at(5), "key": "a", "value": "Ann"}]


async def test_a_versioned_table_has_the_latest_versions(app: App, read: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """By their times, also where older puts and deletes came later; of one time the last."""
    assert await app.export(tmp_path / "out", tables=["history"]) == {"history": 3}
    found = {row["key"]: (row["value"], row["timestamp"]) for row in read("history")}
    assert found == {"late": ("new", at(200)), "kept": ("new", at(200)), "twice": ("two", at(100))}


async def test_the_progress_of_each_partition_is_told(app: App, read: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """At its start and its end, on the app's event loop; an error that the callee raises ends the export."""
    told: list[ExportProgress] = []

    def progress(seen: ExportProgress) -> None:
        assert asyncio.get_running_loop() is loop
        told.append(seen)

    loop = asyncio.get_running_loop()
    await app.export(tmp_path / "out", topics=["words"], tables=["totals"], progress=progress)
    for name, records in (("totals", 2), ("words", 4)):
        seen = [one for one in told if one.name == name]
        assert [one.offset for one in seen if not one.done] == [one.start for one in seen if one.start < one.end and one.offset == one.start]
        assert {one.partition for one in seen if one.done} == {one.partition for one in seen}
        assert sum(max(one.records for one in seen if one.partition == number) for number in {one.partition for one in seen}) == records

    def angry(seen: ExportProgress) -> None:
        raise ValueError(seen.name)

    with pytest.raises(ValueError, match="words"):
        await app.export(tmp_path / "out", topics=["words"], progress=angry)


@pytest.mark.parametrize("given", [True, False])
def test_a_cancelled_export_ends_though_the_log_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool) -> None:
    """Its thread waits for the log no longer, puts its files away, and closes what it has opened."""
    asked = threading.Event()

    async def silent(*_: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(_reading, "_fetch", silent)

    async def cancel(app: App, log: EmbeddedLog) -> None:
        before, fetchers = set(asyncio.all_tasks()), set(log._parts)
        exporting = asyncio.create_task(app.export(tmp_path / "out", topics=["words"]))
        await asyncio.to_thread(asked.wait)
        exporting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exporting
        await until(lambda: set(log._parts) == fetchers and set(asyncio.all_tasks()) == before)
        assert [thread.name for thread in threading.enumerate() if thread.name == "ks-batch-log"] == []
        assert not [path for path in (tmp_path / "out").rglob("*") if path.is_file()]

    async def main() -> None:
        async with EmbeddedLog(tmp_path / "log") as log:
            await log.create_topics([NewTopic("words", 1)])
            await fill(log, {"words": 1}, WORDS)
            config = StreamsConfig(application_id="app", log=f"embedded://{tmp_path / 'log'}", state_dir=tmp_path / "state")
            await soon(cancel(App(topology(), config, log=log if given else None), log))

    asyncio.run(main())


def test_progress_is_told_each_second(tmp_path: Path) -> None:
    """However many batches are read, with the offset that is next and the records so far."""
    now, told = [0.0], list[ExportProgress]()

    def read() -> Generator[Batch, None, None]:
        for number in range(10):
            now[0] += 0.4
            yield Batch([b"k"] * 2, [b"a", b"b"], [0, 0], offsets=[number * 2, number * 2 + 1])

    watch = Watch(told.append, lambda: now[0])
    assert len(list(watch.over("words", LogRange("app-words", 3, 0, 20), read()))) == 10
    assert [(one.partition, one.offset, one.records, one.done) for one in told] == [
        (3, 0, 0, False), (3, 6, 6, False), (3, 12, 12, False), (3, 18, 18, False), (3, 20, 20, True),
    ]  # fmt: skip
    assert {one.name for one in told} == {"words"}


async def test_topics_are_all_their_records(app: App, read: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """By the serdes of the nodes that read or write them; those of strangers, and with `raw` all, stay bytes."""
    found = await app.export(tmp_path / "out", topics=["words", "totals-out", "hours-out", "stray"])
    assert found == {"words": 4, "totals-out": 4, "hours-out": 4, "stray": 1}
    assert sorted((row["timestamp"], row["key"], row["value"]) for row in read("words")) == [
        (at(time), key.decode(), value.decode()) for _, key, value, time in WORDS
    ]
    assert {row["offset"] for row in read("words")} <= set(range(4))
    assert max(row["value"]["count"] for row in read("totals-out")) == 3
    assert read("hours-out")[0]["key"] == {"key": read("hours-out")[0]["key"]["key"], "start": at(0), "end": at(1_000)}
    assert read("stray") == [{"partition": 0, "offset": 0, "timestamp": at(7), "key": b"\xff", "value": b"\xfe", "headers": []}]
    assert await app.export(tmp_path / "out", topics=["words"], raw=True) == {"words": 4}
    assert {row["key"] for row in read("words")} == {b"a", b"b"}
    assert not list((tmp_path / "out").rglob("*.part"))


async def test_topics_of_a_pattern_have_the_types_of_its_serdes(read: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """As those have that a source names."""
    async with an_app(tmp_path) as app:
        assert await app.export(tmp_path / "out", topics=["orders-eu"]) == {"orders-eu": 1}
    assert read("orders-eu", "key", "value") == [{"key": "k", "value": 1}]


async def test_times_that_no_reader_can_show_are_null(app: App, read: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> None:
    """Such are the end of an unlimited window, raw or not, and timestamps after the year 9999."""
    for raw in (False, True):
        assert await app.export(tmp_path / "out", tables=["forever"], raw=raw) == {"forever": 2}
        assert [(row["window_start"], row["window_end"]) for row in read("forever")] == [(at(0), None)] * 2
    columns = TopicColumns(pa.schema([("timestamp", pa.timestamp("us", "UTC"))]), None, None)
    found = columns.of(Batch([None] * 3, [b"v"] * 3, [1, -1, (1 << 63) - 1]), LogRange("t", 0, 0, 3))
    assert found.to_pylist() == [{"timestamp": at(1)}, {"timestamp": None}, {"timestamp": None}]


async def test_tables_that_cannot_be_exported_are_named(tmp_path: Path) -> None:
    """Missing names, missing changelogs, and bad data with its place; an app need not run."""
    async with an_app(tmp_path) as app:
        for arguments, kind, said in (
            ({}, ConfigError, "name something to export"),
            ({"tables": ["prices"]}, UnknownStore, "no table 'prices'; it has"),
            ({"tables": ["unlogged"]}, ConfigError, "table unlogged: it has no changelog"),
            ({"tables": ["names"], "topics": ["names"]}, ConfigError, "names: is named twice, and both would be written to"),
            ({"topics": ["words"], "types": {"names": str}}, ConfigError, "names is not exported"),
            ({"topics": ["words"], "types": {"words": str}, "raw": True}, ConfigError, "types: words has a type, but raw leaves all as bytes"),
            ({"topics": ["stray"], "types": {"stray": str}}, ConfigError, "neither reads nor writes topic 'stray', so it has no serde for it"),
            ({"topics": ["nowhere"]}, UnknownTopicOrPartition, "nowhere"),
            ({"topics": ["words"], "types": {"words": int}}, SerializationError, r"words-\d: the value at offset 0 is not of its serde's type"),
        ):
            with pytest.raises(kind, match=said):
                await app.export(tmp_path / "out", **arguments)
        assert await app.export(tmp_path / "out", topics=["words"]) == {"words": 4}


async def test_a_log_that_somebody_else_writes_is_only_read(tmp_path: Path) -> None:
    """An app that does not run, of another process or of this one, takes no hold of the directory."""
    async with EmbeddedLog(tmp_path / "log") as log:
        await log.create_topics([NewTopic(name, count) for name, count in TOPICS.items()])
        await fill(log, TOPICS, WORDS)
        app = App(topology(), StreamsConfig(application_id="app", log=f"embedded://{tmp_path / 'log'}"))
        assert await app.export(tmp_path / "out", topics=["words"]) == {"words": 4}
        assert [row["value"] for row in rows_of(tmp_path)("words", "value", "timestamp")]
        with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
            await app.export(tmp_path / "out", topics=["nowhere"])


class Colour(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


class Size(TypedDict):
    width: int


@dataclass
class Box:
    size: Size
    corners: list[Point]
    colour: Colour
    seen: dt.datetime
    price: int | float
    what: int | str
    rest: Any = None


def test_types_have_a_form_in_arrow() -> None:
    """Structs of all kinds, lists, unions of numbers; a type without an equivalent is JSON text."""
    shape = shape_of(Box)
    point = pa.struct([("x", pa.int64()), ("y", pa.float64())])
    text = pa.string()
    fields = [("size", pa.struct([("width", pa.int64())])), ("corners", pa.list_(point)), ("colour", text), ("seen", pa.timestamp("us", "UTC"))]
    assert shape.type == pa.struct([*fields, ("price", pa.float64()), ("what", text), ("rest", text)])
    box = Box({"width": 3}, [Point(1, 2.0)], Colour.RED, at(1), 2, "x", {"a": [1]})
    assert shape.convert is not None
    assert pa.array([shape.convert(box)], shape.type).to_pylist() == [
        {
            "size": {"width": 3},
            "corners": [{"x": 1, "y": 2.0}],
            "colour": "red",
            "seen": at(1),
            "price": 2.0,
            "what": '"x"',
            "rest": '{"a":[1]}',
        }
    ]


class Level(enum.IntEnum):
    LOW = 1


class Plain(msgspec.Struct):
    price: Decimal
    id: uuid.UUID
    level: Level
    mixed: Literal[1, "two"]
    side: Literal["buy", "sell"] | None
    rank: Literal[1, 2]
    noon: dt.time
    took: dt.timedelta
    by_colour: dict[Colour, Decimal]


def test_types_that_json_has_as_text_are_text_without_quotation_marks() -> None:
    """Decimals, UUIDs, times, durations, and enums and literals of text, so they can be compared and cast; enums and literals of int are numbers."""
    shape = shape_of(Plain)
    text = pa.string()
    assert [(field.name, field.type) for field in shape.type] == [
        ("price", text), ("id", text), ("level", pa.int64()), ("mixed", text), ("side", text), ("rank", pa.int64()), ("noon", text),
        ("took", text), ("by_colour", pa.map_(text, text)),
    ]  # fmt: skip
    assert shape.convert is not None
    some = uuid.UUID(int=1)
    plain = Plain(Decimal("1.50"), some, Level.LOW, "two", "buy", 2, dt.time(12), dt.timedelta(hours=1), {Colour.RED: Decimal(2)})
    assert pa.array([shape.convert(plain)], shape.type).to_pylist() == [
        {
            "price": "1.50", "id": str(some), "level": 1, "mixed": '"two"', "side": "buy", "rank": 2, "noon": "12:00:00", "took": "PT3600S",
            "by_colour": [("red", "2")],
        }
    ]  # fmt: skip


class Sparse(msgspec.Struct):
    a: int | msgspec.UnsetType = msgspec.UNSET


@pytest.mark.parametrize(
    ("type_", "data", "value"),
    [
        (Total | None, b"null", None),
        (list[int] | None, b"null", None),
        (dict[str, int] | None, b"null", None),
        (int | float | None, b"null", None),
        (Sparse, b"{}", {"a": None}),
        (Sparse, b'{"a": 1}', {"a": 1}),
    ],
)
def test_none_and_unset_are_null(type_: Any, data: bytes, value: Any) -> None:
    """Of all optional types, as a value and as a field."""
    decoding = decoding_of(serdes.json(type_), "t")
    assert decoding.decode is not None
    assert pa.array([decoding.decode(data)], decoding.type).to_pylist() == [value]


class Node(msgspec.Struct):
    name: str
    next: Node | None = None
    others: list[Node] = []
    in_background: tuple[Leaf, Leaf] | None = None


class Leaf(TypedDict):
    of: Node | None


def test_types_within_themselves_are_json_text_there() -> None:
    """A recursive type is a struct once, directly or by way of others; the same type twice side by side is one both times."""
    text = pa.string()
    leaf = pa.struct([("of", text)])
    shape = shape_of(Node)
    in_background = pa.struct([("_1", leaf), ("_2", leaf)])
    assert shape.type == pa.struct([("name", text), ("next", text), ("others", pa.list_(text)), ("in_background", in_background)])
    assert shape.convert is not None
    inner = Node("b", Node("c"))
    told = msgspec.json.encode(inner).decode()
    found = pa.array([shape.convert(Node("a", inner, [inner], ({"of": inner}, {"of": None})))], shape.type)
    assert found.to_pylist() == [{"name": "a", "next": told, "others": [told], "in_background": {"_1": {"of": told}, "_2": {"of": None}}}]


def test_serdes_that_do_not_tell_their_type_leave_bytes() -> None:
    """Unless the type is said."""
    silent = serdes.Serde.of(str.encode, bytes.decode)
    assert decoding_of(silent, "t").type == pa.binary()
    assert decoding_of(silent, "t", type_=str).type == pa.string()
