"""Stores of all instances: the same answers as one instance gives, from each instance and from a client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, QueryFailed, StreamsConfig, UnknownStore
from ks_actors.log import IsolationLevel, NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.query import Client, FailureReason
from ks_actors.serdes import LONG, STRING
from tests.ks_actors.batch.histories import fill
from tests.ks_actors.query.test_serve import counting

PARTITIONS = {"words": 4, "prices-of-old": 2, "names": 1}
RECORDS = [
    *(("words", f"k{number % 40}".encode(), b"word", number * 10) for number in range(400)),
    ("names", b"k1", b"one", 0),
    *(("prices-of-old", b"pear", str(price).encode(), price) for price in range(5)),
]
TOKEN = "a token of the tests"  # noqa: S105 - of the tests


@asynccontextmanager
async def instances(directory: Path, count: int, kind: str = "in_memory", **settings: Any) -> AsyncIterator[list[App]]:
    """Run instances of the counting app on one log in memory, caught up."""
    async with EmbeddedLog() as log, AsyncExitStack() as stack:
        await log.create_topics([NewTopic(name, number) for name, number in PARTITIONS.items()])
        await fill(log, PARTITIONS, RECORDS)
        apps = []
        for number in range(count):
            config = StreamsConfig(
                application_id="app",
                client_id=f"client-{number}",
                state_dir=directory / str(number),
                **{"application_server": "127.0.0.1:0", "query_token": TOKEN, "commit_interval_ms": 20, **settings},
            )
            apps.append(await stack.enter_async_context(App(counting(kind), config, log=log)))
        for app in apps:
            await app.wait_until_caught_up()
        yield apps


async def answers(store: Any, windows: Any, sessions: Any, versions: Any, names: Any) -> list[Any]:
    """Return answers of readers of all kinds of stores, of each method."""
    return [
        [await store.get(f"k{number}") for number in range(41)],
        await store.range("k1", "k3"),
        await store.range(None, "k3"),
        await store.reverse_range("k1", None),
        await store.prefix_scan("k2"),
        await store.all(),
        [row async for row in store.reverse_all()],
        await store.approximate_num_entries() >= 40,  # an estimate: a database may have rows of other stores
        await windows.fetch("k1", 0),
        await windows.fetch("k1", 0, 3_000),
        await windows.backward_fetch("k1", 0, 3_000),
        await windows.fetch_all(0, 2_000),
        await windows.backward_fetch_all(0, 2_000),
        await windows.all(),
        await sessions.fetch_session("k1", 10, 10),
        await sessions.fetch("k1"),
        await sessions.find_sessions("k1", 400, 900),
        await sessions.find_sessions_range("k1", "k2", 0, 900),
        await sessions.backward_find_sessions_range(None, "k2"),
        await sessions.all(),
        await versions.get("pear"),
        await versions.get("pear", 2),
        await versions.get("plum"),
        await versions.versions("pear", 1, 3, descending=True),
        await names.get("k1"),
        await names.all(),
    ]


def readers(app: App, **how: Any) -> list[Any]:
    return [app.store(name, **how) for name in ("counts", "by-time", "sessions", "versions", "names")]


@pytest.mark.parametrize("kind", ["in_memory", "rocksdb"])
async def test_all_instances_and_a_client_answer_as_one_instance_does(kind: str, tmp_path: Path) -> None:
    """Each method of each kind of store, with the same rows in the same order."""
    async with instances(tmp_path / "one", 1, kind) as (alone,):
        expected = await answers(*readers(alone))
    async with instances(tmp_path / "many", 3, kind) as apps:
        assert {len(one.active) for one in apps[0].endpoints()} == {2}
        for app in apps[:2]:
            assert await answers(*readers(app, everywhere=True)) == expected
        async with Client([str(apps[1].endpoints()[2].endpoint)], token=TOKEN) as client:
            found = await answers(
                *(client.store(name, STRING, LONG) for name in ("counts", "by-time", "sessions")),
                *(client.store(name, STRING, STRING) for name in ("versions", "names")),
            )
            assert found == expected


async def test_values_have_their_timestamps(tmp_path: Path) -> None:
    """Also of rows of other instances, and at both isolation levels."""
    async with instances(tmp_path, 2) as apps:
        for level in IsolationLevel:
            here = [dict(await app.store("counts", timestamped=True, isolation=level).all()) for app in apps]
            reader = apps[0].store("counts", timestamped=True, everywhere=True, isolation=level)
            assert dict(await reader.all()) == here[0] | here[1]
            assert await reader.get("k7") == (here[0] | here[1])["k7"]


async def test_an_app_knows_who_has_a_key(tmp_path: Path) -> None:
    """All instances and clients say the same, and each knows whether it is the one."""
    async with instances(tmp_path, 2) as apps:
        for number in range(10):
            key = f"k{number}"
            first, second = (app.owner("counts", key) for app in apps)
            assert first.active == second.active
            assert first.active is not None
            assert (first.here, second.here) in {(True, False), (False, True)}
            owner = apps[0] if first.here else apps[1]
            assert await owner.store("counts", partition=first.partition).get(key) == 10
            async with Client([str(first.active)], token=TOKEN) as client:
                assert client.owner("counts", key, STRING).active == first.active
        with pytest.raises(UnknownStore):
            apps[0].owner("none", "k1")


async def test_one_partition_can_be_asked_wherever_it_is(tmp_path: Path) -> None:
    """A partition that the store lacks is refused as locally."""
    async with instances(tmp_path, 2) as apps:
        rows = [await apps[0].store("counts", partition=number, everywhere=True).all() for number in range(4)]
        assert sorted(chain.from_iterable(rows)) == await apps[1].store("counts", everywhere=True).all()
        with pytest.raises(QueryFailed) as caught:
            await apps[0].store("counts", partition=4, everywhere=True).get("k1")
        assert caught.value.reason is FailureReason.DOES_NOT_EXIST


async def test_without_an_application_server_nothing_is_told_and_nothing_listens(tmp_path: Path) -> None:
    """A partition of such an instance is NOT_PRESENT for others, once the deadline is over."""
    async with instances(tmp_path, 2, application_server=None) as apps:
        assert [app.endpoints() for app in apps] == [(), ()]
        assert apps[0]._reach.address() == ""
        mine = {task.task.partition for task in apps[0].tasks() if task.task.subtopology == 0}
        other = next(number for number in range(4) if number not in mine)
        with pytest.raises(QueryFailed, match="without application_server") as caught:
            await apps[0].store("counts", partition=other, everywhere=True, timeout_ms=50).get("k1")
        assert caught.value.reason is FailureReason.NOT_PRESENT


async def test_a_query_waits_until_its_partition_is_elsewhere(tmp_path: Path) -> None:
    """An instance that leaves in the middle of queries costs time and no answer."""
    async with instances(tmp_path, 3) as apps:
        reader = apps[0].store("counts", everywhere=True)
        expected = await reader.all()
        closing = asyncio.create_task(apps[2].close())
        while not closing.done():
            assert [await reader.get(f"k{number}") for number in range(40)] == [10] * 40
            assert await reader.all() == expected
        await closing
