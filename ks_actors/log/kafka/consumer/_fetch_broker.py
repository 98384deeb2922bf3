"""The schedule of fetches to one broker, and their wait times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from ks_actors.log.kafka.client import Backoff
from ks_actors.log.kafka.consumer._fetch_session import FetchSession

if TYPE_CHECKING:
    import asyncio

    from ks_actors.log.kafka.consumer._partition_reader import PartitionReader
    from ks_actors.records import TopicPartition

LONG_MS: Final = 500
"""How long (ms) a broker may wait for records while the other connection is free.

While the other connection is in use, the broker answers at once.
"""
# The interval of fetches on the other connection while the first waits and no partition is new.
_SPACING_S: Final = 0.02
# An answer with records of many partitions has few of each, and each partition has its cost from
# here to the commit. So the next request lingers longer: from the first number of partitions on,
# and twice as long with so many more, but never by more than `_SPACING_S`.
_FEW_PARTITIONS: Final = 10
_MANY_PARTITIONS: Final = 80
# Fetched bytes from which lingering before the next request gains nothing, and those per partition.
_MUCH: Final = 65_536
_MUCH_EACH: Final = 16_384


@final
class BrokerTurn:
    """A connection to a broker with at most one open request (`out`).

    `long` is true while the broker may wait for records. `late` is true when the broker should have
    answered: the connection may be dead. The other connection then fetches all partitions.
    """

    __slots__ = ("channel", "late", "long", "out", "session")

    def __init__(self, channel: str) -> None:
        self.channel: str = channel
        self.session: FetchSession = FetchSession()
        self.out: bool = False
        self.long: bool = False
        self.late: bool = False

    @property
    def awaited(self) -> bool:
        """Whether an answer is likely to arrive."""
        return self.out and not self.late


@final
class FetchBroker:
    """The `wanted` partitions of a broker, and the two connections that fetch them.

    Usually one request asks for all wanted partitions, and the broker waits for records. A request
    on the other connection asks for newly wanted partitions together with all others, and the
    broker answers at once. Until the first request is answered, such requests repeat every 20 ms,
    so no wanted partition is missing from requests for longer. A connection that a firewall has
    forgotten stays open, and never answers: the late request does not keep partitions from the
    other connection.
    """

    __slots__ = (
        "_fresh",
        "_last",
        "_longer",
        "_sent_at",
        "backoff",
        "eager",
        "lines",
        "node",
        "not_before",
        "timer",
        "timer_due",
        "wanted",
    )

    def __init__(self, node: int, channels: tuple[str, str]) -> None:
        self.node: int = node
        self.lines: tuple[BrokerTurn, BrokerTurn] = (
            BrokerTurn(channels[0]),
            BrokerTurn(channels[1]),
        )
        self.wanted: dict[TopicPartition, PartitionReader] = {}
        self.backoff: Backoff = Backoff()
        # The loop time in seconds before which nothing is sent.
        self.not_before: float = 0.0
        self._sent_at: float = -math.inf
        # Whether the next request may find as much as the last request: then do not linger.
        self.eager: bool = False
        # How much longer than usual the next request lingers.
        self._longer: float = 0.0
        self.timer: asyncio.Handle | None = None
        self.timer_due: float = 0.0
        # Whether a partition was added, or got a new fetch offset, since the last request.
        self._fresh: bool = False
        self._last: BrokerTurn = self.lines[0]

    def change(self, partition: TopicPartition, source: PartitionReader | None) -> None:
        """Fetch a partition from the source's next offset; None stops fetching it."""
        if source is None:
            self.wanted.pop(partition, None)
        else:
            self.wanted[partition] = source
            self._fresh = True
            self.eager = self.eager or source.more
        for line in self.lines:
            line.session.changed.add(partition)

    def free_line(self) -> BrokerTurn | None:
        """Return the connection for the next request.

        None means that no partition is wanted, or that a response is about to arrive.
        """
        if not self.wanted:
            return None
        first, second = self.lines
        if first.out and second.out:
            return None
        if not first.out and not second.out:
            return self._last
        waiting, free = (first, second) if first.out else (second, first)
        if waiting.late:
            return free
        # While one request fetches a partition, the other request may fetch other partitions.
        return (
            free
            if (waiting.long or self.eager) and waiting.session.lacks_any(self.wanted)
            else None
        )

    def answered(self, size: int, partitions: int) -> None:
        """Note an answer: the bytes of its records, and their partitions."""
        # A full answer means a backlog: the next request does not linger for more records.
        self.eager = self.eager or size >= max(_MUCH, _MUCH_EACH * partitions)
        if partitions:
            self._longer = max(0, partitions - _FEW_PARTITIONS) / _MANY_PARTITIONS

    def due(self, linger_s: float) -> float:
        """Return the loop time of the next request."""
        if self.eager:
            return self.not_before
        linger_s += min(linger_s * min(1.0, self._longer), _SPACING_S)
        alone = not (self.lines[0].awaited or self.lines[1].awaited)
        return max(
            self.not_before,
            self._sent_at + (linger_s if alone or self._fresh else max(linger_s, _SPACING_S)),
        )

    def begin(self, line: BrokerTurn, now: float) -> int:
        """Prepare a connection's next request; return the wait for records on the broker in ms."""
        alone = not (self.lines[0].awaited or self.lines[1].awaited)
        under_way = [
            other.session.sent_offsets for other in self.lines if other.awaited and not other.long
        ]
        brought = {
            partition
            for sent_offsets in under_way
            for partition, source in self.wanted.items()
            if sent_offsets.get(partition) == source.ahead
        }
        more = line.session.turn_to(
            {
                partition: source
                for partition, source in self.wanted.items()
                if partition not in brought
            }
            if brought
            else self.wanted
        )
        for partition in brought:
            # The connection's next request includes the partition again.
            line.session.changed.add(partition)
        line.out, line.late, line.long = True, False, alone and not more
        self._last, self._sent_at, self._fresh, self.eager = line, now, False, False
        return LONG_MS if line.long else 0
