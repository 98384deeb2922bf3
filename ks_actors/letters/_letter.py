"""One dead letter, and the marker that it was written back."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ks_actors.config import LETTER_PREFIX
from ks_actors.records import Headers, TopicPartition

MARKER: Final = "__ks_actors.redriven"
"""The header of a marker in a dead letter topic: the offset of the letter, as text."""
ORIGIN: Final = "__ks_actors.redriven_from"
"""The header of a record that was written back: topic, partition and offset of its letter."""


_TOLD: Final = {
    LETTER_PREFIX + name: name
    for name in ("exception", "message", "stacktrace", "topic", "partition", "offset")
}


class Letter(msgspec.Struct, frozen=True, kw_only=True):
    """A record in a dead letter topic, with the error from its headers (KIP-1034)."""

    topic: str
    """The dead letter topic."""
    partition: int
    """The partition of the dead letter topic."""
    offset: int
    """The offset of the letter."""
    timestamp: int
    """The timestamp of the failed record, in ms."""
    key: bytes | None
    """The raw key of the failed record."""
    value: bytes | None
    """The raw value of the failed record."""
    headers: Headers
    """The headers of the failed record itself, without those about the error."""
    exception: str | None = None
    """The class of the error."""
    message: str | None = None
    """The text of the error."""
    stacktrace: str | None = None
    """The stack of the error, with those of its causes."""
    source: TopicPartition | None = None
    """The partition that the record came from; None where several records, or none, failed."""
    source_offset: int = -1
    """The offset of the record in its source partition; -1 when unknown."""
    redriven: bool = False
    """Whether the record has been written back to its source."""

    @property
    def place(self) -> TopicPartition:
        """The partition of the letter."""
        return TopicPartition(self.topic, self.partition)


def letter_of(
    place: TopicPartition, offset: int, record: tuple[Any, Any, int, Headers], *, redriven: bool
) -> Letter:
    """Return a record of a dead letter topic as a letter."""
    key, value, timestamp, headers = record
    # The error's headers come last. Earlier headers with the same names are the record's own: the
    # record was a letter before, or its sender has set them.
    last = {_TOLD[name]: row for row, (name, _) in enumerate(headers) if name in _TOLD}
    about = {*last.values()}
    told = {name: _text(headers[row][1]) for name, row in last.items()}
    topic, number = told.get("topic"), _number(told.get("partition"))
    return Letter(
        topic=place.topic,
        partition=place.partition,
        offset=offset,
        timestamp=timestamp,
        key=key,
        value=value,
        headers=tuple(pair for row, pair in enumerate(headers) if row not in about),
        exception=told.get("exception"),
        message=told.get("message"),
        stacktrace=told.get("stacktrace"),
        source=TopicPartition(topic, number) if topic and number >= 0 else None,
        source_offset=_number(told.get("offset")),
        redriven=redriven,
    )


def marked_offset(value: bytes | None, headers: Headers, offset: int) -> int | None:
    """Return the offset of the letter that the marker at an offset refers to; None for a letter.

    A letter of a record with a marker's header also has the headers that describe its error.
    """
    if value is not None or len(headers) != 1 or headers[0][0] != MARKER:
        return None
    about = _number(_text(headers[0][1]))
    return about if 0 <= about < offset else None


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _number(text: str | None) -> int:
    try:
        return int(text or "-1")
    except ValueError:
        return -1
