"""A writer for dead letters that belong to no commit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogTimeout, ProduceFailed, ProductionFailed
from ks_actors.lifecycle import LogRetries
from ks_actors.log import Outgoing
from ks_actors.records import Batch, TopicPartition
from ks_actors.records import partition as default_partition
from ks_actors.runtime.output._coalesce import split
from ks_actors.task import UNKNOWN_PARTITION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.config import DeadLetter, StreamsConfig
    from ks_actors.lifecycle import Closing
    from ks_actors.log import Log, Producer
    from ks_actors.runtime.output._rejected_records import RejectedRecords
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import TopicSizes


@final
class DeadLetterWriter:
    """Write dead letters with a dedicated producer, made for the first letter.

    These letters are in no transaction, and no rollback discards them. They come from global
    tables, where records are final once read, and from records that end their task. A log that does
    not answer is retried for `task_timeout_ms`. The production handler decides about letters that
    the log rejects.
    """

    def __init__(
        self,
        config: StreamsConfig,
        sizes: TopicSizes,
        rejected: RejectedRecords,
        log: Log,
        metrics: Metrics,
        closing: Closing,
    ) -> None:
        self._config = config
        self._sizes = sizes
        self._rejected = rejected
        self._log = log
        self._metrics = metrics
        self._patience = LogRetries(config.task_timeout_ms / 1000, closing)
        self._producer: Producer | None = None

    async def write(self, letters: Sequence[Outgoing]) -> None:
        """Write all letters; return when the log has them.

        Raises ProductionFailed, and the log's errors. If the call is cancelled or fails, its
        letters may or may not have been written.
        """
        waiting = await self._placed(letters)
        if self._producer is None:
            topics = {outgoing.partition.topic for outgoing in waiting}
            self._producer = await self._log.producer(
                client_id=f"{self._config.client_id}-letters", topics=topics
            )
        while waiting:
            send = partial(self._send, self._producer, waiting)
            waiting = await self._patience.ask(
                "to write dead letters to", send, {outgoing.partition for outgoing in waiting}
            )

    async def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            await self._producer.close()

    async def _send(self, producer: Producer, waiting: list[Outgoing]) -> list[Outgoing]:
        """Send letters; return the replacements for rejected letters.

        Raises LogTimeout when the call must be repeated.
        """
        refused: dict[TopicPartition, Exception] = {}
        try:
            await producer.send(waiting)
        except ProduceFailed as error:
            refused.update(error.errors)
        written = [outgoing for outgoing in waiting if outgoing.partition not in refused]
        self._metrics.produced += sum(len(outgoing.batch) for outgoing in written)
        # Change the list in place: a repeated call after LogTimeout must not send written letters
        # again.
        waiting[:] = [outgoing for outgoing in waiting if outgoing.partition in refused]
        late = next((why for why in refused.values() if isinstance(why, LogTimeout)), None)
        if late is not None:
            raise late
        rest: list[Outgoing] = []
        letters: list[DeadLetter] = []
        for partition, why in refused.items():
            found = self._rejected.refused(
                partition,
                [outgoing.batch for outgoing in waiting if outgoing.partition == partition],
                why,
            )
            if found is None:
                topic, number = partition
                raise ProductionFailed(
                    f"the log refused dead letters: {why}", topic=topic, partition=number
                ) from why
            rest += found.rest
            letters += [letter for _, its_letters in found.dropped for letter in its_letters]
        return rest + await self._placed([_as_outgoing(letter) for letter in letters])

    async def _placed(self, letters: Sequence[Outgoing]) -> list[Outgoing]:
        """Return the letters with their partitions, also for topics unknown at the start."""
        sizes = self._sizes
        unknown = {
            outgoing.partition.topic
            for outgoing in letters
            if outgoing.partition.partition == UNKNOWN_PARTITION
        }
        if missing := {topic for topic in unknown if not sizes(topic)}:
            described = await self._log.describe_topics(missing, configs=False)
            sizes.know({name: topic.partitions for name, topic in described.items()})
        placed: list[Outgoing] = []
        for outgoing in letters:
            topic, number = outgoing.partition
            # Let the log report a missing topic.
            placed += (
                [outgoing]
                if number != UNKNOWN_PARTITION
                else split(topic, outgoing.batch, sizes(topic) or 1, default_partition)
            )
        return placed


def _as_outgoing(letter: DeadLetter) -> Outgoing:
    return Outgoing(
        TopicPartition(letter.topic, UNKNOWN_PARTITION),
        Batch([letter.key], [letter.value], [letter.timestamp], [letter.headers]),
    )
