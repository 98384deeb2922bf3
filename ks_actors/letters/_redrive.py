"""The way back of a dead letter to its source."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from ks_actors._errors import (
    InvalidRecord,
    LogTimeout,
    ProduceFailed,
    RecordTooLarge,
    RedriveRefused,
)
from ks_actors.letters._letter import MARKER, ORIGIN, Letter
from ks_actors.letters._read import letters_at, marked_between
from ks_actors.lifecycle import check_timeout
from ks_actors.log import GroupMetadata, IsolationLevel, Outgoing
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from ks_actors.log import Log, TransactionalProducer
    from ks_actors.records import TopicPartition

_TRANSACTION_MS = 10_000
_LOOK_AGAIN_S = 0.05
_NO_MEMBER = GroupMetadata("", -1, "")


async def redrive(
    log: Log,
    place: TopicPartition,
    offset: int,
    *,
    application_id: str,
    timeout_ms: int | timedelta = 10_000,
) -> Letter:
    """Write the record of a dead letter back to its source partition, once; return the letter.

    The record has its own key, value, timestamp and headers, and one more header that names the
    letter. A marker in the dead letter topic, written in the same transaction, keeps it from being
    written twice. Concurrent callers write it once, whatever their application ids: the caller with
    the first marker succeeds, and a later caller of the same id fences an earlier caller. Waits for
    transactions that are open in the dead letter topic, because they hide markers.

    Raises RedriveRefused when there is no such letter, when its source is unknown or when it was
    written back before. Raises LogTimeout when transactions stay open for `timeout_ms`. Raises
    Fenced, LogTimeout and other errors of the log: then nothing has become visible, but after a
    LogTimeout of the commit everything may be visible.
    """
    timeout_ms = check_timeout(timeout_ms)

    async def chosen() -> tuple[list[Letter], int]:
        found, end = await letters_at(
            log, place, [offset], client_id="letters", timeout_ms=timeout_ms
        )
        return [_checked(next(iter(found), None), place, offset)], end

    lot = await _written_back(log, place, chosen, application_id, timeout_ms)
    if lot.failed:
        raise lot.failed[offset]
    if not lot.written:
        raise RedriveRefused(
            f"the dead letter at offset {offset} of {place} was written back before"
        )
    return lot.written[0]


class Lot(msgspec.Struct):
    """Letters of one partition that were to be written back together.

    `failed` has the errors of letters that their source partitions did not take, by offset. `next`
    is the offset of the first letter that was left for another call; None: there is none.
    """

    written: list[Letter] = []
    failed: dict[int, Exception] = {}
    next: int | None = None


async def redrive_letters(
    log: Log,
    place: TopicPartition,
    offsets: Sequence[int],
    *,
    application_id: str,
    timeout_ms: int = 10_000,
) -> Lot:
    """Write back letters of one partition, with a transaction for each source partition.

    Takes the first letters, up to 8 MiB. Leaves out letters that were written back before, and
    letters without a source. A letter that its source partition does not take fails; the others
    are written. If the log names no letter, all letters of that source partition fail. Raises as
    `redrive` does, but not RedriveRefused, and not ProduceFailed of a source.
    """
    after: list[int] = []

    async def chosen() -> tuple[list[Letter], int]:
        found, end = await letters_at(
            log, place, offsets, client_id="letters", timeout_ms=timeout_ms
        )
        after[:] = sorted(one for one in offsets if found and one > found[-1].offset)
        return [one for one in found if one.source is not None and not one.redriven], end

    lot = await _written_back(log, place, chosen, application_id, timeout_ms)
    lot.next = next(iter(after), None)
    return lot


async def _written_back(
    log: Log,
    place: TopicPartition,
    chosen: Callable[[], Awaitable[tuple[list[Letter], int]]],
    application_id: str,
    timeout_ms: int,
) -> Lot:
    written: list[Letter] = []
    failed: dict[int, Exception] = {}
    producer = await log.transactional_producer(
        f"{application_id}-redrive",
        client_id=f"{application_id}-redrive",
        timeout_ms=_TRANSACTION_MS,
    )
    try:
        # Read the end only after the producer has fenced others of its id: by now all of their
        # markers are written.
        end = (await log.end_offsets([place], IsolationLevel.READ_UNCOMMITTED))[place]
        await _closed_transactions(log, place, end, timeout_ms)
        found, seen = await chosen()
        # Each source partition has a transaction of its own: if it takes nothing, no records of
        # others are aborted, which readers of uncommitted records would process twice.
        sources: dict[TopicPartition | None, list[Letter]] = {}
        for letter in found:
            sources.setdefault(letter.source, []).append(letter)
        marked: set[int] = set()
        for letters in sources.values():
            left = letters
            while left:
                # In one batch, so that no marker of another caller is between them.
                (end,) = await producer.send([_markers(left)])
                first = end - len(left)
                # Callers with other ids are not fenced. But their markers have an order: this
                # caller waits until all earlier transactions have ended, and later callers wait for
                # this caller. Markers before `seen` are known.
                await _closed_transactions(log, place, first, min(timeout_ms, _TRANSACTION_MS // 2))
                marked |= await marked_between(
                    log, place, seen, first, client_id="letters", timeout_ms=_TRANSACTION_MS // 4
                )
                seen = first
                unmarked = [letter for letter in left if letter.offset not in marked]
                if len(unmarked) == len(left):
                    refused = await _send(producer, left)
                    if not refused:
                        await producer.commit({}, _NO_MEMBER)
                        written += left
                        break
                    failed |= refused
                    unmarked = [letter for letter in left if letter.offset not in refused]
                # Begin again without letters that another caller has written back, or that failed.
                await producer.abort()
                left = unmarked
    finally:
        # Aborts an open transaction.
        await producer.close()
    return Lot(sorted(written, key=lambda letter: letter.offset), failed)


async def _send(producer: TransactionalProducer, letters: Sequence[Letter]) -> dict[int, Exception]:
    """Send the records of letters of one source; return the errors of those refused, by offset."""
    try:
        await producer.send([_record(letter) for letter in letters])
    except ProduceFailed as error:
        (why,) = error.errors.values()
        named = why.records if isinstance(why, RecordTooLarge | InvalidRecord) else ()
        return {letters[index].offset: error for index in named or range(len(letters))}
    return {}


def _markers(letters: Sequence[Letter]) -> Outgoing:
    """Return the records that say in the dead letter topic that letters were written back."""
    return Outgoing(
        letters[0].place,
        Batch(
            [letter.key for letter in letters],
            [None] * len(letters),
            [letter.timestamp for letter in letters],
            [((MARKER, str(letter.offset).encode()),) for letter in letters],
        ),
    )


def _record(letter: Letter) -> Outgoing:
    """Return the failed record, with a header that names its letter."""
    place, source = letter.place, letter.source
    assert source is not None
    origin = (ORIGIN, f"{place.topic}-{place.partition}@{letter.offset}".encode())
    headers = (*(pair for pair in letter.headers if pair[0] != ORIGIN), origin)
    return Outgoing(source, Batch([letter.key], [letter.value], [letter.timestamp], [headers]))


async def _closed_transactions(log: Log, place: TopicPartition, end: int, timeout_ms: int) -> None:
    """Wait until all records of a partition before `end` are committed or aborted.

    An open transaction of another writer, such as the app itself, hides the markers after it.
    """
    stable = -1
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            while True:
                stable = (await log.end_offsets([place], IsolationLevel.READ_COMMITTED))[place]
                if stable >= end:
                    return
                await asyncio.sleep(_LOOK_AGAIN_S)
    except TimeoutError:
        raise LogTimeout(
            f"a transaction is open in {place} from offset {stable} on, and did not end within "
            f"{timeout_ms} ms; it may hide that the letter was written back before: try again"
        ) from None


def _checked(letter: Letter | None, place: TopicPartition, offset: int) -> Letter:
    """Return a letter that can be written back. Raises RedriveRefused."""
    if letter is None:
        raise RedriveRefused(f"there is no dead letter at offset {offset} of {place}")
    if letter.redriven:
        raise RedriveRefused(
            f"the dead letter at offset {offset} of {place} was written back to {letter.source} "
            "before"
        )
    if letter.source is None:
        raise RedriveRefused(
            f"the dead letter at offset {offset} of {place} does not name its source partition: "
            "it came from a punctuation, from several records, or from another program"
        )
    return letter
