"""Threads of the package's own: the loop's default executor is the user's, whose calls may keep it busy for as long as they like."""

from __future__ import annotations

import ast
import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path

import pytest

import ks_actors
from actors.testing import VirtualLoop
from ks_actors.lifecycle import in_thread, run_in_thread
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client import LoopThread
from ks_actors.log.kafka.client._addresses import connect_to_any
from ks_actors.log.kafka.client._client import KafkaClient
from tests.waiting import soon

VARIABLE = ContextVar[str]("VARIABLE")


@pytest.fixture
async def busy() -> AsyncIterator[None]:
    """Keep all threads of the loop's default executor busy until the end of the test."""
    loop, end = asyncio.get_running_loop(), threading.Event()
    loop.set_default_executor(ThreadPoolExecutor(1))
    calls = [loop.run_in_executor(None, end.wait) for _ in range(3)]
    yield
    assert not any(call.done() for call in calls)
    end.set()
    await asyncio.gather(*calls)


def defaults(path: Path) -> list[str]:
    """Return the calls in a module that use the default executor."""
    return [
        f"{path.name}:{node.lineno}"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr == "to_thread" or (node.func.attr == "run_in_executor" and ast.unparse(node.args[0]) == "None"))
    ]


def test_nothing_of_the_package_waits_for_the_users_threads() -> None:
    """No module calls `asyncio.to_thread`, or gives work to the default executor."""
    modules = list(Path(ks_actors.__file__).parent.rglob("*.py"))
    assert len(modules) > 100
    assert [found for path in modules for found in defaults(path)] == []


async def test_calls_have_threads_of_their_own(busy: None, tmp_path: Path) -> None:
    """A call runs at once, beside any number of others, and a log in a directory opens and closes."""
    all_there = threading.Barrier(20)
    await soon(asyncio.gather(*(in_thread(all_there.wait) for _ in range(19)), run_in_thread(all_there.wait)))
    async with asyncio.timeout(60), EmbeddedLog(tmp_path / "log"):
        pass


async def test_a_client_needs_no_thread_of_the_user(busy: None) -> None:
    """It looks up names, decompresses, and ends its thread of heartbeats."""
    client = KafkaClient("localhost:1", KafkaOptions(), client_id="c")
    assert await soon(asyncio.get_running_loop().run_in_executor(client.threads, sum, (1, 2))) == 3
    await client.close()
    with pytest.raises(RuntimeError, match="shut down"):
        client.threads.submit(sum, ())

    async def use(connected: socket.socket) -> None:
        connected.close()

    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await soon(connect_to_any("localhost", port, {}, use, others_may=lambda _: True, unwanted=lambda _: None))
    server.close()
    heartbeats = LoopThread("heartbeats")
    assert await heartbeats.call(asyncio.sleep(0, "beat")) == "beat"
    await soon(heartbeats.close())


async def test_a_call_has_the_context_of_its_caller_and_hands_on_its_error() -> None:
    """Tracing and the like go on in the thread; whoever is cancelled meanwhile does not wait for it."""
    VARIABLE.set("caller")
    assert await in_thread(VARIABLE.get) == "caller"
    with pytest.raises(ZeroDivisionError):
        await in_thread(divmod, 1, 0)
    began, end = threading.Event(), threading.Event()

    def hang() -> None:
        began.set()
        end.wait()
        raise SystemExit

    call = in_thread(hang)
    await in_thread(began.wait)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    end.set()


def test_a_loop_in_virtual_time_knows_of_the_call() -> None:
    """Its clock does not jump meanwhile."""

    async def test() -> float:
        begun = asyncio.get_running_loop().time()
        sleeping = asyncio.create_task(asyncio.sleep(3_600))
        await in_thread(threading.Event().wait, 0.01)
        assert not sleeping.done()
        return asyncio.get_running_loop().time() - begun

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        assert runner.run(test()) == 0
