"""The app as its callers know it: partitions may change, and instances may be gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors import NotRunning, QueryFailed, TaskId
from ks_actors.query import Client, FailureReason, InstanceEndpoint
from ks_actors.query._reach import count
from ks_actors.query.remote import _server
from ks_actors.query.remote._messages import Ask, End, Frames, SomeRows, encode
from ks_actors.query.remote._places import Endpoint, StoreFacts
from ks_actors.serdes import LONG, STRING
from tests.ks_actors.query.remote.test_everywhere import TOKEN, instances
from tests.ks_actors.query.remote.test_security import address, asked

KEYS = [f"k{number}" for number in range(40)]
HEAD = {"authorization": f"Bearer {TOKEN}"}


def change_map(client: Client, name: str, **facts: Any) -> None:
    """Give a client another map than that of the app."""
    assert client._map is not None
    changed = msgspec.structs.replace(client._map.stores[name], **facts)
    client._map = msgspec.structs.replace(client._map, stores={**client._map.stores, name: changed})


async def test_readers_follow_a_topic_that_has_grown(tmp_path: Path) -> None:
    """An instance refuses callers that know another number of partitions, and they look again."""
    async with instances(tmp_path, 2) as apps, Client([address(apps[0])], token=TOKEN) as client:
        reader = client.store("counts", STRING, LONG)
        for partitions in (2, 5):
            for read in (reader.all, reader.approximate_num_entries, lambda: reader.get("k7")):
                change_map(client, "counts", partitions=partitions)
                client._looked_at = float("-inf")
                assert await read() in ([(key, 10) for key in sorted(KEYS)], 40, 10)
        change_map(client, "counts", partitions=2)
        client._looked_at = float("-inf")
        assert await client.store("counts", STRING, LONG, partition=3).all() == await apps[0].store("counts", partition=3, everywhere=True).all()


def test_the_tasks_of_a_grouper_may_have_gaps() -> None:
    """A scan asks for these tasks alone, and for all partitions where there is no grouper."""
    assert StoreFacts("key_value", 0, 5, "t", grouped=True, tasks=(0, 4)).numbers == (0, 4)
    assert list(StoreFacts("key_value", 0, 3, "t").numbers) == [0, 1, 2]
    assert list(StoreFacts("key_value", None, 0, "t").numbers) == [0]


async def test_a_key_of_a_grouped_store_fails_at_once(tmp_path: Path) -> None:
    """Only the grouper knows its task: another attempt would not help."""
    async with instances(tmp_path, 1) as (app,), Client([address(app)], token=TOKEN) as client:
        change_map(client, "by-time", grouped=True, tasks=(0, 1, 2, 3))
        reader = client.store("by-time", STRING, LONG)
        async with asyncio.timeout(5):
            for ask in (lambda: reader.fetch("k1", 0), lambda: reader.fetch("k1", 0, 3_000)):
                with pytest.raises(QueryFailed, match="a partition grouper decides"):
                    await ask()


@pytest.mark.parametrize("stale", [False, True])
async def test_any_instance_answers_for_a_global_store(stale: bool, tmp_path: Path) -> None:
    """One that is dead costs no answer."""
    async with instances(tmp_path, 2) as apps, Client([address(apps[0])], token=TOKEN) as client:
        assert client._map is not None
        dead = InstanceEndpoint(Endpoint("127.0.0.1", 1))
        client._map = msgspec.structs.replace(client._map, instances=(dead, *client._map.instances))
        reader = client.store("names", STRING, STRING, stale=stale)
        for _ in range(3):
            client._looked_at = float("inf")  # no news
            assert await reader.get("k1") == "one"
            assert await reader.approximate_num_entries() == 1
            assert await reader.all() == [("k1", "one")]


async def test_a_task_that_has_become_a_standby_answers_no_more(tmp_path: Path) -> None:
    """A part that was active when the request came may have been recycled, with its stores, before the read."""
    async with instances(tmp_path, 2, num_standby_replicas=1) as (app, _):
        here, local = app._reach._here(), app._local
        (first, *_), (standby, *_) = ([part for part in local.parts("counts") if part.active is active] for active in (True, False))
        assert await here.look_up(first, count, stale=False) + await here.look_up(standby, count, stale=True)
        with pytest.raises(QueryFailed, match="the task is standby on this instance by now") as caught:
            await here.look_up(standby, count, stale=False)
        assert caught.value.reason is FailureReason.NOT_ACTIVE
        assert app.owner("counts", "k1").here is (TaskId(0, app.owner("counts", "k1").partition) in {task.task for task in app.tasks()})


async def test_an_app_that_starts_or_ends_is_busy() -> None:
    """It has no map to tell; callers try again."""

    def ended() -> Any:
        raise NotRunning("the app is CREATED")

    server = _server.QueryServer(None, ended, TOKEN)  # type: ignore[arg-type]
    await server.start(Endpoint("127.0.0.1", 0), None)
    assert (await asked(str(server.endpoint), HEAD, method="GET", path="/query/v2/endpoints"))[0] == 503
    await server.close()


async def test_a_scan_sends_its_rows_before_they_are_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large rows do not fill the memory of both sides."""
    monkeypatch.setattr(_server, "_AT_ONCE_BYTES", 1)
    monkeypatch.setattr("ks_actors.query._scan.SLICE_SECONDS", 0)
    ask = Ask("counts", "scan", [0, 1, 2, 3], None, [], committed=False, low=b"", high=b"\xff", reverse=False)
    async with instances(tmp_path, 1) as (app,):
        status, body = await asked(address(app), HEAD, encode(ask))
        assert status == 200
        *some, end = Frames().feed(body)
        assert [len(each.rows) for each in some if isinstance(each, SomeRows)] == [16, 16, 8]
        assert end == End(40)
