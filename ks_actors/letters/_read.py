"""The reading of dead letter topics."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ks_actors._errors import LogTimeout, UnknownTopicOrPartition
from ks_actors.letters._letter import letter_of, marked_offset
from ks_actors.log import IsolationLevel
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.letters._letter import Letter
    from ks_actors.log import Log
    from ks_actors.records import Batch, Headers

_FETCH_MS = 500
_COMMITTED = IsolationLevel.READ_COMMITTED


async def read_letters(
    log: Log, topic: str, *, limit: int = 100, client_id: str = "letters", timeout_ms: int = 10_000
) -> list[Letter]:
    """Return the last letters of a topic, the newest first, at most `limit`.

    Looks at the last `limit` records of each partition, without those of open transactions.
    Raises UnknownTopicOrPartition, and LogTimeout after `timeout_ms`.
    """
    described = await log.describe_topics([topic], configs=False)
    if topic not in described:
        raise UnknownTopicOrPartition(f"topic {topic} does not exist")
    partitions = [TopicPartition(topic, number) for number in range(described[topic].partitions)]
    begins = await log.begin_offsets(partitions)
    ends = await log.end_offsets(partitions, _COMMITTED)
    starts = {one: max(begins[one], ends[one] - limit) for one in partitions}
    found = await _read(log, starts, ends, client_id=client_id, timeout_ms=timeout_ms)
    found.sort(key=lambda letter: (-letter.timestamp, letter.partition, -letter.offset))
    return found[:limit]


async def read_letter(
    log: Log,
    place: TopicPartition,
    offset: int,
    *,
    client_id: str = "letters",
    timeout_ms: int = 10_000,
) -> Letter | None:
    """Return the letter at an offset, None when there is none.

    Reads on to the end of the partition, for a marker. Raises UnknownTopicOrPartition,
    OffsetOutOfRange, and LogTimeout after `timeout_ms`.
    """
    ends = await log.end_offsets([place], _COMMITTED)
    begins = await log.begin_offsets([place])
    if not begins[place] <= offset < ends[place]:
        return None
    found = await _read(log, {place: offset}, ends, client_id=client_id, timeout_ms=timeout_ms)
    return next((letter for letter in found if letter.offset == offset), None)


async def _read(
    log: Log,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    client_id: str,
    timeout_ms: int,
) -> list[Letter]:
    records: dict[tuple[TopicPartition, int], tuple[Any, Any, int, Headers]] = {}
    marked: set[tuple[TopicPartition, int]] = set()
    left = {one: start for one, start in starts.items() if start < ends[one]}
    fetcher = log.fetcher(client_id=client_id, isolation=_COMMITTED)
    fetcher.assign(left)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while left:
                for fetched in await fetcher.fetch(max_wait_ms=_FETCH_MS):
                    _sort(fetched.partition, fetched.batch, records, marked)
                if done := [one for one in left if fetcher.position(one) >= ends[one]]:
                    for one in done:
                        del left[one]
                    fetcher.assign({one: fetcher.position(one) for one in left})
    except TimeoutError:
        at = ", ".join(f"{one} at {fetcher.position(one)} of {ends[one]}" for one in left)
        raise LogTimeout(f"could not read dead letters within {timeout_ms} ms: {at}") from None
    finally:
        await fetcher.close()
    return [
        letter_of(place, offset, record, redriven=(place, offset) in marked)
        for (place, offset), record in records.items()
    ]


def _sort(
    place: TopicPartition,
    batch: Batch,
    records: dict[tuple[TopicPartition, int], tuple[Any, Any, int, Headers]],
    marked: set[tuple[TopicPartition, int]],
) -> None:
    """Tell letters from markers."""
    for row, offset in enumerate(batch.offsets):
        headers = () if batch.headers is None else batch.headers[row]
        about = marked_offset(headers)
        if about is not None:
            marked.add((place, about))
        else:
            records[place, offset] = (
                batch.keys[row],
                batch.values[row],
                batch.timestamps[row],
                headers,
            )
