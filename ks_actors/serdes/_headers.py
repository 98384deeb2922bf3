"""Serdes that take the record's headers, too."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from ks_actors.lifecycle import component_log
from ks_actors.records import Batch
from ks_actors.serdes._serde import Serde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Headers

_log = component_log(__name__)
T = TypeVar("T")

MutableHeaders: TypeAlias = list[tuple[str, bytes | None]]
"""The headers of one record, in order: names may repeat."""


class HeaderSerde(Serde[T]):
    """Base class of serdes that read or change the record's headers.

    Sources and sinks call the functions `with_headers`, the key's before the value's. The two share
    one list of headers: a sink writes the headers that its serializers leave there, and nodes after
    a source see those that its deserializers leave there. Dead letters keep the headers that the
    record has in the log.

    Rows of stores, records of changelogs and serdes within other serdes have no headers of their
    own: there `serializer` and `deserializer` are called, which must work without headers. Batches
    of records without any header are read by `deserializer`, too.
    """

    adds_headers: bool = True
    """Whether serializers add headers to records that have none; if not, write those in batches."""

    @abstractmethod
    def serializer_with_headers(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[T, MutableHeaders], bytes]:
        """Return the function that encodes a key or a value of `topic`; it may change headers."""

    @abstractmethod
    def deserializer_with_headers(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[bytes, MutableHeaders], T]:
        """Return the function that decodes bytes of `topic`; it may change headers.

        Without a header that it knows, it must do as `deserializer` does.
        """


def writer(
    serde: Serde[T], topic: str, *, is_key: bool = False
) -> Callable[[T, MutableHeaders], bytes]:
    """Return the function that encodes with headers, for any serde."""
    if isinstance(serde, HeaderSerde):
        return serde.serializer_with_headers(topic, is_key=is_key)
    plain = serde.serializer(topic, is_key=is_key)
    return lambda value, _: plain(value)


def reader(
    serde: Serde[T], topic: str, *, is_key: bool = False
) -> Callable[[bytes, MutableHeaders], T]:
    """Return the function that decodes with headers, for any serde."""
    if isinstance(serde, HeaderSerde):
        return serde.deserializer_with_headers(topic, is_key=is_key)
    plain = serde.deserializer(topic, is_key=is_key)
    return lambda data, _: plain(data)


def rows_of_topic(key: Any, value: Any, topic: str) -> Callable[[Batch], Batch] | None:
    """Return the function that turns a source topic's records into rows of a store.

    Rows have no headers, so keys and values are serialized again without headers. Records that
    cannot be read are left out: the deserialization handler has decided about them. Returns None if
    neither serde takes headers.
    """
    if not (isinstance(key, HeaderSerde) or isinstance(value, HeaderSerde)):
        return None
    rewrite_key = _rewriter(key, topic, is_key=True)
    rewrite_value = _rewriter(value, topic, is_key=False)

    def rows(batch: Batch) -> Batch:
        if batch.headers is None:
            return batch
        readable = [True] * len(batch)
        rows: list[tuple[bytes | None, bytes | None, Headers]] = []
        for at, (data, content, given) in enumerate(
            zip(batch.keys, batch.values, batch.headers, strict=True)
        ):
            headers = list(given)
            try:
                row = rewrite_key(data, headers), rewrite_value(content, headers)
            except Exception as error:  # noqa: BLE001 - bytes may be anything
                readable[at] = False
                _log.warning(
                    "offset %s of %s cannot be read, so it makes no row: the deserialization "
                    "handler has decided about it before: %r",
                    batch.offsets[at] if batch.offsets else "?",
                    topic,
                    error,
                )
            else:
                rows.append((*row, tuple(headers)))
        left = batch if len(rows) == len(batch) else batch.select(readable)
        return Batch(
            [row[0] for row in rows],
            [row[1] for row in rows],
            left.timestamps,
            [row[2] for row in rows],
            left.offsets,
        )

    return rows


def _rewriter(
    serde: Any, topic: str, *, is_key: bool
) -> Callable[[bytes | None, MutableHeaders], bytes | None]:
    if not isinstance(serde, HeaderSerde):
        return lambda data, _: data
    read = serde.deserializer_with_headers(topic, is_key=is_key)
    write = serde.serializer(topic, is_key=is_key)
    return lambda data, headers: None if data is None else write(read(data, headers))
