"""Answers of standbys, and of instances that come and go."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ks_actors import NotRunning, QueryFailed, StreamsConfig
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.query import Client, FailureReason
from ks_actors.query.remote._caller import Unreachable
from ks_actors.query.remote._everywhere import hedged
from ks_actors.serdes import LONG, STRING
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.query.remote.network import Network
from tests.ks_actors.query.remote.test_everywhere import TOKEN, instances
from tests.ks_actors.query.remote.test_monotonic import OPTIONS, counting


def stale_run(monkeypatch: pytest.MonkeyPatch, *, standbys: int) -> list[Any]:
    async def run(first: AppHarness) -> list[Any]:
        loop = asyncio.get_running_loop()
        async with first.another() as second, first.another() as third:
            for _ in range(3):
                await first.produce("words", "k0", "word")
            await first.caught_up()
            await asyncio.sleep(5)
            owner = first.app.owner("counts", "k0")
            assert len(owner.standbys) == standbys
            by_address = {each.app._reach.address(): each for each in (first, second, third)}
            asker = next(each for address, each in by_address.items() if address not in {str(owner.active), *map(str, owner.standbys)})
            await by_address[str(owner.active)].crash()
            began = loop.time()
            found: list[Any] = []
            for stale in (True, False):
                try:
                    found.append(await asker.app.store("counts", everywhere=True, stale=stale, timeout_ms=500).get("k0"))
                except QueryFailed as failed:
                    found.append(failed.reason)
                found.append(loop.time() - began < 0.2)
            found.append(await asker.app.store("counts", everywhere=True, timeout_ms=60_000).get("k0"))
            return found

    Network(monkeypatch)
    return run_app(run, counting(), num_standby_replicas=standbys, **OPTIONS)


def test_a_standby_answers_stale_queries_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries that may not be stale wait for the group to move the task, as do all without standbys."""
    absent = FailureReason.NOT_PRESENT
    assert stale_run(monkeypatch, standbys=1) == [3, True, absent, False, 3]


async def test_of_several_ways_the_first_answer_counts() -> None:
    """The next way begins when one fails, or after 50 ms; others are cancelled. If all fail, it is the first one's error."""
    log: list[str] = []

    async def way(name: str, seconds: float, error: Exception | None = None) -> str:
        log.append(f"{name} begins")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            log.append(f"{name} cancelled")
            raise
        if error is not None:
            raise error
        return name

    first, second = Unreachable("first"), Unreachable("second")
    assert await hedged([lambda: way("a", 0), lambda: way("b", 0)]) == "a"
    assert await hedged([lambda: way("c", 9), lambda: way("d", 0)]) == "d"
    assert await hedged([lambda: way("e", 0, first), lambda: way("f", 0)]) == "f"
    assert log == ["a begins", "c begins", "d begins", "c cancelled", "e begins", "f begins"]
    with pytest.raises(Unreachable, match="first"):
        await hedged([lambda: way("g", 0.1, first), lambda: way("h", 0, second)])
    with pytest.raises(TypeError):
        await hedged([lambda: way("i", 0, TypeError()), lambda: way("j", 0)])


async def test_a_client_finds_instances_by_their_group(tmp_path: Path) -> None:
    """It needs no address, and follows the group when all instances are replaced."""
    async with instances(tmp_path, 2) as apps:
        config = StreamsConfig(application_id="app", query_token=TOKEN)
        async with Client.of_group(config, log=apps[0].log) as client:
            assert "group app" in repr(client)
            assert {str(one.endpoint) for one in client.endpoints()} == {app._reach.address() for app in apps}
            assert len(await client.store("counts", STRING, LONG).all()) == 40
            await apps[1].close()
            assert len(await client.store("counts", STRING, LONG).all()) == 40
            assert len(client.endpoints()) == 1
            reader = client.store("counts", STRING, LONG)
        assert client.endpoints() == ()
        with pytest.raises(NotRunning, match="inside `async with Client"):
            await reader.get("k1")
        async with EmbeddedLog() as other:
            with pytest.raises(QueryFailed, match="no instance answers: no address is known"):
                await Client.of_group(config, log=other, timeout_ms=10).__aenter__()


async def test_an_app_that_has_ended_answers_nothing(tmp_path: Path) -> None:
    """Readers of it raise NotRunning, and its address is free."""
    async with instances(tmp_path, 1) as (app,):
        reader, address = app.store("counts", everywhere=True), app._reach.address()
        await app.close()
        with pytest.raises(NotRunning):
            await reader.get("k1")
        for of_the_map in (lambda: app.owner("counts", "k1"), app.endpoints):
            with pytest.raises(NotRunning):
                of_the_map()
        with pytest.raises(QueryFailed, match="no instance answers"):
            await Client([address], token=TOKEN, timeout_ms=10).__aenter__()
