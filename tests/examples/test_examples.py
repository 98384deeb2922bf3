"""The examples do as they say."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest

from tests.waiting import PATIENCE_S

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name: str) -> ModuleType:
    """Import an example, which is in no package."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def output_of(name: str) -> str:
    """Run an example as its docstring says, with all warnings as errors; on a machine that is busy it may be told that the loop stood still."""
    done = subprocess.run(  # noqa: S603 - our own file, by our own interpreter
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stderr.splitlines() if "stood still" not in line] == []
    return done.stdout


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_header(name: str) -> None:
    """Each example says how to run it, and takes no more than 120 lines."""
    text = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    assert re.search(rf"^Run: (?:\S+=\S+ )?python examples/{name}\.py$", text, re.MULTILINE)
    assert len(text.splitlines()) <= 120


def test_ping_pong_prints_the_loser() -> None:
    """An even number of hits ends at the player that was asked first."""
    assert re.fullmatch(r"the ball fell at /table/left after 10,000 hits, [\d.]+ µs each\n", output_of("ping_pong"))


@pytest.mark.parametrize(("hops", "loser"), [(0, "/table/left"), (1, "/table/right"), (7, "/table/right"), (8, "/table/left")])
async def test_ping_pong_alternates(hops: int, loser: str) -> None:
    """The ball goes from one player to the other at each hit, and its last holder answers the ask."""
    assert await load("ping_pong").play(hops) == loser


def test_worker_pool_output_is_always_the_same() -> None:
    """The output of the pool depends neither on time nor on the assignment of jobs to workers."""
    expected = "20 results of 4 workers, 4 failed attempts, 4 restarts\njob 1: ec0850c368e8, job 20: 06cf7c8074c9\n"
    assert {output_of("worker_pool"), output_of("worker_pool")} == {expected}


@pytest.mark.parametrize("workers", [1, 3])
async def test_worker_pool_does_all_jobs(workers: int, caplog: pytest.LogCaptureFixture) -> None:
    """Each job has its result in the end, each fifth after one failure and one restart."""
    caplog.set_level(logging.CRITICAL, "actors")
    module = load("worker_pool")
    results, failures, restarts = await module.work(workers, jobs=10)
    assert results == {number: module.digest(number, 2) for number in range(1, 11)}
    assert (failures, restarts) == (2, 2)


def test_race_is_found_and_replayed() -> None:
    """The natural order hides the lost update, one seed shows it twice in the same way, and the repaired teller passes all seeds."""
    lines = output_of("find_a_race").splitlines()
    assert lines[0] == "hasty teller, natural order: passes"
    assert re.fullmatch(r"hasty teller, seed (\d+): the balance is (105|110), not 115", lines[1])
    assert lines[2] == lines[1].replace(":", " again:", 1)
    assert lines[3:] == ["repaired teller, 200 seeds: passes"]


class Gate:
    """Stand in for a store: tells when a save has begun and when `expected` have ended, and lets them end when the test says so."""

    def __init__(self, expected: int = 0) -> None:
        self.expected = expected
        self.begun = asyncio.Event()
        self.open = asyncio.Event()
        self.done = asyncio.Event()
        self.saved: list[str] = []
        self.broken = False

    async def save(self, page: str) -> None:
        self.begun.set()
        await self.open.wait()
        if self.broken:
            raise OSError("the store is broken")
        self.saved.append(page)
        if len(self.saved) == self.expected:
            self.done.set()


@contextlib.asynccontextmanager
async def client_of(app: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client,
    ):
        yield client


async def post(client: httpx.AsyncClient, page: str) -> httpx.Response:
    return await client.post("/hits", params={"page": page})


async def count(client: httpx.AsyncClient, page: str) -> httpx.Response:
    return await client.get("/hits", params={"page": page})


async def test_app_counts_hits() -> None:
    """A hit that was accepted is counted by each GET that comes later, since messages keep their order."""
    gate = Gate()
    gate.open.set()
    async with client_of(load("starlette_app").create_app(save=gate.save)) as client:
        for page in ("home", "news", "home"):
            response = await post(client, page)
            assert (response.status_code, response.json()) == (202, {"accepted": True})
        assert (await count(client, "home")).json() == {"count": 2}
        assert (await count(client, "news")).json() == {"count": 1}
        assert (await count(client, "none")).json() == {"count": 0}
    assert gate.saved == ["home", "news", "home"]


async def test_app_refuses_requests_that_it_cannot_queue() -> None:
    """With a full mailbox POST and GET answer 503 at once, and accepted requests are done when the store works again."""
    gate = Gate(expected=3)
    async with client_of(load("starlette_app").create_app(save=gate.save, capacity=2)) as client:
        assert (await post(client, "home")).status_code == 202
        await gate.begun.wait()  # the actor has taken the first; two more have room behind it
        assert [(await post(client, "home")).status_code for _ in range(3)] == [202, 202, 503]
        refused = await count(client, "home")
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
        assert "full (2 messages)" in refused.json()["error"]
        gate.open.set()
        await gate.done.wait()
        assert (await count(client, "home")).json() == {"count": 3}


async def test_app_outlives_a_failing_store(caplog: pytest.LogCaptureFixture) -> None:
    """A hit that could not be saved is lost and logged; the service goes on."""
    gate = Gate()
    gate.broken = True
    gate.open.set()
    async with client_of(load("starlette_app").create_app(save=gate.save)) as client:
        assert (await post(client, "home")).status_code == 202
        assert (await count(client, "home")).json() == {"count": 0}
        gate.broken = False
        assert (await post(client, "home")).status_code == 202
        assert (await count(client, "home")).json() == {"count": 1}
    assert ["decision: resume" in record.message for record in caplog.records] == [True]


async def test_app_ends_its_actors_with_it() -> None:
    """When the application has shut down, its actor refuses further requests."""
    app = load("starlette_app").create_app()
    async with client_of(app) as client:
        assert (await count(client, "home")).json() == {"count": 0}
    assert app.state.hits.offer("anything") is False
