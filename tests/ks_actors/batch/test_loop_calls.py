"""Reads of another thread's event loop: they end when they are given up, and leave nothing open."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ks_actors import LogClosed, LogError, StreamsBuilder, StreamsConfig
from ks_actors.batch import _reading
from ks_actors.batch._loop_calls import GivenUp, LoopCalls
from ks_actors.batch._reading import LogAddress, LogRange, LogReader, SharedLog
from ks_actors.batch.tables._export import export
from ks_actors.lifecycle import run_in_thread
from ks_actors.log import Fetcher, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.log.helpers import batch
from tests.waiting import PATIENCE_S

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def other_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Yield a loop that runs in another thread, or has been stopped."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


async def filled(directory: Path | None = None) -> EmbeddedLog:
    """Return a log with two partitions of four records each."""
    log = EmbeddedLog(directory)
    await log.start()
    await log.create_topics([NewTopic("t", 2)])
    producer = await log.producer(client_id="p")
    for _ in range(4):
        await producer.send([Outgoing(where, batch(b"a")) for where in (FIRST, SECOND)])
    await producer.close()
    return log


async def test_a_read_that_is_given_up_while_it_begins_closes_its_fetcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that makes it may run on though nobody waits for it any more."""
    log = await filled()
    made: list[Fetcher] = []
    make = log.fetcher

    def fetcher(**settings: Any) -> Fetcher:
        made.append(make(**settings))
        return made[-1]

    monkeypatch.setattr(log, "fetcher", fetcher)
    shared = SharedLog(log, asyncio.get_running_loop())
    submitted = threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    def noted(*work: Any) -> Any:
        future = submit(*work)
        submitted.set()
        return future

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", noted)
    reading = asyncio.create_task(run_in_thread(lambda: list(shared.read(LogRange("t", 0, 0, 9))), shared.give_up))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    # The loop stands still until the thread has asked it for the fetcher.
    assert submitted.wait(PATIENCE_S)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await asyncio.sleep(0)
    assert made
    for each in made:
        with pytest.raises(LogClosed, match="is closed"):
            await each.fetch(max_wait_ms=0, max_records=1)
    await log.close()


def test_a_read_goes_on_when_another_one_has_opened_the_log_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads of one reader take turns; the one that finds cleaned files closes the fetchers of all."""
    asyncio.run(_close(tmp_path))
    read_from = _reading._read_from
    failed: list[int] = []

    def once(log: Any, calls: Any, what: LogRange, at: int) -> Generator[Any, None, None]:
        for found in read_from(log, calls, what, at):
            yield found
            if what.partition == 0 and not failed:
                failed.append(at)
                raise LogError("the files have changed")

    monkeypatch.setattr(_reading, "_read_from", once)
    monkeypatch.setattr(_reading, "_AT_ONCE", 1)
    with LogReader(LogAddress(f"embedded://{tmp_path}")) as reader:
        first, second = reader.read(LogRange("t", 0, 0, 4)), reader.read(LogRange("t", 1, 0, 4))
        seen = [[*next(first).offsets], [*next(second).offsets]]
        seen += [[*next(first).offsets]]
        assert failed
        seen += [[*next(second).offsets]]
        rest = [[*some.offsets] for reads in (first, second) for some in reads]
    assert seen == [[0], [0], [1], [1]]
    assert rest == [[2], [3], [2], [3]]


async def _close(directory: Path) -> None:
    await (await filled(directory)).close()


async def test_a_start_that_is_cancelled_leaves_no_thread_and_ends_at_once() -> None:
    """An export that connects to a server that never answers is given up long before its timeout of an hour."""
    accepted = asyncio.Event()

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted.set()
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    builder = StreamsBuilder()
    builder.stream("t").to("u")
    config = StreamsConfig(application_id="a", bootstrap_servers=f"127.0.0.1:{port}", default_api_timeout_ms=3_600_000)
    exporting = asyncio.create_task(export(builder.build(), config, "/nowhere", None, topics=["t"]))
    async with asyncio.timeout(PATIENCE_S):
        await accepted.wait()
        exporting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await exporting
    server.close()
    assert "ks-batch-log" not in [thread.name for thread in threading.enumerate()]


def test_a_reader_that_is_closed_twice_or_never_opened_ends() -> None:
    """A second close does nothing."""
    reader = LogReader(LogAddress("kafka://127.0.0.1:1"))
    reader.close()
    reader.close()


def test_a_thread_does_not_wait_for_a_loop_that_has_stopped(other_loop: asyncio.AbstractEventLoop) -> None:
    """A caller may stop its loop without ending the calls, as `run_until_complete` does at Ctrl-C."""
    calls = LoopCalls(other_loop)
    began = threading.Event()

    async def stop_within() -> None:
        began.set()
        other_loop.stop()
        await asyncio.Event().wait()

    with pytest.raises(GivenUp):
        calls.run(stop_within())
    assert began.is_set()


def test_calls_after_the_end_are_refused_and_ends_are_run(other_loop: asyncio.AbstractEventLoop) -> None:
    """The end of a resource runs although the calls have been ended; nobody waits for it."""
    calls = LoopCalls(other_loop)
    closed = threading.Event()

    async def close() -> None:
        closed.set()

    calls.end()
    calls.end()
    with pytest.raises(GivenUp, match="cancelled"):
        calls.run(close())
    assert not closed.is_set()
    calls.finish(close())
    assert closed.wait(PATIENCE_S)


def test_a_closed_loop_is_no_error_for_an_end() -> None:
    """It has ended its tasks already."""
    loop = asyncio.new_event_loop()
    loop.close()
    calls = LoopCalls(loop)

    async def close() -> None:
        pytest.fail("nothing runs it")

    calls.finish(close())
    with pytest.raises(GivenUp, match="its event loop has ended"):
        calls.run(close())
