"""The reading of dead letter topics."""

from __future__ import annotations

import asyncio
from collections import deque
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from ks_actors._errors import LogTimeout, UnknownTopicOrPartition
from ks_actors.letters._groups import ChosenGroup, LetterGroups, Survey
from ks_actors.letters._letter import letter_of, marked_offset
from ks_actors.lifecycle import check_timeout, component_log
from ks_actors.log import IsolationLevel
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import timedelta

    from ks_actors.letters._groups import LetterGroup
    from ks_actors.letters._letter import Letter
    from ks_actors.log import Log
    from ks_actors.records import Batch, Headers

    _Content: TypeAlias = tuple[Any, Any, int, Headers]
    _Record: TypeAlias = tuple[int, _Content]

_log = component_log(__name__)
_FETCH_MS = 500
# The letters of a fetch are counted in one go, on the loop of the app.
_AT_ONCE: Final = 500
_WIDER: Final = (1, 4, 16)
SURVEYED: Final = 10_000
"""The offsets of a topic whose letters a survey counts."""
SURVEYED_BYTES: Final = 64 << 20
"""The bytes after which a survey reads no older letters."""
_SURVEY_S: Final = 3.0
LOT_BYTES: Final = 8 << 20
"""The bytes of letters that are written back in one transaction."""
_COMMITTED = IsolationLevel.READ_COMMITTED


async def read_letters(
    log: Log,
    topic: str,
    *,
    limit: int = 100,
    client_id: str = "letters",
    timeout_ms: int | timedelta = 10_000,
    max_bytes: int | None = None,
) -> list[Letter]:
    """Return the last letters of a topic, at most `limit`, the newest first.

    In a partition, the newest letters are those with the highest offsets. Their timestamps, which
    are those of the failed records, do not matter. If `limit` is at least the number of partitions,
    the letter that was written last is in the list.

    Read the last `limit` offsets of each partition, without open transactions. If a partition has
    fewer letters there, read up to 16 times as far back: a redrive leaves a record in the topic
    that marks its letter as written back, and such records are not letters. Letters of a partition
    beyond its share of `max_bytes` (of keys and values; None: no limit) are left out, the
    oldest first, with a warning; the newest letter stays. Raises UnknownTopicOrPartition, and
    LogTimeout after `timeout_ms`.
    """
    timeout_ms = check_timeout(timeout_ms)
    described = await log.describe_topics([topic], configs=False)
    if topic not in described:
        raise UnknownTopicOrPartition(f"topic {topic} does not exist")
    partitions = [TopicPartition(topic, number) for number in range(described[topic].partitions)]
    begins = await log.begin_offsets(partitions)
    ends = await log.end_offsets(partitions, _COMMITTED)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    share = None if max_bytes is None else max_bytes // max(1, len(partitions))
    found = _Found(limit)
    for wider in _WIDER:
        starts = {one: max(begins[one], ends[one] - limit * wider) for one in partitions}
        found = _Found(limit, max_bytes=share)
        left_ms = max(0, round((deadline - loop.time()) * 1000))
        await _read(log, starts, ends, found, client_id=client_id, timeout_ms=left_ms)
        if all(
            starts[one] == begins[one] or found.count(one) >= limit or one in found.shortened
            for one in partitions
        ):
            break
    _warn(found, share)
    return newest_letters(found.letters(), limit)


def _warn(found: _Found, share: int | None) -> None:
    for one in sorted(found.shortened):
        _log.warning(
            "the dead letters of %s are large: only its newest %d are listed, of at most %d bytes",
            one,
            found.count(one),
            share,
        )


def newest_letters(letters: Iterable[Letter], limit: int) -> list[Letter]:
    """Return the newest letters, at most `limit`, the newest first.

    Offsets tell which letters of a partition are the newest. A letter has no time of its own, only
    the timestamp of the failed record, which may be wrong. So letters are chosen in rounds, with
    one letter of each partition per round. Timestamps only decide which letters of the last round
    are chosen, if there is no room for all.
    """
    columns: dict[TopicPartition, list[Letter]] = {}
    for letter in sorted(letters, key=lambda letter: -letter.offset):
        columns.setdefault(letter.place, []).append(letter)
    turns = [
        (turn, -letter.timestamp, place, letter)
        for place, column in columns.items()
        for turn, letter in enumerate(column)
    ]
    chosen: dict[TopicPartition, deque[Letter]] = {}
    for _, _, place, letter in sorted(turns, key=lambda each: each[:3])[:limit]:
        chosen.setdefault(place, deque()).append(letter)
    return _merged(chosen)


def _merged(columns: Mapping[TopicPartition, deque[Letter]]) -> list[Letter]:
    """Merge letters by timestamp; the letters of each partition keep their order."""
    heads = [(-column[0].timestamp, place) for place, column in columns.items()]
    heapify(heads)
    merged: list[Letter] = []
    while heads:
        place = heads[0][1]
        column = columns[place]
        merged.append(column.popleft())
        if column:
            heapreplace(heads, (-column[0].timestamp, place))
        else:
            heappop(heads)
    return merged


async def read_letter(
    log: Log,
    place: TopicPartition,
    offset: int,
    *,
    client_id: str = "letters",
    timeout_ms: int | timedelta = 10_000,
) -> Letter | None:
    """Return the letter at an offset, None when there is none.

    Reads on to the end of the partition, to find a marker of the letter. Raises
    UnknownTopicOrPartition, OffsetOutOfRange, and LogTimeout after `timeout_ms`.
    """
    timeout_ms = check_timeout(timeout_ms)
    found, _ = await letters_at(log, place, [offset], client_id=client_id, timeout_ms=timeout_ms)
    return next(iter(found), None)


async def letters_at(
    log: Log, place: TopicPartition, offsets: Collection[int], *, client_id: str, timeout_ms: int
) -> tuple[list[Letter], int]:
    """Return the letters at some offsets of a partition, in order, and the end of the reading.

    Returns the first of the letters, at least one, up to 8 MiB of keys and values. All markers
    before the end are noted in the letters.
    """
    end = (await log.end_offsets([place], _COMMITTED))[place]
    begins = await log.begin_offsets([place])
    wanted = frozenset(one for one in offsets if begins[place] <= one < end)
    if not wanted:
        return [], end
    found = _Found(len(wanted), only=wanted, max_bytes=LOT_BYTES)
    await _read(
        log, {place: min(wanted)}, {place: end}, found, client_id=client_id, timeout_ms=timeout_ms
    )
    return found.letters(), end


async def marked_between(
    log: Log, place: TopicPartition, start: int, end: int, *, client_id: str, timeout_ms: int
) -> set[int]:
    """Return the offsets of the letters whose committed markers are from `start` to before `end`.

    Raises LogTimeout after `timeout_ms`.
    """
    found = _Found(0)
    await _read(
        log, {place: start}, {place: end}, found, client_id=client_id, timeout_ms=timeout_ms
    )
    return found.marked(place)


async def survey_letters(
    log: Log, topic: str, *, limit: int, client_id: str, max_bytes: int, timeout_ms: int = 10_000
) -> Survey:
    """Return the newest letters of a topic, as `read_letters` does, and counts by error and source.

    Reads the newest `limit` offsets of each partition first, then older ones. Counts at most the
    last 10,000 offsets of the topic, in equal shares of its partitions, and stops earlier after
    64 MiB or three seconds. Keeps no other letter than the newest `limit`. Raises as `read_letters`
    does, but LogTimeout only if no record arrives within `timeout_ms`.
    """
    described = await log.describe_topics([topic], configs=False)
    if topic not in described:
        raise UnknownTopicOrPartition(f"topic {topic} does not exist")
    places = [TopicPartition(topic, number) for number in range(described[topic].partitions)]
    begins = await log.begin_offsets(places)
    ends = dict(await log.end_offsets(places, _COMMITTED))
    read_to = tuple(ends[one] for one in places)
    depth = max(limit, SURVEYED // max(1, len(places)))
    last = {one: max(begins[one], ends[one] - depth) for one in places}
    share = max_bytes // max(1, len(places))
    found = _Found(limit, max_bytes=share, also=LetterGroups())
    clock = asyncio.get_running_loop().time
    slow_at, late_at = clock() + _SURVEY_S, clock() + timeout_ms / 1000
    starts, step, whole = dict(ends), limit, True
    while starts != last:
        before, starts = starts, {one: max(last[one], starts[one] - step) for one in places}
        found.begin_older()
        left_ms = max(0, round((late_at - clock()) * 1000))
        try:
            await _read(log, starts, before, found, client_id=client_id, timeout_ms=left_ms)
        except LogTimeout:
            if before == ends and not found.reached:
                raise
            whole = False
            if before == ends:
                # Only the first of these letters were read.
                ends = {one: found.reached.get(one, starts[one]) for one in places}
            else:
                starts = before
            break
        read = sum(ends[one] - starts[one] for one in places)
        # The next step reads about as many bytes as are left.
        room = (SURVEYED_BYTES - found.bytes_read) * read // max(1, found.bytes_read)
        step = min(4 * step, room // max(1, len(places)))
        if step <= 0 or clock() >= slow_at:
            break
        late_at = min(late_at, slow_at)
    _warn(found, share)
    return Survey(
        newest_letters(found.letters(), limit),
        found.groups(),
        tuple(starts[one] for one in places),
        tuple(ends[one] for one in places),
        read_to,
        whole=whole and starts == dict(begins),
    )


async def letters_of_group(
    log: Log,
    group: ChosenGroup,
    starts: Sequence[int],
    ends: Sequence[int],
    *,
    client_id: str,
    timeout_ms: int = 10_000,
) -> list[tuple[TopicPartition, int]]:
    """Return where the letters of a group are that can be written back.

    They are in the order of partitions, and the oldest of a partition comes first. Looks from the
    start offsets to the end offsets that a survey told, and at no other letters: a letter that
    fails again is not of the group. Raises as `read_letters`.
    """
    places = [TopicPartition(group.topic, number) for number in range(len(ends))]
    begins = await log.begin_offsets(places)
    # Read on to the last marker of these letters.
    now = await log.end_offsets(places, _COMMITTED)
    bounds = dict(zip(places, ends, strict=True))
    first = dict(zip(places, starts, strict=True))
    first = {one: max(begins[one], first[one]) for one in places if first[one] < bounds[one]}
    found = _Found(0, also=group)
    await _read(log, first, now, found, client_id=client_id, timeout_ms=timeout_ms)
    return sorted(one for one in group.left if one[1] < bounds[one[0]])


async def _read(
    log: Log,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    found: _Found,
    *,
    client_id: str,
    timeout_ms: int,
) -> None:
    left = {one: start for one, start in starts.items() if start < ends[one]}
    fetcher = log.fetcher(client_id=client_id, isolation=_COMMITTED)
    fetcher.assign(left)
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while left:
                most = max(1, _AT_ONCE // len(left))
                for fetched in await fetcher.fetch(max_wait_ms=_FETCH_MS, max_records=most):
                    found.add(fetched.partition, fetched.batch, ends[fetched.partition])
                # A log in this process answers at once.
                await asyncio.sleep(0)
                if done := [one for one in left if fetcher.position(one) >= ends[one]]:
                    for one in done:
                        del left[one]
                    fetcher.assign({one: fetcher.position(one) for one in left})
    except TimeoutError:
        at = ", ".join(f"{one} at {fetcher.position(one)} of {ends[one]}" for one in left)
        raise LogTimeout(f"could not read dead letters within {timeout_ms} ms: {at}") from None
    finally:
        await fetcher.close()


@final
class _Found:
    """Letters without the markers: the newest `limit` of each partition, or the letters at `only`.

    Other letters are dropped at once, as they may be large. `also` is told all of them. Records
    come in the order of their offsets, or in parts, of which the newest is the first.
    """

    def __init__(
        self,
        limit: int,
        only: frozenset[int] | None = None,
        *,
        max_bytes: int | None = None,
        also: LetterGroups | ChosenGroup | None = None,
    ) -> None:
        self._limit = limit
        self._only = only
        self._also = also
        self._max_bytes = max_bytes
        self._bytes: dict[TopicPartition, int] = {}
        # The partitions whose letters exceed `max_bytes`.
        self.shortened: set[TopicPartition] = set()
        self._records: dict[TopicPartition, deque[_Record]] = {}
        # Records of the parts before, which are newer than those of this part.
        self._newer: dict[TopicPartition, deque[_Record]] = {}
        self._full: set[TopicPartition] = set()
        self._marked: set[tuple[TopicPartition, int]] = set()
        self.bytes_read: int = 0
        self.reached: dict[TopicPartition, int] = {}
        """The offset after the last record of this part, by partition."""

    def groups(self) -> list[LetterGroup]:
        """Return the groups of all letters."""
        return self._also.found() if isinstance(self._also, LetterGroups) else []

    def begin_older(self) -> None:
        """Take records from now on as those of a part that is older than all before."""
        for place, kept in self._records.items():
            self._newer.setdefault(place, deque()).extendleft(reversed(kept))
            kept.clear()
            if self.count(place) >= self._limit or place in self.shortened:
                self._full.add(place)
        self.reached.clear()

    def add(self, place: TopicPartition, batch: Batch, end: int) -> None:
        """Add records of a partition before `end`, in the order of their offsets."""
        kept = self._records.setdefault(place, deque())
        for row, offset in enumerate(batch.offsets):
            # A fetch may return more.
            if offset >= end:
                break
            headers = () if batch.headers is None else batch.headers[row]
            about = marked_offset(batch.values[row], headers, offset)
            if about is not None:
                self._marked.add((place, about))
                if self._also is not None:
                    self._also.mark(place, about)
            elif self._only is None or offset in self._only:
                record = (batch.keys[row], batch.values[row], batch.timestamps[row], headers)
                self.bytes_read += _size(record) + sum(len(value or b"") for _, value in headers)
                if self._also is not None:
                    self._also.add(letter_of(place, offset, record, redriven=False))
                if (
                    self._only is not None
                    and self._max_bytes is not None
                    and kept
                    and self._bytes[place] + _size(record) > self._max_bytes
                ):
                    # Keep the first letters.
                    self._full.add(place)
                if place not in self._full:
                    kept.append((offset, record))
                    self._bytes[place] = self._bytes.get(place, 0) + _size(record)
                    self._bound(place, kept)
            self.reached[place] = offset + 1

    def _bound(self, place: TopicPartition, kept: deque[_Record]) -> None:
        while kept and self.count(place) > self._limit:
            self._bytes[place] -= _size(kept.popleft()[1])
        while (
            self._max_bytes is not None
            and kept
            and self.count(place) > 1
            and self._bytes[place] > self._max_bytes
        ):
            self._bytes[place] -= _size(kept.popleft()[1])
            self.shortened.add(place)

    def marked(self, place: TopicPartition) -> set[int]:
        """Return the offsets of the letters of a partition that have markers."""
        return {offset for one, offset in self._marked if one == place}

    def count(self, place: TopicPartition) -> int:
        """Return the number of letters of a partition."""
        return len(self._records.get(place, ())) + len(self._newer.get(place, ()))

    def letters(self) -> list[Letter]:
        """Return all letters; letters that were written back are marked."""
        return [
            letter_of(place, offset, record, redriven=(place, offset) in self._marked)
            for place, records in self._records.items()
            for offset, record in (*records, *self._newer.get(place, ()))
        ]


def _size(record: _Content) -> int:
    key, value, _, _ = record
    return len(key or b"") + len(value or b"")
