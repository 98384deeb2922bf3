"""Records that the log rejects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from ks_actors._errors import (
    InvalidRecord,
    ProductionFailed,
    RecordTooLarge,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from ks_actors.config import DeadLetter, ErrorContext, FailedRecord, HandlerResponse, Response
from ks_actors.lifecycle import passes
from ks_actors.log import Outgoing
from ks_actors.records import TaskId
from ks_actors.task import note_answer

if TYPE_CHECKING:
    from collections import Counter

    from ks_actors.config import StreamsConfig
    from ks_actors.records import Batch, TopicPartition
    from ks_actors.runtime.shared import Metrics

# Any other error, like a missing right or a broker's own fault, would affect every record. With
# RESUME the whole output would be lost until somebody notices.
_ABOUT_RECORDS = (InvalidRecord, RecordTooLarge, UnknownTopicOrPartition)
BARREN_ATTEMPTS: Final = 10
Letters: TypeAlias = Sequence[DeadLetter]
_Record: TypeAlias = "tuple[bytes | None, bytes | None]"


class Refused:
    """Records of a partition that the handler drops.

    `rest` has the other records of the same batches, in order, without the first `written` records;
    `dropped` has the dropped records with their dead letters.
    """

    def __init__(
        self, partition: TopicPartition, batches: Sequence[Batch], written: int = 0
    ) -> None:
        self.partition: TopicPartition = partition
        self.rest: list[Outgoing] = []
        self.dropped: list[tuple[_Record, Letters]] = []
        self._batches: Sequence[Batch] = batches
        self._written: int = written

    def drop(self, letters: dict[int, Letters]) -> Refused:
        """Drop records by their numbers, counted through all batches."""
        first = 0
        for batch in self._batches:
            numbers = range(first, first + len(batch))
            # The records after the refused record are written again, in order. In another order a
            # reader would take an older value of a key for the latest.
            keep = [number >= self._written and number not in letters for number in numbers]
            self.dropped += [
                ((batch.keys[n - first], batch.values[n - first]), its_letters)
                for n, its_letters in letters.items()
                if 0 <= n - first < len(batch)
            ]
            if any(keep):
                self.rest.append(Outgoing(self.partition, batch.select(keep)))
            first += len(batch)
        return self


class RejectedRecords:
    """Ask the production handler about each rejected record.

    The handler is asked only if the error concerns the records, or their missing topic.
    """

    def __init__(
        self, config: StreamsConfig, answers: Counter[tuple[str, str]], metrics: Metrics
    ) -> None:
        self._config = config
        self._answers = answers
        self._metrics = metrics

    def refused(
        self,
        partition: TopicPartition,
        batches: Sequence[Batch],
        error: Exception,
        written: int = 0,
    ) -> Refused | None:
        """Return the dropped and the other records; the first `written` records are in the log.

        Return None for a failure: the handler says FAIL, or the error is not about records. Raises
        ProductionFailed when the handler itself raises, or gives no answer.
        """
        # Dropping a changelog record would silently lose state at the next restore.
        if not isinstance(error, _ABOUT_RECORDS) or partition.topic.endswith("-changelog"):
            return None
        known = error.records if isinstance(error, RecordTooLarge | InvalidRecord) else ()
        letters: dict[int, Letters] = {}
        number = -1
        for batch in batches:
            for index in range(len(batch)):
                number += 1
                if number < written or (known and number not in known):
                    continue
                response = self._ask(partition, batch, index, error)
                if response.result is HandlerResponse.FAIL:
                    return None
                # Write no letter about a rejected letter.
                letters[number] = [
                    letter
                    for letter in response.dead_letter_queue_records
                    if letter.topic != partition.topic
                ]
        self._metrics.global_dropped += len(letters)
        return Refused(partition, batches, written).drop(letters)

    def _ask(
        self, partition: TopicPartition, batch: Batch, index: int, error: Exception
    ) -> Response:
        config = self._config
        context = ErrorContext(
            topic=None,
            partition=-1,
            offset=-1,
            headers=() if batch.headers is None else batch.headers[index],
            processor_node_id="collector",
            task_id=TaskId(-1, partition.partition),
            timestamp=batch.timestamps[index],
            source_raw_key=batch.keys[index],
            source_raw_value=batch.values[index],
            dead_letter_queue_topic=config.errors_dead_letter_queue_topic_name,
        )
        record = FailedRecord(
            batch.keys[index],
            batch.values[index],
            batch.timestamps[index],
            context.headers,
            *partition,
        )
        try:
            response = Response.of(config.production_exception_handler(context, record, error))
        except BaseException as raised:
            if passes(raised):
                raise
            raise ProductionFailed(
                f"the exception handler itself raised {type(raised).__name__}: {raised}, about: "
                f"the log refused records: {error}",
                topic=partition.topic,
                partition=partition.partition,
            ) from raised
        self._answers["production", response.result.value] += 1
        note_answer(
            self._metrics.history.exceptions,
            error,
            "production",
            response,
            letters=config.errors_dead_letter_queue_topic_name,
            task=None,
            node=None,
            topic=partition.topic,
            partition=partition.partition,
            offset=None,
        )
        return response


class RecordsLeftOut(TransactionAborted):
    """A transaction is repeated without some of its records, which makes progress."""


class LeftOut:
    """Records that made a transaction fail and are left out when the transaction is repeated.

    They are identified by partition, key and value. Each record is left out once per attempt, until
    an attempt is committed. A record whose bytes differ in each attempt is not recognized, and
    refused again. Then an attempt leaves out no more records than the attempts before it.
    """

    def __init__(self) -> None:
        # The most records that an attempt has left out, and the attempts since.
        self._most: int = -1
        self._barren: int = 0
        self._known: dict[TopicPartition, dict[_Record, list[Letters]]] = {}
        self._used: list[tuple[TopicPartition, _Record, Letters]] = []

    def is_stuck(self) -> bool:
        """Note a failed attempt; return whether too many in a row have made no progress."""
        self._barren = 0 if len(self._used) > self._most else self._barren + 1
        self._most = max(self._most, len(self._used))
        return self._barren >= BARREN_ATTEMPTS

    def add(self, refused: Refused) -> None:
        """Leave these records out from now on."""
        for record, letters in refused.dropped:
            self._put(refused.partition, record, letters)

    def _put(self, partition: TopicPartition, record: _Record, letters: Letters) -> None:
        self._known.setdefault(partition, {}).setdefault(record, []).append(letters)

    def without(self, batches: list[Outgoing]) -> tuple[list[Outgoing], list[DeadLetter], int]:
        """Drop known records; return the other batches, dead letters, and the number dropped."""
        if not self._known:
            return batches, [], 0
        before = len(self._used)
        left = [rest for outgoing in batches if (rest := self._strip(outgoing)) is not None]
        gone = self._used[before:]
        return left, [letter for _, _, letters in gone for letter in letters], len(gone)

    def _strip(self, outgoing: Outgoing) -> Outgoing | None:
        known = self._known.get(outgoing.partition)
        if known is None:
            return outgoing
        batch = outgoing.batch
        keep: list[bool] = []
        for record in zip(batch.keys, batch.values, strict=True):
            waiting = known.get(record)
            keep.append(not waiting)
            if waiting:
                # One letter per occurrence: equal records may have been sent several times.
                self._used.append((outgoing.partition, record, waiting.pop()))
        if all(keep):
            return outgoing
        return Outgoing(outgoing.partition, batch.select(keep)) if any(keep) else None

    def rolled_back(self) -> None:
        """Note that the whole transaction will be repeated."""
        used, self._used = self._used, []
        for one in used:
            self._put(*one)

    def committed(self) -> None:
        """Forget the records that were left out of the committed attempt."""
        self._most, self._barren = -1, 0
        if self._used:
            self._used.clear()
            for partition, records in list(self._known.items()):
                self._known[partition] = left = {
                    record: waiting for record, waiting in records.items() if waiting
                }
                if not left:
                    del self._known[partition]
