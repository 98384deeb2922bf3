"""Stores that an app serves to other processes: their rows, and the refused clients."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, ConfigError, NotRunning, QueryFailed, StreamsConfig, Topology, UnknownStore, serdes
from ks_actors.batch.source._live import LiveStores
from ks_actors.dsl import Consumed, Grouped, Materialized, SessionWindows, StreamsBuilder, TimeWindows
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.query import FailureReason, StoreEndpoint, _scan, _serve
from ks_actors.query._wire import LENGTH, Describe, Hello, ReadRows, encode
from tests.ks_actors.batch.histories import fill, last, read_all

TOPICS = {"words": 2, "prices-of-old": 1}
STORES = ("counts", "by-time", "sessions")
RECORDS = [("words", f"k{number % 50}".encode(), b"word", number * 10) for number in range(3_000)]


def counting(kind: str) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("words", Consumed(serdes.STRING, serdes.STRING)).group_by_key(Grouped(serdes.STRING, serdes.STRING))
    settings: dict[str, Any] = {"key": serdes.STRING, "value": serdes.LONG, "store_type": kind}
    words.count(Materialized("counts", **settings))
    words.windowed_by(TimeWindows.of_size_and_grace(1_000, 0)).count(Materialized("by-time", **settings, retention_ms=10_000_000))
    words.windowed_by(SessionWindows.of_inactivity_gap_and_grace(100, 0)).count(Materialized("sessions", **settings, retention_ms=10_000_000))
    builder.table("prices-of-old", Consumed(serdes.STRING, serdes.STRING), Materialized("versions", history_retention_ms=1_000))
    builder.global_table("names", Consumed(serdes.STRING, serdes.STRING), Materialized("names", serdes.STRING, serdes.STRING))
    return builder.build()


@asynccontextmanager
async def served(directory: Path, kind: str = "rocksdb") -> AsyncIterator[tuple[App, StoreEndpoint]]:
    async with EmbeddedLog() as log:
        await log.create_topics([*(NewTopic(name, count) for name, count in TOPICS.items()), NewTopic("names", 1)])
        await fill(log, {**TOPICS, "names": 1}, [*RECORDS, ("names", b"k1", b"one", 0)])
        config = StreamsConfig(application_id="app", state_dir=directory)
        async with App(counting(kind), config, log=log) as app:
            await app.wait_until_caught_up()
            yield app, await app.serve_stores()


def reading(endpoint: StoreEndpoint, call: Callable[[LiveStores], Any], token: str | None = None) -> Any:
    with LiveStores(endpoint.address, endpoint.token if token is None else token) as app:
        return call(app)


def rows_of(request: ReadRows) -> Callable[[LiveStores], dict[bytes, tuple[bytes, int]]]:
    def call(app: LiveStores) -> dict[bytes, tuple[bytes, int]]:
        return {
            key: (value, time) for batch in app.rows(request) for key, value, time in zip(batch.keys, batch.values, batch.timestamps, strict=True)
        }

    return call


def described_as(store: str) -> Callable[[LiveStores], Any]:
    return lambda app: app.describe(store)


@pytest.mark.parametrize("kind", ["in_memory", "rocksdb"])
async def test_rows_are_those_of_the_changelog(kind: str, tmp_path: Path) -> None:
    """Keys, values and times in bytes, of stores of every kind, in memory and on disk, as their changelogs have them last."""
    async with served(tmp_path, kind) as (app, endpoint):
        for store in STORES:
            expected = {number: last(batches) for number, batches in (await read_all(app.log, f"app-{store}-changelog", 2)).items()}
            for number in range(2):
                found = await asyncio.to_thread(reading, endpoint, rows_of(ReadRows(store, number)))
                assert {key: value for key, (value, _) in found.items()} == {key: value for key, (value, _) in expected[number].items()}
                if store != "sessions":
                    assert found == expected[number]
            described = await asyncio.to_thread(reading, endpoint, described_as(store))
            assert (described.partitions, described.count, described.changelog) == ([0, 1], 2, f"app-{store}-changelog")


async def test_some_keys_are_looked_up_in_their_partitions(tmp_path: Path) -> None:
    """One after the other in a key-value store, all windows and sessions of them in others; a global store is one partition."""
    async with served(tmp_path) as (_, endpoint):
        whole = [await asyncio.to_thread(reading, endpoint, rows_of(ReadRows("counts", number))) for number in range(2)]
        some = [await asyncio.to_thread(reading, endpoint, rows_of(ReadRows("counts", number, [b"k7", b"k8", b"none"]))) for number in range(2)]
        assert {**some[0], **some[1]} == {key: {**whole[0], **whole[1]}[key] for key in (b"k7", b"k8")}
        windows = [await asyncio.to_thread(reading, endpoint, rows_of(ReadRows("by-time", number, [b"k7"]))) for number in range(2)]
        assert sum(map(len, windows)) == 30
        assert await asyncio.to_thread(reading, endpoint, rows_of(ReadRows("names", 0))) == {b"k1": (b"one", 0)}


def sizes_of(request: ReadRows) -> Callable[[LiveStores], list[tuple[int, int]]]:
    return lambda app: [(len(batch), sum(map(len, batch.keys + batch.values))) for batch in app.rows(request)]


async def test_a_long_search_shows_signs_of_life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as nothing is found there are frames without rows, so that the client goes on waiting."""
    monkeypatch.setattr(_serve, "_SIGN_SECONDS", 0)
    monkeypatch.setattr(_scan, "SLICE_SECONDS", 0)
    async with served(tmp_path) as (_, endpoint):
        for store in ("by-time", "sessions"):
            signs = await asyncio.to_thread(reading, endpoint, sizes_of(ReadRows(store, 0, [b"none"])))
            assert set(signs) == {(0, 0)}
        monkeypatch.setattr(_serve, "_SIGN_SECONDS", 10)
        assert await asyncio.to_thread(reading, endpoint, sizes_of(ReadRows("by-time", 0, [b"none"]))) == []


async def test_frames_are_bounded_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are bounded by rows too; a larger row has a frame of its own."""
    async with served(tmp_path) as (_, endpoint):
        whole = await asyncio.to_thread(reading, endpoint, sizes_of(ReadRows("sessions", 0)))
        assert all(count == 1_000 for count, _ in whole[:-1])
        assert sum(count for count, _ in whole) > 1_000
        for most, rows in ((100, 3), (5, 1)):  # a row has 26 or 27 bytes
            monkeypatch.setattr(_serve, "_FRAME_BYTES", most)
            found = await asyncio.to_thread(reading, endpoint, sizes_of(ReadRows("sessions", 0)))
            assert {count for count, _ in found[:-1]} == {rows}
            assert sum(count for count, _ in found) == sum(count for count, _ in whole)


async def test_strangers_are_told_nothing(tmp_path: Path) -> None:
    """The endpoint is on this machine only; without its token there is no answer, and bytes that are no request end the connection."""
    async with served(tmp_path) as (_, endpoint):
        assert endpoint.address.startswith("127.0.0.1:")
        with pytest.raises(ConfigError, match="this is not the token"):
            await asyncio.to_thread(reading, endpoint, lambda app: app.describe("counts"), "guessed")
        for said in (
            encode(Describe("counts")),  # before a greeting
            b"GET / HTTP/1.1\r\n\r\n",
            LENGTH.pack(1 << 30),
            LENGTH.pack(3) + b"\xc1\xc1\xc1",
            LENGTH.pack(len(encode(Hello(endpoint.token, 99)))) + encode(Hello(endpoint.token, 99)),
        ):
            answer = await asyncio.to_thread(tell, endpoint.address, said)
            assert b"Described" not in answer
            assert b"Welcome" not in answer
        assert await asyncio.to_thread(reading, endpoint, lambda app: app.describe("counts").count) == 2  # it goes on


def tell(address: str, said: bytes) -> bytes:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(said)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(1 << 16):
                answer += part
        except ConnectionResetError:
            return answer
        return answer


async def test_unreadable_records_are_errors(tmp_path: Path) -> None:
    """The error that the app would raise, where it is asked from; the connection can be used on."""
    async with served(tmp_path) as (_, endpoint):

        def ask(app: LiveStores) -> None:
            with pytest.raises(UnknownStore, match="has no store 'prices'"):
                app.describe("prices")
            with pytest.raises(QueryFailed, match="has no partition 7") as failed:
                list(app.rows(ReadRows("counts", 7)))
            assert failed.value.reason is FailureReason.DOES_NOT_EXIST
            with pytest.raises(QueryFailed, match="read its changelog") as failed:
                list(app.rows(ReadRows("versions", 0)))
            assert failed.value.reason is FailureReason.UNKNOWN_QUERY_TYPE
            assert app.describe("counts").kind == "timestamped_key_value"

        await asyncio.to_thread(reading, endpoint, ask)


async def test_an_instance_that_has_nothing_of_a_store_says_so(tmp_path: Path) -> None:
    """Another one has it: a reader asks them all."""
    async with served(tmp_path / "one") as (app, endpoint):
        async with App(counting("rocksdb"), StreamsConfig(application_id="app", client_id="two", state_dir=tmp_path / "two"), log=app.log) as other:
            for each in (app, other, app):
                await each.wait_until_caught_up()
            second = await other.serve_stores()
            found = [await asyncio.to_thread(reading, each, described_as("versions")) for each in (endpoint, second)]
        assert sorted(each.partitions for each in found) == [[], [0]]
        assert [each.count for each in found] == [1, 1]


async def test_the_endpoint_ends_with_the_app(tmp_path: Path) -> None:
    """The endpoint needs a running app, and its end closes open connections."""
    async with served(tmp_path) as (app, endpoint):
        held = await asyncio.to_thread(LiveStores(endpoint.address, endpoint.token).__enter__)
        await app.close()
        with pytest.raises(QueryFailed, match=r"the app (no longer answers|no longer accepts requests|closed the connection)"):
            await asyncio.to_thread(held.describe, "counts")
        held.__exit__()
        with pytest.raises(QueryFailed, match="no answer"):
            await asyncio.to_thread(reading, endpoint, lambda live: live.describe("counts"))
        with pytest.raises(NotRunning):
            await app.serve_stores()


def test_an_address_is_host_and_port() -> None:
    """Said before anything is connected."""
    with pytest.raises(ConfigError, match="must be host:port"):
        LiveStores("localhost", "token")
