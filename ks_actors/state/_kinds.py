"""The registry of store kinds: the classes that make and read each kind.

Add a kind of store here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ks_actors.state._custom import CustomReader, CustomStore
from ks_actors.state.core import Codec, CodecWithHeaders, Engine, StoreForTasks
from ks_actors.state.join_window import JoinWindowLookups
from ks_actors.state.key_value import (
    KeyValueBase,
    KeyValueReader,
    KeyValueStore,
    KeyValueStoreWithHeaders,
    TimestampedKeyValueStore,
)
from ks_actors.state.session import SessionReader, SessionStore, SessionStoreWithHeaders
from ks_actors.state.versioned import VersionCodec, VersionedKeyValueStore, VersionedReader
from ks_actors.state.window import (
    ByStartTimestampedWindowStore,
    ByStartWindowStore,
    ByStartWindowStoreWithHeaders,
    DuplicatesReader,
    DuplicatesTimestampedWindowStore,
    DuplicatesWindowStore,
    SingleTimestampedWindowStore,
    SingleWindowStore,
    SingleWindowStoreWithHeaders,
    WindowReader,
    WindowsByKey,
    WindowsByStart,
    window_class,
)
from ks_actors.topology import HEADED, StoreKind, StoreSpec

if TYPE_CHECKING:
    from ks_actors.records import Headers

AnyStore: TypeAlias = (
    KeyValueStore[Any, Any]
    | TimestampedKeyValueStore[Any, Any]
    | KeyValueStoreWithHeaders[Any, Any]
    | SingleWindowStore[Any, Any]
    | SingleTimestampedWindowStore[Any, Any]
    | ByStartWindowStore[Any, Any]
    | ByStartTimestampedWindowStore[Any, Any]
    | DuplicatesWindowStore[Any, Any]
    | DuplicatesTimestampedWindowStore[Any, Any]
    | SingleWindowStoreWithHeaders[Any, Any]
    | ByStartWindowStoreWithHeaders[Any, Any]
    | SessionStore[Any, Any]
    | SessionStoreWithHeaders[Any, Any]
    | VersionedKeyValueStore[Any, Any]
    | CustomStore
)
AnyReader: TypeAlias = (
    KeyValueReader
    | WindowReader
    | DuplicatesReader
    | SessionReader
    | VersionedReader
    | CustomReader
)
Make: TypeAlias = Callable[
    [Codec, Engine | None, bytes, Callable[[], int], StoreSpec, Callable[[int], None]],
    StoreForTasks,
]
"""A factory of stores.

Its arguments are the codec, the engine, the prefix of the store's keys there, a function for the
current record's time, the spec, and a counter of late puts.
"""


def _key_value(
    codec: Codec,
    engine: Engine | None,
    prefix: bytes,
    record_time: Callable[[], int],
    spec: StoreSpec,
    _: Callable[[int], None],
) -> StoreForTasks:
    return KeyValueStore(codec, engine, prefix, record_time, logged=spec.logging)


def _timestamped_key_value(
    codec: Codec,
    engine: Engine | None,
    prefix: bytes,
    record_time: Callable[[], int],
    spec: StoreSpec,
    _: Callable[[int], None],
) -> StoreForTasks:
    return TimestampedKeyValueStore(codec, engine, prefix, record_time, logged=spec.logging)


def _key_value_with_headers(
    codec: Codec,
    engine: Engine | None,
    prefix: bytes,
    record_time: Callable[[], int],
    spec: StoreSpec,
    _: Callable[[int], None],
) -> StoreForTasks:
    return KeyValueStoreWithHeaders(codec, engine, prefix, record_time, logged=spec.logging)


def _window(
    codec: Codec,
    engine: Engine | None,
    prefix: bytes,
    record_time: Callable[[], int],
    spec: StoreSpec,
    expired: Callable[[int], None],
) -> StoreForTasks:
    return window_class(spec, timestamped=codec.timestamped, headed=codec.headed)(
        codec, engine, prefix, record_time, spec, expired
    )


def _versioned(
    codec: Codec,
    engine: Engine | None,
    prefix: bytes,
    record_time: Callable[[], int],
    spec: StoreSpec,
    expired: Callable[[int], None],
) -> StoreForTasks:
    return VersionedKeyValueStore(
        VersionCodec(spec, codec.topic), engine, prefix, record_time, spec, expired
    )


MAKERS: Final[dict[StoreKind, Make]] = {
    StoreKind.KEY_VALUE: _key_value,
    StoreKind.TIMESTAMPED_KEY_VALUE: _timestamped_key_value,
    StoreKind.WINDOW: _window,
    StoreKind.TIMESTAMPED_WINDOW: _window,
    StoreKind.SESSION: SessionStore,
    StoreKind.VERSIONED: _versioned,
    StoreKind.KEY_VALUE_WITH_HEADERS: _key_value_with_headers,
    StoreKind.WINDOW_WITH_HEADERS: _window,
    StoreKind.SESSION_WITH_HEADERS: SessionStoreWithHeaders,
}
TIMESTAMPED: Final = frozenset(
    {
        StoreKind.TIMESTAMPED_KEY_VALUE,
        StoreKind.TIMESTAMPED_WINDOW,
        StoreKind.KEY_VALUE_WITH_HEADERS,
        StoreKind.WINDOW_WITH_HEADERS,
    }
)
"""Kinds of stores with timestamped values, in the engine too."""

READERS: Final[dict[type[Any], Callable[[Any], AnyReader]]] = {
    KeyValueBase: KeyValueReader,
    WindowsByKey: WindowReader,
    WindowsByStart: WindowReader,
    JoinWindowLookups: DuplicatesReader,
    SessionStore: SessionReader,
    VersionedKeyValueStore: VersionedReader,
    CustomStore: CustomReader,
}
"""The reader of each store class; the first match wins."""


def codec_of(spec: StoreSpec, topic: str, record_headers: Callable[[], Headers]) -> Codec:
    """Return the codec of a store of any kind but versioned and custom ones."""
    timestamped = spec.kind in TIMESTAMPED
    if spec.kind not in HEADED:
        return Codec(spec, topic, timestamped=timestamped)
    return CodecWithHeaders(spec, topic, timestamped=timestamped, record_headers=record_headers)


def reader_of(store: StoreForTasks) -> AnyReader:
    """Return the reader of a store."""
    return next(reader(store) for kind, reader in READERS.items() if isinstance(store, kind))
