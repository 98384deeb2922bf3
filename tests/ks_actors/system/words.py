"""Count words with stores in memory: in TopologyTestDriver, in an app, in a program. Print results and refusals."""

from __future__ import annotations

import asyncio
import signal
import sys
import tempfile
from collections.abc import Callable
from typing import Any

from ks_actors import App, Batch, ConfigError, Consumed, Grouped, InstanceState, StateLocked, StreamsBuilder, StreamsConfig, Topology
from ks_actors.cli._reload import run_reloading
from ks_actors.cli.dev._terminal import Terminal
from ks_actors.log import NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver

LINES = ["to be or not", "to be"]


def counting(tell: Callable[[str, int | None], object]) -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("lines", Consumed(STRING, STRING)).flat_map_values(str.split)
    words.group_by(lambda _, word: word, Grouped(STRING, STRING)).count().to_stream().foreach(tell)
    return builder.build()


async def in_app(directory: str, tell: Callable[[str, int | None], object]) -> None:
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("lines", 2)])
        producer = await log.producer(client_id="words")
        await producer.send([Outgoing(TopicPartition("lines", 0), Batch([None, None], [line.encode() for line in LINES], [0, 1]))])
        async with App(counting(tell), config(directory), log=log) as app:
            await app.wait_until_caught_up()


def config(directory: str, **more: Any) -> StreamsConfig:
    return StreamsConfig(application_id="words", state_dir=directory, **{"default_dsl_store": "in_memory"} | more)


def as_program(directory: str) -> None:
    """Run the app, and send the signal of Ctrl-C when it runs."""
    app = App(counting(print), config(directory, log="memory://"), topics={"lines": 2}, on_state=lambda new, _: interrupt(new))
    app.main()
    say(app.state.name)


def interrupt(new: InstanceState) -> None:
    if new is InstanceState.RUNNING:
        signal.raise_signal(signal.SIGINT)


async def twice(directory: str) -> None:
    """Start a second app with the state directory of the first."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("lines", 1)])
        async with App(counting(print), config(directory), log=log):
            await App(counting(print), config(directory), log=log).start()


async def on_disk(directory: str) -> None:
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("lines", 1)])
        async with App(counting(print), config(directory, default_dsl_store="rocksdb"), log=log) as app:
            await app.wait_until_caught_up()


def say(result: object) -> None:
    sys.stdout.write(f"{result}\n")


def refused(work: Callable[[], Any]) -> None:
    try:
        work()
    except (ConfigError, StateLocked) as error:
        say(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    counts: dict[str, int | None] = {}
    with TopologyTestDriver(counting(counts.__setitem__), {"default_dsl_store": "in_memory"}) as driver:
        lines = driver.create_input_topic("lines", STRING, STRING)
        for line in LINES:
            lines.pipe_input(None, line)
    say(counts)
    with tempfile.TemporaryDirectory() as directory:
        counts = {}
        asyncio.run(in_app(directory, counts.__setitem__))
        say(counts)
        as_program(directory)
        refused(lambda: asyncio.run(twice(directory)))
        refused(lambda: asyncio.run(on_disk(directory)))
        refused(lambda: asyncio.run(open_log(f"embedded://{directory}").start()))
        refused(lambda: asyncio.run(open_log("kafka://127.0.0.1:1").start()))
        refused(lambda: run_reloading([], []))
        refused(Terminal([], []).run)
