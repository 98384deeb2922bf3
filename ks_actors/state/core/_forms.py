"""The forms in which users put and get the entries of a store."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeAlias, TypeVar, final

from ks_actors.state.core._codec_with_headers import checked_headers
from ks_actors.state.core._entry import entry_with, headers_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Headers
    from ks_actors.state.core._codec import Codec
    from ks_actors.state.core._entry import Entry

V = TypeVar("V")
Take: TypeAlias = "Callable[[Any], Entry | None]"
"""A function that makes an entry of a user's value."""


class ValueAndTimestamp(NamedTuple, Generic[V]):
    """A value and its timestamp (ms)."""

    value: V
    timestamp: int


class ValueTimestampHeaders(NamedTuple, Generic[V]):
    """A value, its timestamp (ms) and its headers, as in Kafka Streams (KIP-1271)."""

    value: V
    timestamp: int
    headers: Headers = ()


class AggregationWithHeaders(NamedTuple, Generic[V]):
    """An aggregate of a session and its headers, as in Kafka Streams (KIP-1271)."""

    aggregation: V
    headers: Headers = ()


@final
class Form:
    """The two conversions between an entry and the user's form of the entry.

    `show` makes the user's form. `taker` takes the codec, and a function that returns the time for
    values without a timestamp. `taker` returns the function that makes an entry of the user's form.
    The entry is None for None, and for a form with None as value.
    """

    __slots__ = ("show", "taker")

    def __init__(
        self,
        show: Callable[[Entry], Any],
        taker: Callable[[Codec, Callable[[], int]], Take],
    ) -> None:
        self.show: Callable[[Entry], Any] = show
        self.taker: Callable[[Codec, Callable[[], int]], Take] = taker


def _plain(_: Codec, now: Callable[[], int]) -> Take:
    return lambda value: None if value is None else (value, now())


def _timestamped(codec: Codec, _: Callable[[], int]) -> Take:
    def take(value: Any) -> Entry | None:
        if value is None:
            return None
        if type(value) is not ValueAndTimestamp:
            _check(codec, value, ValueAndTimestamp, "a value is put with its timestamp")
        return None if value[0] is None else (value[0], codec.checked_time(value[1]))

    return take


def _with_headers(codec: Codec, _: Callable[[], int]) -> Take:
    def take(value: Any) -> Entry | None:
        if value is None:
            return None
        _check(codec, value, ValueTimestampHeaders, "a value is put with its timestamp and headers")
        content, time, headers = value
        if content is None:
            return None
        return entry_with(content, codec.checked_time(time), checked_headers(headers, codec.name))

    return take


def _aggregation(codec: Codec, now: Callable[[], int]) -> Take:
    def take(value: Any) -> Entry | None:
        if value is None:
            return None
        _check(codec, value, AggregationWithHeaders, "an aggregate is put with its headers")
        content, headers = value
        if content is None:
            return None
        return entry_with(content, now(), checked_headers(headers, codec.name))

    return take


def _check(codec: Codec, value: Any, form: type[tuple[Any, ...]], rule: str) -> None:
    names: tuple[str, ...] = form._fields  # type: ignore[attr-defined]
    if not (isinstance(value, tuple) and len(value) == len(names)):
        arguments = ", ".join(names).replace("timestamp", "timestamp_ms")
        raise TypeError(
            f"store {codec.name}: {rule}, got {value!r}: give {form.__name__}({arguments})"
        )


PLAIN_FORM: Final = Form(itemgetter(0), _plain)
"""A value, as it is; its time is that of the record."""
TIMESTAMPED_FORM: Final = Form(ValueAndTimestamp._make, _timestamped)
"""A ValueAndTimestamp."""
HEADERS_FORM: Final = Form(
    lambda entry: ValueTimestampHeaders(entry[0], entry[1], headers_of(entry)), _with_headers
)
"""A ValueTimestampHeaders."""
AGGREGATION_FORM: Final = Form(
    lambda entry: AggregationWithHeaders(entry[0], headers_of(entry)), _aggregation
)
"""An AggregationWithHeaders; its time is that of the record."""
