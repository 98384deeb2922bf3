"""The reading of topics, without a group."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from ks_actors._errors import (
    LogTimeout,
    OffsetOutOfRange,
    TopologyError,
    UnknownTopicOrPartition,
)
from ks_actors.config import milliseconds
from ks_actors.log import Fetched
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection

    from ks_actors.log import Fetcher, IsolationLevel, Log

ReadFrom: TypeAlias = Literal["earliest", "latest"] | datetime | timedelta | Mapping[int, int]
"""The place where reading begins.

The first record of each partition, its end, the first record at or after a time (UTC unless it has
a zone), or of at most some age, or an offset by partition.
"""

_WAIT_MS: Final = 500
_AT_ONCE: Final = 1_000
"""The most records of a partition that are decoded before other tasks run."""


def check_from(from_: object, of: str) -> None:
    """Raise TopologyError unless reading can begin at `from_`."""
    known = from_ in {"earliest", "latest"} if isinstance(from_, str) else False
    if not known and not isinstance(from_, datetime | timedelta | Mapping):
        raise TopologyError(
            f"argument 'from_' of {of} is {from_!r}: give 'earliest', 'latest', a datetime, a "
            "timedelta before now, or offsets by partition, such as {0: 17}"
        )


async def partitions_of(
    log: Log, topic: str, numbers: Collection[int] | None
) -> list[TopicPartition]:
    """Return the given partitions of a topic, or all. Raises UnknownTopicOrPartition."""
    described = await log.describe_topics([topic], configs=False)
    if topic not in described:
        raise UnknownTopicOrPartition(f"topic {topic} does not exist")
    size = described[topic].partitions
    for number in numbers or ():
        if not 0 <= number < size:
            raise UnknownTopicOrPartition(f"topic {topic} has partitions 0 to {size - 1}")
    return [TopicPartition(topic, number) for number in numbers or range(size)]


async def positions_of(
    log: Log,
    places: Collection[TopicPartition],
    from_: ReadFrom,
    isolation: IsolationLevel,
    clock: Callable[[], int],
) -> Mapping[TopicPartition, int]:
    """Return the offset of each partition at which reading begins."""
    if from_ == "earliest":
        return await log.begin_offsets(places)
    if from_ == "latest":
        return await log.end_offsets(places, isolation)
    if isinstance(from_, Mapping):
        begins = await log.begin_offsets(places)
        return {place: from_.get(place.partition, begins[place]) for place in places}
    return await log.offsets_for_times(dict.fromkeys(places, milliseconds(from_, clock())))


async def read_batches(
    fetcher: Fetcher,
    positions: Mapping[TopicPartition, int],
    *,
    ends: Mapping[TopicPartition, int] | None = None,
    timeout_ms: int = 60_000,
) -> AsyncGenerator[Fetched, None]:
    """Yield the records from `positions` on, as they come; with `ends`, only records before these.

    Each partition is in order. If its first records are deleted before the first one is read, they
    are passed over. The end closes the fetcher. Raises LogTimeout when no record before the ends
    comes for `timeout_ms`; OffsetOutOfRange; LogTruncated; LogClosed when the fetcher is closed.
    """
    loop = asyncio.get_running_loop()
    left = {
        place: offset for place, offset in positions.items() if ends is None or offset < ends[place]
    }
    try:
        fetcher.assign(left)
        unread = set(left)
        while left:
            until = loop.time() + timeout_ms / 1000
            while not (found := await _fetched(fetcher, unread)):
                if ends is not None and loop.time() >= until:
                    raise LogTimeout(
                        f"no more records within {timeout_ms} ms: "
                        + ", ".join(
                            f"{place} at {fetcher.position(place)} of {ends[place]}, "
                            f"{fetcher.describe(place)}"
                            for place in left
                        )
                    )
                if ends is not None and _take_done(left, fetcher, ends):
                    break
            for fetched in found:
                unread.discard(fetched.partition)
                yield fetched if ends is None else _before(fetched, ends[fetched.partition])
            if ends is not None and _take_done(left, fetcher, ends):
                fetcher.assign({place: fetcher.position(place) for place in left})
    finally:
        await fetcher.close()


async def _fetched(fetcher: Fetcher, unread: Collection[TopicPartition]) -> Collection[Fetched]:
    try:
        return await fetcher.fetch(max_wait_ms=_WAIT_MS, max_records=_AT_ONCE)
    except OffsetOutOfRange as error:
        # Retention has moved the beginning of the log since the lookup.
        if error.partition not in unread or not 0 <= error.position < error.begin:
            raise
        fetcher.seek(error.partition, error.begin)
        return ()


def _take_done(
    left: dict[TopicPartition, int], fetcher: Fetcher, ends: Mapping[TopicPartition, int]
) -> bool:
    """Remove the partitions that are read to their ends; return whether there are such."""
    done = [place for place in left if fetcher.position(place) >= ends[place]]
    for place in done:
        del left[place]
    return bool(done)


def _before(fetched: Fetched, end: int) -> Fetched:
    """Return the records before an offset: a fetch may have some that were written since."""
    batch = fetched.batch
    if not len(batch) or batch.offsets[-1] < end:
        return fetched
    keep = sum(offset < end for offset in batch.offsets)
    return Fetched(fetched.partition, batch.slice(0, keep), end, end)
