"""The printing of records as they come."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, final

from ks_actors._errors import OffsetOutOfRange
from ks_actors.cli._output import printable
from ks_actors.cli.dev._forms import to_text
from ks_actors.letters import letter_of
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.serdes import NeedsToRead, reader
from ks_actors.testing import topic_serdes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from ks_actors.app import App
    from ks_actors.log import Fetched, Log

CLIENT: Final = "ks-actors-dev"
_WAIT_MS: Final = 60_000
_COMMITTED: Final = IsolationLevel.READ_COMMITTED


class Line(NamedTuple):
    """A record as text; `dead` says that it is a dead letter."""

    topic: str
    rest: str
    dead: bool


@final
class Tails:
    """Print the committed records of topics, those of a partition in their order."""

    def __init__(self, app: App, log: Log, show: Callable[[Line], None]) -> None:
        self._app = app
        self._log = log
        self._show = show
        self._fetcher = log.fetcher(client_id=CLIENT, isolation=_COMMITTED)
        self._places: list[TopicPartition] = []
        # Fetched, and not shown yet.
        self._found: deque[Fetched] = deque()
        self._decoders: dict[str, tuple[Any, Any, NeedsToRead]] = {}

    async def add(self, topics: Iterable[str], start: Literal["begin", "end"]) -> None:
        """Print these topics from their begin or end on, also if they are printed already."""
        described = await self._log.describe_topics(topics, configs=False)
        places = [
            TopicPartition(name, number)
            for name, each in described.items()
            for number in range(each.partitions)
        ]
        offsets = (
            await self._log.begin_offsets(places)
            if start == "begin"
            else await self._log.end_offsets(places, _COMMITTED)
        )
        now = {each: self._fetcher.position(each) for each in self._places}
        self._fetcher.assign({**now, **offsets})
        self._places = [*{*self._places, *places}]

    async def run(self) -> None:
        """Print until cancelled."""
        while True:
            await self._fetch(_WAIT_MS)

    async def finish(self) -> None:
        """Print the records that the log has now, and end."""
        try:
            while await self._fetch(0):
                pass
        finally:
            await self._fetcher.close()

    async def _fetch(self, wait_ms: int) -> bool:
        if not self._found:
            try:
                self._found.extend(await self._fetcher.fetch(max_wait_ms=wait_ms))
            except OffsetOutOfRange as error:
                # Records of a repartition topic are deleted once they are processed.
                self._fetcher.seek(error.partition, error.begin)
                return True
        shown = bool(self._found)
        while self._found:
            fetched = self._found.popleft()
            *_, needs = self._decoder(fetched.partition.topic)
            try:
                await needs.meet(fetched.batch)
            except asyncio.CancelledError:
                # `finish` prints it: the fetcher does not return it again.
                self._found.appendleft(fetched)
                raise
            for line in self._lines(fetched):
                self._show(line)
        return shown

    def _lines(self, fetched: Fetched) -> Iterator[Line]:
        topic, batch = fetched.partition.topic, fetched.batch
        read_key, read_value, _ = self._decoder(topic)
        letters = topic == self._app.config.errors_dead_letter_queue_topic_name
        for at in range(len(batch)):
            headers = batch.headers[at] if batch.headers is not None else ()
            left = list(headers)
            key = to_text(batch.keys[at], read_key, left)
            rest = f"{key}\t{to_text(batch.values[at], read_value, left)}"
            record = (batch.keys[at], batch.values[at], batch.timestamps[at], headers)
            if letters:
                letter = letter_of(fetched.partition, batch.offsets[at], record, redriven=False)
                if letter.exception is not None:
                    source = f"{letter.source}@{letter.source_offset}"
                    why = printable(f"{letter.exception}: {letter.message}", keep="")
                    rest += f"\t{why} ({source})"
            yield Line(topic, rest, letters)

    def _decoder(self, topic: str) -> tuple[Any, Any, NeedsToRead]:
        if topic not in self._decoders:
            key, value = topic_serdes(self._app.topology, self._app.config, topic, None, None)
            self._decoders[topic] = (
                None if key is None else reader(key, topic, is_key=True),
                None if value is None else reader(value, topic),
                NeedsToRead(topic, key, value),
            )
        return self._decoders[topic]
