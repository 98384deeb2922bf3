"""The way back of a dead letter to its source."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ks_actors._errors import LogTimeout, RedriveRefused
from ks_actors.letters._letter import MARKER, ORIGIN
from ks_actors.letters._read import letters_at, read_letter
from ks_actors.lifecycle import check_timeout
from ks_actors.log import GroupMetadata, IsolationLevel, Outgoing
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from datetime import timedelta

    from ks_actors.letters._letter import Letter
    from ks_actors.log import Log
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

    async def chosen() -> list[Letter]:
        return [await _found(log, place, offset, timeout_ms)]

    (letter,) = await _written_back(log, place, chosen, application_id, timeout_ms)
    return letter


async def redrive_letters(
    log: Log,
    place: TopicPartition,
    offsets: Sequence[int],
    *,
    application_id: str,
    timeout_ms: int = 10_000,
) -> list[Letter]:
    """Write back letters of one partition in one transaction, as `redrive` does; return them.

    Leaves out letters that were written back before, and those without a source. Raises as
    `redrive` does, but not RedriveRefused.
    """

    async def chosen() -> list[Letter]:
        found = await letters_at(log, place, offsets, client_id="letters", timeout_ms=timeout_ms)
        return [letter for letter in found if letter.source is not None and not letter.redriven]

    return await _written_back(log, place, chosen, application_id, timeout_ms)


async def _written_back(
    log: Log,
    place: TopicPartition,
    chosen: Callable[[], Awaitable[list[Letter]]],
    application_id: str,
    timeout_ms: int,
) -> list[Letter]:
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
        while letters := await chosen():
            # In one batch, so that no marker of another caller is between them.
            (end,) = await producer.send([_markers(letters)])
            # Callers with other ids are not fenced. But their markers have an order: this caller
            # waits until all earlier transactions have ended, and later callers wait for this
            # caller.
            try:
                await _closed_transactions(
                    log, place, end - len(letters), min(timeout_ms, _TRANSACTION_MS // 2)
                )
                left = await chosen()
            except (LogTimeout, RedriveRefused):
                await producer.abort()
                raise
            if left != letters:
                # Another caller has written some of them back. Begin again without these.
                await producer.abort()
                continue
            await producer.send([_record(letter) for letter in letters])
            await producer.commit({}, _NO_MEMBER)
            break
    finally:
        await producer.close()
    return letters


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


async def _found(log: Log, place: TopicPartition, offset: int, timeout_ms: int) -> Letter:
    """Return a letter that can be written back. Raises RedriveRefused."""
    letter = await read_letter(log, place, offset, timeout_ms=timeout_ms)
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
