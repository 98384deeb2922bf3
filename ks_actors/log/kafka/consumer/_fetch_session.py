"""Fetch sessions (KIP-227): requests and responses carry only changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from ks_actors.log.kafka.wire import FetchRequest, Pinned

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.log.kafka.client import KafkaOptions
    from ks_actors.log.kafka.consumer._partition_reader import PartitionReader
    from ks_actors.records import TopicPartition

NOT_FOUND: Final = 70
INVALID_EPOCH: Final = 71
_NONE: Final = 0
_FULL: Final = 0
_FINAL: Final = -1
_LAST_EPOCH: Final = (1 << 31) - 1


@final
class FetchSession:
    """The partitions in successive requests of one connection.

    `sent_offsets` has the offsets that the broker knows, by partition, and `_sent_epochs` the
    leader epochs of the records before those offsets. The first request has all partitions and
    opens a session, if the broker has room for it; later requests only have changes. The broker
    rotates the partitions, so that each is first in a response at times.
    """

    __slots__ = (
        "_asked",
        "_epoch",
        "_forgotten",
        "_id",
        "_sent_epochs",
        "changed",
        "sent_offsets",
    )

    def __init__(self) -> None:
        self.sent_offsets: dict[TopicPartition, int] = {}
        self._sent_epochs: dict[TopicPartition, int] = {}
        self.changed: set[TopicPartition] = set()
        """The partitions with another fetch offset, or that are no longer wanted."""
        self._id: int = _NONE
        self._epoch: int = _FULL
        self._asked: list[tuple[str, list[tuple[int, int, int]]]] = []
        self._forgotten: dict[str, list[int]] = {}

    @property
    def full(self) -> bool:
        """Whether the next request has all partitions, regardless of the broker's session."""
        return self._epoch == _FULL

    def lacks_any(self, wanted: Mapping[TopicPartition, PartitionReader]) -> bool:
        """Return whether the last request lacks a wanted partition."""
        return any(
            self.sent_offsets.get(partition) != wanted[partition].ahead
            or self._sent_epochs[partition] != wanted[partition].epoch
            for partition in self.changed
            if partition in wanted
        )

    def turn_to(self, wanted: Mapping[TopicPartition, PartitionReader]) -> bool:
        """Set the partitions to fetch; return whether the broker has more of an added partition."""
        sent_offsets, more = self.sent_offsets, False
        asked: list[tuple[str, list[tuple[int, int, int]]]] = []
        forgotten: dict[str, list[int]] = {}
        # In a new session the broker knows no offsets, so send all of them.
        if self._epoch == _FULL:
            sent_offsets.clear()
        for partition in self._in_turn(wanted) if self._epoch == _FULL else sorted(self.changed):
            source = wanted.get(partition)
            topic, number = partition
            if source is None:
                if sent_offsets.pop(partition, None) is not None:
                    forgotten.setdefault(topic, []).append(number)
            elif (
                sent_offsets.get(partition) != source.ahead
                or self._sent_epochs[partition] != source.epoch
            ):
                sent_offsets[partition] = source.ahead
                self._sent_epochs[partition] = source.epoch
                # A topic may occur several times, as in Kafka's consumer: if partitions were
                # grouped, all partitions of the first topic would come before all others.
                if not asked or asked[-1][0] != topic:
                    asked.append((topic, []))
                asked[-1][1].append((number, source.ahead, source.epoch))
                more = more or source.more
                # From now on the answer to this request decides.
                source.more = False
        self.changed.clear()
        self._asked, self._forgotten = asked, forgotten
        return more

    def _in_turn(
        self, wanted: Mapping[TopicPartition, PartitionReader]
    ) -> Iterable[TopicPartition]:
        """Order the partitions by the time of their last records, oldest first, as a session does.

        A broker fills a response in this order, and only the first partition that has records gets
        a batch larger than max_partition_fetch_bytes. A rotation would not suffice: pauses change
        the set of partitions between two requests, and the same partition might never be first.
        """
        return sorted(wanted, key=lambda partition: wanted[partition].served)

    def request(
        self, options: KafkaOptions, wait_ms: int, max_bytes: int, *, committed: bool
    ) -> Pinned:
        """Return the request for the partitions of the last `turn_to`."""
        fields = (
            wait_ms,
            max_bytes,
            options.max_partition_fetch_bytes,
            (self._id, self._epoch),
            self._asked,
            self._forgotten,
        )
        return Pinned(FetchRequest, *fields, int(committed))

    def answered(self, session_id: int) -> None:
        """Note a response; if it has no session id, the next request has all partitions again."""
        self._id = session_id
        if session_id == _NONE:
            self._epoch = _FULL
        else:
            # After the highest epoch the count restarts at 1: 0 would ask for a new session.
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1

    def end(self, *, committed: bool) -> Pinned | None:
        """Return the request that ends the session on the broker; None if there is no session.

        A broker has a limited number of sessions (1,000 by default), and drops an unused one only
        after two minutes.
        """
        if self._id == _NONE:
            return None
        ended, self._id, self._epoch = self._id, _NONE, _FULL
        return Pinned(FetchRequest, 0, 0, 0, (ended, _FINAL), [], {}, int(committed))

    def lose(self) -> None:
        """Start a new session: the broker's state is unknown.

        The next request ends the old session, if it still exists.
        """
        # Without a session the broker knows no partitions, so the next request names all of them.
        self._epoch = _FULL
