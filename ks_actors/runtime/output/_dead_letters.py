"""Where dead letters are written that belong to no commit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from ks_actors._errors import LogTimeout, ProduceFailed, ProductionFailed
from ks_actors.lifecycle import LogRetries
from ks_actors.log import Outgoing
from ks_actors.records import Batch, TopicPartition
from ks_actors.records import partition as default_partition
from ks_actors.runtime.output._coalesce import split
from ks_actors.runtime.output._rejected_records import RejectedRecords
from ks_actors.task import UNKNOWN_PARTITION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.config import DeadLetter
    from ks_actors.lifecycle import Closing
    from ks_actors.log import Log, Producer
    from ks_actors.runtime.shared import Metrics
    from ks_actors.task import Environment


@final
class Letters:
    """Write dead letters with a producer of their own, which is made when the first one comes.

    They are in no transaction, and no rollback takes them back. So are those of global tables, as what these have read is final at once, and those of
    a record that ends its task. A log that does not answer is asked again for `task_timeout_ms`. The production handler is asked about letters that
    it refuses.
    """

    def __init__(self, setup: Environment, log: Log, metrics: Metrics, closing: Closing) -> None:
        self._setup = setup
        self._log = log
        self._metrics = metrics
        self._patience = LogRetries(setup.config.task_timeout_ms / 1000, closing)
        self._production = RejectedRecords(setup, metrics)
        self._producer: Producer | None = None

    async def write(self, letters: Sequence[Outgoing]) -> None:
        """Write them all; return when the log has them. Raises ProductionFailed, and what the log raises.

        Those of a call that is cancelled, or fails, may be there or not.
        """
        waiting = await self._placed(letters)
        if self._producer is None:
            topics = {outgoing.partition.topic for outgoing in waiting}
            self._producer = await self._log.producer(client_id=f"{self._setup.config.client_id}-letters", topics=topics)
        while waiting:
            send = partial(self._send, self._producer, waiting)
            waiting = await self._patience.ask("to write dead letters to", send, {outgoing.partition for outgoing in waiting})

    async def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            await self._producer.close()

    async def _send(self, producer: Producer, waiting: list[Outgoing]) -> list[Outgoing]:
        """Send these; return what is to be sent in place of those that were refused. Raises LogTimeout for the call to be made again."""
        refused: dict[TopicPartition, Exception] = {}
        try:
            await producer.send(waiting)
        except ProduceFailed as error:
            refused.update(error.errors)
        written = [outgoing for outgoing in waiting if outgoing.partition not in refused]
        self._metrics.produced += sum(len(outgoing.batch) for outgoing in written)
        waiting[:] = [outgoing for outgoing in waiting if outgoing.partition in refused]
        late = next((why for why in refused.values() if isinstance(why, LogTimeout)), None)
        if late is not None:
            raise late
        rest: list[Outgoing] = []
        letters: list[DeadLetter] = []
        for partition, why in refused.items():
            found = self._production.refused(partition, [outgoing.batch for outgoing in waiting if outgoing.partition == partition], why)
            if found is None:
                topic, number = partition
                raise ProductionFailed(f"the log refused dead letters: {why}", topic=topic, partition=number) from why
            rest += found.rest
            letters += [letter for _, told in found.dropped for letter in told]
        return rest + await self._placed([_as_outgoing(letter) for letter in letters])

    async def _placed(self, letters: Sequence[Outgoing]) -> list[Outgoing]:
        """Return them with their partitions, of topics too that nobody knew when the app was started."""
        sizes = self._setup.partitions
        unknown = {outgoing.partition.topic for outgoing in letters if outgoing.partition.partition == UNKNOWN_PARTITION}
        if missing := {topic for topic in unknown if not sizes(topic)}:
            described = await self._log.describe_topics(missing, configs=False)
            sizes.know({name: topic.partitions for name, topic in described.items()})
        placed: list[Outgoing] = []
        for outgoing in letters:
            topic, number = outgoing.partition
            # A topic that does not exist is the log's to complain about.
            placed += [outgoing] if number != UNKNOWN_PARTITION else split(topic, outgoing.batch, sizes(topic) or 1, default_partition)
        return placed


def _as_outgoing(letter: DeadLetter) -> Outgoing:
    return Outgoing(TopicPartition(letter.topic, UNKNOWN_PARTITION), Batch([letter.key], [letter.value], [letter.timestamp], [letter.headers]))
