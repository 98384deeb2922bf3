"""Stores that keep headers (KIP-1271): what users put is what they read, through commits, disk and changelog."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import AggregationWithHeaders, ValueTimestampHeaders
from ks_actors._errors import SerializationError
from ks_actors.records import Batch, Headers, Window, Windowed, pack_headers
from ks_actors.serdes import LONG, STRING, json
from ks_actors.state import SharedResources, TaskStores
from ks_actors.topology import StoreSpec, stores
from tests.examples_of import examples
from tests.ks_actors.state.helpers import VALUES

KINDS: Final = ("key value", "windows", "panes", "sessions")
HEADERS: Final = st.lists(st.tuples(st.sampled_from(["", "a", "ä", "long" * 40]), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
Logged = tuple[bytes, bytes | None, int, Headers]


def spec_of(kind: str, value: Any, place: str, *, headers: bool = True, logging: bool = True) -> StoreSpec:
    timed: dict[str, Any] = {} if headers else {"timestamped": True}
    options: dict[str, Any] = {"type": "in_memory" if place == "in_memory" else "rocksdb", "headers": headers, "logging": logging}
    if kind == "key value":
        return stores.key_value("s", STRING, value, **options, **timed)
    if kind == "sessions":
        return stores.session("s", STRING, value, retention_ms=1 << 40, **options)
    made = stores.window("s", STRING, value, retention_ms=1 << 40, window_size_ms=10, **options, **timed)
    return StoreSpec(**{name: getattr(made, name) for name in made.__struct_fields__} | {"advance_ms": 1 << 36 if kind == "panes" else 0})


class Life:
    """A task with one store, its changelog, and what its user put."""

    def __init__(self, kind: str, spec: StoreSpec, directory: Path | None, *, memory_bytes: int = 1 << 30) -> None:
        self.kind = kind
        self.spec = spec
        self.directory = directory
        self.shared = SharedResources(resident_bytes=memory_bytes)
        self.log: list[Logged] = []
        self.time = 0
        self.headers: Headers = ()
        self.kept: dict[Any, tuple[Any, int, Headers]] = {}
        self.now: dict[Any, tuple[Any, int, Headers]] = {}
        self.open()

    def open(self) -> None:
        self.stores = TaskStores(
            "0_0",
            [self.spec],
            directory=self.directory,
            shared=self.shared,
            record_time=lambda: self.time,
            expired=print,
            record_headers=lambda: self.headers,
        )
        self.stores.open()
        start = self.stores.next_offset("s") or 0
        if part := self.log[start:]:
            self.stores.restore("s", batch_of(part), len(self.log))

    @property
    def store(self) -> Any:
        return self.stores.store("s")

    def put(self, key: str, value: Any, time: int, headers: Headers) -> None:
        self.time = time
        if self.kind == "key value":
            self.store.put(key, ValueTimestampHeaders(value, time, headers))
        elif self.kind == "sessions":
            self.store.put(Windowed(key, Window(0, 5)), AggregationWithHeaders(value, headers))
        else:
            self.store.put(key, ValueTimestampHeaders(value, time, headers), 1 << 36)
        self.now[key] = (value, time, headers)

    def delete(self, key: str, time: int, headers: Headers) -> None:
        self.time, self.headers = time, headers
        if self.kind == "key value":
            self.store.delete(key)
        elif self.kind == "sessions":
            self.store.remove(Windowed(key, Window(0, 5)))
        else:
            self.store.put(key, None, 1 << 36)
        self.headers = ()
        self.now.pop(key, None)

    def commit(self) -> list[Logged]:
        token = self.stores.freeze()
        added: list[Logged] = []
        for _, batch in self.stores.changelog(token, batch_bytes=1 << 20):
            headers = [()] * len(batch) if batch.headers is None else batch.headers
            added += zip(batch.keys, batch.values, batch.timestamps, headers, strict=True)
        if not self.spec.logging:
            self.stores.persist_unlogged(token)
        self.log += added
        self.stores.publish(token, {"s": len(self.log)})
        self.kept = dict(self.now)
        return added

    def roll_back(self) -> None:
        self.stores.drop()
        self.now = dict(self.kept)

    def flush(self) -> None:
        for _ in self.stores.flush_steps():
            pass

    def reopen(self, *, clean: bool) -> None:
        self.stores.close(clean=clean)
        self.now = dict(self.kept)
        self.open()

    def read(self) -> dict[Any, tuple[Any, int, Headers]]:
        if self.kind == "key value":
            return {key: tuple(found) for key, found in self.store.all()}
        if self.kind == "sessions":
            return {key: (found.aggregation, self.now[key][1], found.headers) for (key, _), found in self.store.fetch_range(None, None)}
        return {key: tuple(found) for (key, _), found in self.store.all()}

    def read_one(self, key: str) -> Any:
        if self.kind == "key value":
            return self.store.get(key)
        return self.store.fetch_session(key, 0, 5) if self.kind == "sessions" else self.store.fetch(key, 1 << 36)

    def check(self) -> None:
        assert self.read() == self.now
        for key, (value, time, headers) in self.now.items():
            assert self.read_one(key) == ((value, headers) if self.kind == "sessions" else (value, time, headers))


def batch_of(records: list[Logged]) -> Batch:
    keys, values, timestamps, headers = map(list, zip(*records, strict=True))
    return Batch(keys, values, timestamps, headers if any(headers) else None)


STEPS: Final = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "delete", "commit", "flush", "roll back", "reopen", "kill"]), st.integers(0, 9), HEADERS),
    max_size=40,
)
SERDES: Final = {"text": STRING, "number": LONG, "mutable": json()}


@pytest.mark.parametrize("place", ["in_memory", "rocksdb", "evicting"])
@pytest.mark.parametrize("serde", SERDES)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(12))
@given(steps=STEPS)
def test_what_is_put_is_what_is_read(kind: str, serde: str, place: str, tmp_path_factory: pytest.TempPathFactory, steps: list[Any]) -> None:
    """Value, timestamp and headers, through commits, rollbacks, disk, eviction, restarts and crashes."""
    value_of: Any = VALUES.get(SERDES[serde], lambda number: {"n": [number]})
    life = Life(
        kind,
        spec_of(kind, SERDES[serde], place),
        None if place == "in_memory" else tmp_path_factory.mktemp("task"),
        memory_bytes=1 if place == "evicting" else 1 << 30,
    )
    for number, (step, key, headers) in enumerate(steps):
        match step:
            case "put":
                life.put(f"k{key}", value_of(number), number, headers)
            case "delete":
                life.delete(f"k{key}", number, headers)
            case "commit":
                life.commit()
            case "flush":
                life.flush()
            case "roll back":
                life.roll_back()
            case _:
                life.reopen(clean=step == "reopen")
        life.check()
    life.stores.close(clean=False)


@pytest.mark.parametrize("kind", KINDS)
def test_headers_are_those_of_the_changelogs_records(kind: str, tmp_path: Path) -> None:
    """Values are there as in the changelog of a store without headers; a user's delete has the headers of its record."""
    life = Life(kind, spec_of(kind, STRING, "rocksdb"), tmp_path)
    life.put("a", "v", 7, (("h", b"1"), ("h", None)))
    life.put("b", "w", 8, ())
    (_, *first), (_, *second) = life.commit()
    assert (first, second) == ([b"v", 7, (("h", b"1"), ("h", None))], [b"w", 8, ()])
    life.delete("a", 9, (("why", b"gone"),))
    ((_, *deleted),) = life.commit()
    assert deleted == [None, 9, (("why", b"gone"),)]
    life.put("b", "x", 10, (("h", b"2"),))
    life.put("b", "y", 11, ())
    ((_, *last),) = life.commit()
    assert last == [b"y", 11, ()]


@pytest.mark.parametrize("kind", KINDS)
def test_rows_on_disk_have_the_bytes_of_kafka_streams(kind: str, tmp_path: Path) -> None:
    """Headers with their size, then the timestamp, which sessions do not have, and the value; put or restored."""
    life = Life(kind, spec_of(kind, STRING, "rocksdb"), tmp_path)
    headers: Headers = (("h", b"1"),)
    life.put("a", "v", 7, headers)
    life.put("b", "w", 8, ())
    life.commit()
    timed = kind != "sessions"
    wanted = sorted([pack_headers(headers) + (b"\0" * 7 + b"\7" if timed else b"") + b"v", b"\0" + (b"\0" * 7 + b"\x08" if timed else b"") + b"w"])

    def rows() -> list[bytes]:
        life.flush()
        engine = life.stores._engine
        assert engine is not None
        return sorted(data for _, data in engine.scan(b"\1", b"\2"))

    assert rows() == wanted
    life.reopen(clean=True)
    assert rows() == wanted
    life.stores.close(clean=False)
    life.directory = tmp_path / "another"
    life.open()
    assert rows() == wanted
    life.check()


@pytest.mark.parametrize("kind", KINDS)
def test_operators_read_and_put_entries_without_headers(kind: str, tmp_path: Path) -> None:
    """They know values and timestamps alone, and a row that they have put has no headers."""
    life = Life(kind, spec_of(kind, LONG, "rocksdb"), tmp_path)
    life.put("a", 1, 7, (("h", b"1"),))
    places: Mapping[str, tuple[int, ...]] = {"key value": (), "sessions": (0, 5)}
    place = places.get(kind, (1 << 36,))
    value, time = life.store.get_entry("a", *place)
    assert (value, time) == (1, 7)
    if kind == "key value":
        life.store.put_entry("a", (2, 8))
    else:
        life.store.put_entry("a", *place, (2, 8))
    assert life.read_one("a").headers == ()
    ((_, *logged),) = life.commit()
    assert logged == [b"\0" * 7 + b"\2", 8, ()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("headers", [None, 1, (("a", "text"),), ((b"a", b"1"),), (("a",),), (("\ud800", b"1"),)])
def test_headers_that_no_log_can_take_are_refused(kind: str, headers: Any, tmp_path: Path) -> None:
    """The put changes nothing."""
    life = Life(kind, spec_of(kind, STRING, "in_memory"), tmp_path)
    with pytest.raises(SerializationError, match="store s: headers are pairs of a name and bytes or None, got"):
        life.put("a", "v", 7, headers)
    assert life.read() == {}


@pytest.mark.parametrize(("kind", "headers"), [*((kind, True) for kind in KINDS), *((kind, False) for kind in KINDS if kind != "sessions")])
def test_a_value_without_its_wrapper_is_refused(kind: str, headers: bool, tmp_path: Path) -> None:
    """The error says what to give, and nothing is put; with headers or with timestamps alone."""
    life = Life(kind, spec_of(kind, STRING, "in_memory", headers=headers), tmp_path)
    wanted = "AggregationWithHeaders" if kind == "sessions" else "ValueTimestampHeaders" if headers else r"ValueAndTimestamp\(value, timestamp_ms\)"
    with pytest.raises(TypeError, match=f"is put with its .*, got 'vw': give {wanted}"):
        if kind == "key value":
            life.store.put("a", "vw")
        elif kind == "sessions":
            life.store.put(Windowed("a", Window(0, 5)), "vw")
        else:
            life.store.put("a", "vw", 0)
    assert not life.stores.any_changed


def test_unreadable_headers_on_disk_are_an_error_with_the_stores_name(tmp_path: Path) -> None:
    """The error names the store, not the insides of a codec."""
    life = Life("key value", spec_of("key value", STRING, "rocksdb"), tmp_path)
    life.put("a", "v", 7, (("h", b"1"),))
    life.commit()
    life.flush()
    assert life.stores._engine is not None
    ((key, data),) = life.stores._engine.scan(b"\1", b"\2")
    for broken in (b"", b"\x7f", data[:1] + b"\x7f" + data[2:]):
        life.stores._engine.write([(key, broken)])
        life.stores.close(clean=True)
        life.open()
        with pytest.raises(SerializationError, match="store s has a"):
            life.store.get("a")
    with contextlib.suppress(SerializationError):
        life.stores.close(clean=False)
