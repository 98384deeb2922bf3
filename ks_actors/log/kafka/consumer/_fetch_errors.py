"""Handle fetch errors of partitions: retry temporary errors, and report the others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from ks_actors._errors import (
    LogClosed,
    LogCorrupted,
    LogError,
    LogTimeout,
    LogTruncated,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import component_log
from ks_actors.log.kafka.client import Unavailable
from ks_actors.log.kafka.consumer._partition_reader import FetchState
from ks_actors.log.kafka.wire import (
    OFFSET_OUT_OF_RANGE,
    RETRIABLE,
    STALE_METADATA,
    UNKNOWN_SERVER_ERROR,
    OffsetRequest,
    error_of,
    name_of,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping

    from ks_actors.log.kafka.client import KafkaClient
    from ks_actors.log.kafka.consumer._partition_reader import PartitionReader
    from ks_actors.records import TopicPartition

_CORRUPT: Final = 2
# Brokers that must name the same leader before its answer counts: any minority may be cut off.
_BROKERS_TO_ASK: Final = 3
_EARLIEST: Final = -2
_LATEST: Final = -1
_log = component_log(__name__)


class Owner(Protocol):
    """The methods of the fetch loop that FetchErrors calls."""

    def change_all(self) -> None:
        """Check all partitions again."""

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that ends with the fetcher."""


@final
class FetchErrors:
    """Look up leaders and offsets; until they are found, the partitions are not fetched."""

    def __init__(
        self,
        client: KafkaClient,
        sources: Mapping[TopicPartition, PartitionReader],
        owner: Owner,
        *,
        client_id: str,
    ) -> None:
        self._client: KafkaClient = client
        self._sources: Mapping[TopicPartition, PartitionReader] = sources
        self._owner: Owner = owner
        self._client_id: str = client_id
        self._refreshing: bool = False

    def refused(self, source: PartitionReader, code: int) -> None:
        """Handle the error code of a partition."""
        if code == OFFSET_OUT_OF_RANGE:
            if source.state is FetchState.OPEN:
                self._look_for_range(source, None)
        elif code == _CORRUPT:
            error = LogCorrupted(
                f"the broker cannot read {source.partition} at offset {source.ahead}: its stored "
                "data is damaged"
            )
            source.fail(error)
        elif code == UNKNOWN_SERVER_ERROR:
            # The fault of the broker may have passed by the next request, so retry as Kafka's
            # consumer does.
            if not source.backoff:
                _log.warning(
                    "%s: fetching %s fails; the client retries: Kafka answered %s; look into the "
                    "broker's own log for the reason",
                    self._client_id,
                    source.partition,
                    name_of(code),
                )
            self._hold(source, code=code)
        elif code in RETRIABLE:
            self._hold(source, code=code)
            if code in STALE_METADATA:
                self.refresh()
        else:
            source.fail(error_of(code, f"fetching {source.partition} failed"))

    def diverged(self, source: PartitionReader, epoch: int, epoch_end: int) -> None:
        """Handle a log that does not have the record before the fetch offset.

        `epoch` is the log's last epoch that is not above the epoch of that record; `epoch_end` is
        the offset at which it ends.
        """
        if source.state is not FetchState.OPEN:
            # This answers an older request of the other connection, from before the last lookup.
            return
        if epoch_end >= source.ahead:
            # Compaction may have removed the record, and with it the epoch from the replica.
            source.forget_epoch()
            return
        at = source.history.diverges_at(epoch, epoch_end)
        self._look_for_range(source, at)

    def _look_for_range(self, source: PartitionReader, diverges_at: int | None) -> None:
        source.look()
        self._owner.begin(self._find_range(source, source.era, diverges_at))

    def _hold(self, source: PartitionReader, *, code: int = 0, away: bool = False) -> None:
        if code:
            self._refuse(source, f"Kafka answered {name_of(code)} for {source.partition}")
        source.rest(self._client.options, away=away)

    def _refuse(self, source: PartitionReader, reason: str) -> None:
        self._client.outages.refused(source.partition, reason)

    def _wait_for_leader(self, source: PartitionReader) -> None:
        """Wait for a partition without a leader, or fail if it does not exist.

        Not all brokers know a new topic at once, so brokers must tell its absence for a while.
        """
        if source.unknown_since is None:
            source.unknown_since = asyncio.get_running_loop().time()
        reason = self._client.why_no_leader(source.partition, since=source.unknown_since)
        if isinstance(reason, Unavailable):
            self._refuse(source, str(reason))
            self._hold(source)
        else:
            source.unknown_since = None
            source.fail(reason)

    def refresh(self) -> None:
        """Look up the leaders, and the existing partitions."""
        if not self._refreshing:
            self._refreshing = True
            self._owner.begin(self._look_up())

    async def _look_up(self) -> None:
        try:
            await self._client.refresh({partition.topic for partition in self._sources})
        except LogClosed:
            return
        except Unavailable as error:
            # Only partitions without a leader wait; the others are fetched from their leaders.
            for source in self._leaderless():
                self._hold(source, away=error.away)
            _log.debug("%s: no broker knows the leader: %s", self._client_id, error)
        except Exception as error:  # noqa: BLE001 - the waiting reader has to hear of any error
            for source in self._leaderless():
                source.fail(
                    error if isinstance(error, LogError) else unexpected(source.partition, error)
                )
        else:
            for source in self._leaderless():
                self._wait_for_leader(source)
        self._refreshing = False
        # Leaders may have moved, even of partitions that had a leader.
        self._owner.change_all()

    def _leaderless(self) -> list[PartitionReader]:
        return [
            source
            for source in self._sources.values()
            if source.wanted and self._client.leader(source.partition) is None
        ]

    async def _find_range(
        self,
        source: PartitionReader,
        era: int,
        diverges_at: int | None,
    ) -> None:
        """Report the valid range if the fetch offset is outside it, or records are lost."""
        error: Exception | None = None
        try:
            if await self._still_leads(source.partition) and source.era == era:
                lost_before, source.lost_range = source.lost_range, True
                begin = await self._find_offset(source.partition, _EARLIEST)
                end = await self._find_offset(source.partition, _LATEST)
                error = _judge(source, begin, end, diverges_at, lost_before)
        except LogClosed:
            return
        except (LogTimeout, Unavailable, UnknownTopicOrPartition) as failed:
            # The lookup itself failed, which says nothing about the offset: fetch again.
            _log.debug(
                "%s: the range of %s is unknown: %s", self._client_id, source.partition, failed
            )
        except Exception as failed:  # noqa: BLE001 - the waiting reader has to hear of any error
            error = failed if isinstance(failed, LogError) else unexpected(source.partition, failed)
        # In another era the position has moved, and the answer refers to an earlier offset.
        if source.era == era:
            if error is None:
                self._hold(source)
            else:
                source.fail(error)

    async def _still_leads(self, partition: TopicPartition) -> bool:
        """Return whether several brokers, asked in turn, name no other leader than the known.

        A leader that is cut off from its cluster does not know its successor, and its log ends
        before records that others have read.
        """
        leader = self._client.leader(partition)
        for _ in range(min(_BROKERS_TO_ASK, len(self._client.nodes))):
            await self._client.refresh([partition.topic])
            if self._client.leader(partition) != leader:
                return False
        return True

    async def _find_offset(self, partition: TopicPartition, which: int) -> int:
        request = OffsetRequest(-1, 0, [(partition.topic, [(partition.partition, which)])])
        response = await self._client.send_to_leader(partition, request, _offset_codes)
        ((_, ((_, code, _, offset, *_),)),) = response.topics
        if code == UNKNOWN_SERVER_ERROR:
            raise Unavailable(f"the leader of {partition} answered {name_of(code)}")
        if code:
            raise error_of(code, f"failed to look up the offsets of {partition}")
        return int(offset)


def _judge(
    source: PartitionReader, begin: int, end: int, diverges_at: int | None, lost_before: bool
) -> OffsetOutOfRange | None:
    """Return OffsetOutOfRange for a fetch offset outside the range, or None to fetch again.

    Return LogTruncated if the leader has reported a divergence (`diverges_at`), or has twice
    refused an offset inside the range, with a lookup between. One refusal is not enough: that
    broker may no longer lead, or not yet know its end offset. An end offset below the fetch offset
    normally suffices.
    """
    where = source.partition, source.ahead, begin, end
    if source.ahead > end and source.epoch >= 0 and diverges_at is None:
        # A leader without records knows no epoch, and cannot report a divergence.
        if begin == end:
            return LogTruncated(*where, end)
        if not lost_before:
            # The leader's first records were written after the fetch: the next fetch decides.
            return None
    if diverges_at is not None and source.ahead > end:
        return LogTruncated(*where, diverges_at)
    if not begin <= source.ahead <= end:
        return OffsetOutOfRange(*where)
    if lost_before and source.epoch >= 0:
        return LogTruncated(*where, diverges_at)
    return None


def _offset_codes(response: Any) -> list[int]:
    return [code for _, partitions in response.topics for _, code, *_ in partitions]


def unexpected(partition: TopicPartition, error: Exception) -> LogError:
    """Wrap an unexpected exception into a LogError."""
    failed = LogError(f"fetching {partition} failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed
