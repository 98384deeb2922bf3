"""When a broker is asked for records, and how long it may wait for them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, final

from ks_actors.log.kafka.client import Failures
from ks_actors.log.kafka.consumer._fetch_session import FetchSession

if TYPE_CHECKING:
    import asyncio

    from ks_actors.log.kafka.consumer._partition_reader import Source
    from ks_actors.records import TopicPartition

LONG_MS: Final = 500
"""How long a broker waits for records when there is a way to ask for others meanwhile; else it answers at once."""
# How often the other connection is used for partitions that nothing has happened to, while the broker waits at the first one.
_SPACING_S: Final = 0.02


@final
class BrokerTurn:
    """A connection to a broker, with at most one request under way (`out`). It is `long` when the broker may take its time."""

    __slots__ = ("channel", "long", "out", "session")

    def __init__(self, channel: str) -> None:
        self.channel: str = channel
        self.session: FetchSession = FetchSession()
        self.out: bool = False
        self.long: bool = False


@final
class FetchBroker:
    """The partitions that are `wanted` of a broker, and the two connections that they are asked for by.

    As a rule there is one request with all wanted partitions, which the broker waits with. Partitions that come to be wanted meanwhile are asked for
    by the other connection, together with all others, in requests that are answered at once. Until the first request is back these are repeated
    every 20 ms, so nothing that is wanted is ever left out for longer.
    """

    __slots__ = ("_fresh", "_last", "_sent_at", "eager", "failures", "lines", "node", "not_before", "timer", "timer_due", "wanted")

    def __init__(self, node: int, channels: tuple[str, str]) -> None:
        self.node: int = node
        self.lines: tuple[BrokerTurn, BrokerTurn] = (BrokerTurn(channels[0]), BrokerTurn(channels[1]))
        self.wanted: dict[TopicPartition, Source] = {}
        self.failures: Failures = Failures()
        # Before that time of the loop, in seconds, nothing is sent.
        self.not_before: float = 0.0
        self._sent_at: float = -math.inf
        # Whether the next request may find as much as the last one did: nothing is gathered then.
        self.eager: bool = False
        self.timer: asyncio.Handle | None = None
        self.timer_due: float = 0.0
        # Whether a partition has come to be wanted, from where it reads on by now, since the last request.
        self._fresh: bool = False
        self._last: BrokerTurn = self.lines[0]

    def change(self, partition: TopicPartition, source: Source | None) -> None:
        """Have a partition asked for from where its source reads on; None: not any more."""
        if source is None:
            self.wanted.pop(partition, None)
        else:
            self.wanted[partition] = source
            self._fresh = True
            self.eager = self.eager or source.more
        for line in self.lines:
            line.session.change(partition)

    def free_line(self) -> BrokerTurn | None:
        """Return the connection for the next request; None: there is nothing to ask for, or a request is back at once."""
        if not self.wanted:
            return None
        first, second = self.lines
        if first.out and second.out:
            return None
        if not first.out and not second.out:
            return self._last
        waiting, free = (first, second) if first.out else (second, first)
        # While records of one partition are brought, those of others are asked for that the broker has, too.
        return free if (waiting.long or self.eager) and waiting.session.lacks_any(self.wanted) else None

    def due(self, linger_s: float) -> float:
        """Return when the next request is to go out, a time of the loop."""
        if self.eager:
            return self.not_before
        alone = not (self.lines[0].out or self.lines[1].out)
        return max(self.not_before, self._sent_at + (linger_s if alone or self._fresh else max(linger_s, _SPACING_S)))

    def begin(self, line: BrokerTurn, now: float) -> int:
        """Put the wanted partitions into the next request of a connection; return how long the broker is to wait for records, in ms."""
        alone = not (self.lines[0].out or self.lines[1].out)
        under_way = [other.session.told for other in self.lines if other.out and not other.long]
        brought = {partition for told in under_way for partition, source in self.wanted.items() if told.get(partition) == source.ahead}
        more = line.session.turn_to(
            {partition: source for partition, source in self.wanted.items() if partition not in brought} if brought else self.wanted
        )
        for partition in brought:
            # The next request of this connection has them again.
            line.session.change(partition)
        line.out, line.long = True, alone and not more
        self._last, self._sent_at, self._fresh, self.eager = line, now, False, False
        return LONG_MS if line.long else 0
