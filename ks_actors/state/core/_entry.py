"""The entries of stores: values with their timestamps, and with headers in stores that keep them.

An entry is a plain tuple of value and timestamp (ms). With headers it is an EntryWithHeaders, which
can be read as a plain tuple. So operators can ignore headers, and make entries without headers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeAlias, final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Headers

Entry: TypeAlias = tuple[Any, int]
"""A value and its timestamp (ms)."""


@final
class EntryWithHeaders(tuple[Any, int]):  # noqa: SLOT001 - a tuple cannot have slots
    """A value and its timestamp (ms), with headers."""

    headers: Headers

    def __new__(cls, value: Any, timestamp: int, headers: Headers) -> Self:
        """Make an entry with these headers, at least one."""
        entry = tuple.__new__(cls, (value, timestamp))
        entry.headers = headers
        return entry


@final
class TimeWithHeaders(int):
    """The time (ms) of a delete, with the headers of the record that deleted."""

    headers: Headers

    def __new__(cls, time: int, headers: Headers) -> Self:
        """Make a time with these headers, at least one."""
        made = int.__new__(cls, time)
        made.headers = headers
        return made


def entry_with(value: Any, timestamp: int, headers: Headers) -> Entry:
    """Return an entry with these headers; without any it is a plain tuple."""
    return EntryWithHeaders(value, timestamp, headers) if headers else (value, timestamp)


def headers_of(entry: Entry) -> Headers:
    """Return the headers of an entry; most entries have none."""
    return entry.headers if type(entry) is EntryWithHeaders else ()


def headers_of_delete(time: int) -> Headers:
    """Return the headers that came with the time of a delete."""
    return time.headers if type(time) is TimeWithHeaders else ()


def with_value(entry: Entry, value: Any) -> Entry:
    """Return an entry with another value, and the same timestamp and headers."""
    return entry_with(value, entry[1], headers_of(entry))


def no_record() -> Headers:
    """Return no headers: the default for stores that are used without a current record."""
    return ()


RecordHeaders: TypeAlias = "Callable[[], Headers]"
"""A function that returns the headers of the current record."""
