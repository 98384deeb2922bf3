"""The server of an app's page."""

from __future__ import annotations

import asyncio
import gc
import json
import signal
import socket
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ks_actors.web import serve_page, serve_probes
from tests.ks_actors.web.helpers import TOKEN, Visits, fresh_log, visiting
from tests.waiting import PATIENCE_S, until


async def test_a_reader_of_events_does_not_keep_the_server_from_ending(tmp_path: Path) -> None:
    """Its stream has a view each second, and ends when the page does; the program's signal handlers are left alone."""
    log = await fresh_log()
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with visiting(log, tmp_path, Visits()) as app, httpx.AsyncClient(timeout=PATIENCE_S) as client:
        async with serve_page(app) as page:
            assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
            async with client.stream("GET", f"{page.url}api/events") as events:
                assert events.headers["content-type"].startswith("text/event-stream")
                lines = events.aiter_lines()
                views: list[Any] = []
                async for line in lines:
                    if line.startswith("data: "):
                        views.append(json.loads(line.removeprefix("data: ")))
                    if len(views) == 2:
                        break
                assert views[1]["at_ms"] - views[0]["at_ms"] >= 900
                async with asyncio.timeout(PATIENCE_S):
                    await page.close()
                    assert [line async for line in lines if line.startswith("data: ")] == []
        with pytest.raises(httpx.ConnectError):
            await client.get(page.url)
    await log.close()


async def test_a_reader_that_goes_away_leaves_nothing_behind(tmp_path: Path) -> None:
    """Neither a task nor a look at the app, whose page goes on; the garbage collector has nothing to end."""
    log = await fresh_log()
    gc.disable()
    try:
        async with visiting(log, tmp_path, Visits()) as app, serve_page(app) as page:
            for _ in range(2):
                async with httpx.AsyncClient(timeout=PATIENCE_S) as client, client.stream("GET", f"{page.url}api/events") as events:
                    async for line in events.aiter_lines():
                        if line.startswith("data: "):
                            break
                    assert _tasks_of_events()
                await until(lambda: not _tasks_of_events())
    finally:
        gc.enable()
    await log.close()


def _tasks_of_events() -> list[str]:
    """Return the tasks of streams and of looks at the app."""
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return [name for name in names if name.startswith(("Sampler.", "Queue.get", "Event.wait", "Events."))]


async def test_it_listens_on_loopback_and_for_loopback_names_alone(tmp_path: Path) -> None:
    """Port 0 is any free one; its link has the token behind a hash; a foreign host name is refused there, and not elsewhere."""
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits()) as app, httpx.AsyncClient(timeout=PATIENCE_S) as client:
        async with serve_page(app, token="a+b&c=/ d\n") as page:  # noqa: S106 - it guards nothing
            assert parse_qs(urlsplit(page.link).fragment) == {"token": ["a+b&c=/ d"]}
        async with serve_page(app, token=TOKEN) as page:
            assert page.url.startswith("http://127.0.0.1:")
            assert parse_qs(urlsplit(page.link).fragment) == {"token": [TOKEN]}
            assert repr(page) == f"<PageServer at {page.url}>"
            assert (await client.get(f"{page.url}ready")).status_code == 200
            assert (await client.get(f"{page.url}ready", headers={"host": "ops.example"})).status_code == 400
        async with serve_page(app, host="127.0.0.2") as page:
            assert page.link == page.url
            assert (await client.get(f"{page.url}ready")).status_code == 200
            assert (await client.get(f"{page.url}ready", headers={"host": "ops.example"})).status_code == 400
        async with serve_page(app, host="0.0.0.0") as page:  # noqa: S104 - for a moment, and it shows nothing of worth
            assert (await client.get(f"{page.url}ready", headers={"host": "ops.example"})).status_code == 200
    await log.close()


async def test_an_address_that_is_taken_is_an_error(tmp_path: Path) -> None:
    """Before the block begins, and the app goes on."""
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits()) as app:
        with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
            async with serve_page(app, port=taken.getsockname()[1]):
                raise AssertionError
        assert app.health().ready
    await log.close()


async def test_too_many_readers_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 with the number of those that there are; the others go on."""
    monkeypatch.setattr("ks_actors.web._events._MOST_READERS", 1)
    log = await fresh_log()
    async with (
        visiting(log, tmp_path, Visits()) as app,
        serve_page(app) as page,
        httpx.AsyncClient(timeout=PATIENCE_S) as client,
        client.stream("GET", f"{page.url}api/events") as first,
    ):
        assert first.status_code == 200
        async for line in first.aiter_lines():
            if line.startswith("data: "):
                break
        second = await client.get(f"{page.url}api/events")
        assert second.status_code == 503
        assert second.json()["error"] == "there are 1 readers already"
    await log.close()


async def test_probes_are_served_before_the_start_and_show_no_records(tmp_path: Path) -> None:
    """An orchestrator asks from the first moment, from another host, by any name; the rest of the API is not there."""
    log = await fresh_log()
    app = visiting(log, tmp_path, Visits())
    async with serve_probes(app) as address, httpx.AsyncClient(base_url=address, headers={"host": "pod-7"}, timeout=PATIENCE_S) as client:
        assert [(await client.get(path)).status_code for path in ("health", "ready")] == [200, 503]
        async with app:
            await app.wait_until_caught_up()
            assert [(await client.get(path)).status_code for path in ("health", "ready", "metrics")] == [200, 200, 200]
            for path in ("", "api/tasks", "api/stores", "api/dead-letters", "api/events"):
                assert (await client.get(path)).status_code == 404
            assert (await client.post("api/pause")).status_code == 404
        assert [(await client.get(path)).status_code for path in ("health", "ready")] == [503, 503]
    await log.close()
