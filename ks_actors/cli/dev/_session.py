"""One run of an app on an embedded log, with the commands that a person or a script gives."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, final

import click

from ks_actors._errors import KsActorsError
from ks_actors.app import plan_app_topics
from ks_actors.cli._output import show, tell
from ks_actors.cli.dev._forms import to_bytes
from ks_actors.cli.dev._tails import CLIENT, Tails
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.records import Batch, partition
from ks_actors.serdes import needs_to_write
from ks_actors.testing import topic_serdes
from ks_actors.topology import SourceNode

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from ks_actors.app import App
    from ks_actors.cli.dev._tails import Line
    from ks_actors.log import Log, Producer
    from ks_actors.serdes import MutableHeaders

HELP: Final = """\
send TOPIC [KEY=]VALUE  write a record; structured types as JSON; KEY= deletes
tail TOPIC              print the topic from its begin, and what comes
topics                  list the topics of the app
help                    print this
quit                    close the app, and end"""
_CAUGHT_UP_MS: Final = 3_600_000
# Text before the first =, unless the value is JSON.
_KEYED: Final = re.compile(r"(?P<key>[^={\[\"]*)=(?P<value>.*)", re.DOTALL)
_SHOWN_USES: Final = {"sink", "source and sink", "dead letters"}


class CommandError(Exception):
    """A command that cannot be obeyed; the text says why."""


@final
class Session:
    """Run an app, obey commands, and print the records of its output topics."""

    def __init__(self, app: App, log: Log, partitions: int) -> None:
        self._app = app
        self._log = log
        self._partitions = partitions
        self._turn = 0
        self._producer: Producer | None = None
        self._tails = Tails(app, log, _print)
        self.refused: int = 0
        """The number of commands that could not be obeyed."""

    async def run(self) -> None:
        """Run until the commands end, or until the app does; raises the error that ended it.

        After the last command the app processes all input. Cancelling closes the app.
        """
        uses = await self._make_topics()
        shown = sorted(name for name, use in uses.items() if use in _SHOWN_USES)
        await self._tails.add(shown, "end")
        tailing = asyncio.create_task(self._tails.run())
        try:
            async with self._app as app:
                reads = sorted(
                    name for name, use in uses.items() if use not in {"sink", "dead letters"}
                )
                read, written = (", ".join(each) or "no topic yet" for each in (reads, shown))
                tell(f"it reads {read} and writes {written}; try help")
                obeying = asyncio.create_task(self._obey())
                running = asyncio.create_task(app.run())
                try:
                    await asyncio.wait({obeying, running, tailing}, return_when="FIRST_COMPLETED")
                    if obeying.done() and obeying.result():
                        await app.wait_until_caught_up(timeout_ms=_CAUGHT_UP_MS)
                    for each in (running, tailing):
                        if each.done():
                            each.result()
                finally:
                    obeying.cancel()
                    running.cancel()
                    await asyncio.wait({obeying, running})
        finally:
            tailing.cancel()
            await asyncio.wait({tailing})
            await self._tails.finish()
            if self._producer is not None:
                await self._producer.close()

    async def _make_topics(self) -> Mapping[str, str]:
        """Make the missing topics that the app reads and writes; return the uses by topic."""
        app = self._app
        plans = await plan_app_topics(
            app.topology, app.config, self._log, app._topics, app._planning
        )
        outside = [each for each in plans if not each.internal]
        await self._log.create_topics(
            [
                NewTopic(each.topic, each.partitions or self._partitions)
                for each in outside
                if each.state == "missing"
            ]
        )
        return {each.topic: each.use for each in outside}

    async def _obey(self) -> bool:
        """Obey commands to the end; return whether the rest of the input is to be processed."""
        async for line in _lines():
            name, _, rest = line.strip().partition(" ")
            if name == "quit":
                return False
            if not name or name.startswith("#"):
                continue
            try:
                await self._do(name, rest.strip())
            except (CommandError, KsActorsError) as error:
                self.refused += 1
                tell(f"{line.strip()}: {error}")
        return True

    async def _do(self, name: str, rest: str) -> None:
        match name:
            case "send":
                await self._send(rest)
            case "tail":
                await self._check(rest)
                await self._tails.add([rest], "begin")
            case "topics":
                await self._list()
            case "help":
                tell(HELP)
            case _:
                raise CommandError("there are the commands send, tail, topics, help and quit")

    async def _send(self, rest: str) -> None:
        topic, _, text = rest.partition(" ")
        if not text:
            raise CommandError("give send TOPIC [KEY=]VALUE")
        count = await self._check(topic)
        found = _KEYED.match(text)
        key, value = (None, text) if found is None else (found["key"] or None, found["value"])
        of_keys, of_values = topic_serdes(self._app.topology, self._app.config, topic, None, None)
        await needs_to_write(topic, of_keys, of_values).meet()
        headers: MutableHeaders = []
        try:
            data = None if key is None else to_bytes(key, of_keys, topic, headers, is_key=True)
            # A key without a value is a deletion.
            deleted = key is not None and not value
            content = None if deleted else to_bytes(value, of_values, topic, headers)
        except ValueError as error:
            raise CommandError(str(error)) from error
        number = self._turn % count if data is None else partition(data, count)
        self._turn += data is None
        if self._producer is None:
            self._producer = await self._log.producer(client_id=CLIENT)
        place = TopicPartition(topic, number)
        batch = Batch(
            [data], [content], [time.time_ns() // 1_000_000], [tuple(headers)] if headers else None
        )
        await self._producer.send([Outgoing(place, batch)])

    async def _check(self, topic: str) -> int:
        """Return the partitions of a topic; make a topic that a pattern of the app matches.

        Raises CommandError for another missing topic.
        """
        described = await self._log.describe_topics(configs=False)
        if topic in described:
            return described[topic].partitions
        nodes = self._app.topology.nodes.values()
        patterns = [node.pattern for node in nodes if isinstance(node, SourceNode) and node.pattern]
        if any(pattern.fullmatch(topic) for pattern in patterns):
            await self._log.create_topics([NewTopic(topic, self._partitions)])
            return self._partitions
        near = get_close_matches(topic, described, 1)
        hint = (
            f"; did you mean {near[0]}?" if near else f": there are {', '.join(sorted(described))}"
        )
        raise CommandError(f"there is no topic {topic!r}{hint}")

    async def _list(self) -> None:
        app = self._app
        plans = await plan_app_topics(app.topology, app.config, self._log, app._topics)
        rows: list[dict[str, Any]] = []
        for each in plans:
            places = [TopicPartition(each.topic, number) for number in range(each.partitions or 0)]
            begins = await self._log.begin_offsets(places)
            ends = await self._log.end_offsets(places, IsolationLevel.READ_COMMITTED)
            rows.append(
                {
                    "topic": each.topic,
                    "use": each.use,
                    "partitions": each.partitions,
                    "offsets": sum(ends.values()) - sum(begins.values()),
                }
            )
        show(rows, ("topic", "use", "partitions", "offsets"), as_json=False)


async def _lines() -> AsyncIterator[str]:
    """Yield the lines of stdin; a thread reads them, because stdin may be any file."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def read() -> None:
        try:
            for line in sys.stdin or ():
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, None)
        except RuntimeError:
            pass  # the loop is closed: the session has ended without the rest

    # A daemon: nothing interrupts the wait for a line.
    threading.Thread(target=read, daemon=True).start()
    while (line := await lines.get()) is not None:
        yield line


def _print(line: Line) -> None:
    colored = False if "NO_COLOR" in os.environ else True if "FORCE_COLOR" in os.environ else None
    if line.dead:
        click.secho(f"{line.topic}\t{line.rest}", fg="red", color=colored)
    else:
        click.echo(f"{click.style(line.topic, fg='cyan')}\t{line.rest}", color=colored)
