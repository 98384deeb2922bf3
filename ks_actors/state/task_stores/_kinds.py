"""The registry of store kinds: the classes that make and read each kind.

Add a kind of store here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from ks_actors.state.core import Codec, CodecWithHeaders, StoreForTasks, StoreParts
from ks_actors.state.custom import CustomReader, CustomStore
from ks_actors.state.join_window import JoinWindowLookups
from ks_actors.state.key_value import (
    KeyValueBase,
    KeyValueReader,
    KeyValueStore,
    KeyValueStoreWithHeaders,
    TimestampedKeyValueStore,
)
from ks_actors.state.session import SessionReader, SessionStore, SessionStoreWithHeaders
from ks_actors.state.timed import TimedStore
from ks_actors.state.versioned import VersionCodec, VersionedKeyValueStore, VersionedReader
from ks_actors.state.window import (
    DuplicatesReader,
    WindowReader,
    window_store,
)
from ks_actors.topology import HEADED, StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Headers

AnyReader: TypeAlias = (
    KeyValueReader
    | WindowReader
    | DuplicatesReader
    | SessionReader
    | VersionedReader
    | CustomReader
)

MAKERS: Final[dict[StoreKind, Callable[[StoreParts], StoreForTasks]]] = {
    StoreKind.KEY_VALUE: KeyValueStore,
    StoreKind.TIMESTAMPED_KEY_VALUE: TimestampedKeyValueStore,
    StoreKind.KEY_VALUE_WITH_HEADERS: KeyValueStoreWithHeaders,
    StoreKind.WINDOW: window_store,
    StoreKind.TIMESTAMPED_WINDOW: window_store,
    StoreKind.WINDOW_WITH_HEADERS: window_store,
    StoreKind.SESSION: SessionStore,
    StoreKind.SESSION_WITH_HEADERS: SessionStoreWithHeaders,
    StoreKind.VERSIONED: VersionedKeyValueStore,
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
    SessionStore: SessionReader,
    TimedStore: WindowReader,
    JoinWindowLookups: DuplicatesReader,
    VersionedKeyValueStore: VersionedReader,
    CustomStore: CustomReader,
}
"""The reader of each store class; the first match wins."""


def codec_of(spec: StoreSpec, topic: str, record_headers: Callable[[], Headers]) -> Codec:
    """Return the codec of a store of any kind but custom ones."""
    if spec.kind is StoreKind.VERSIONED:
        return VersionCodec(spec, topic)
    timestamped = spec.kind in TIMESTAMPED
    if spec.kind not in HEADED:
        return Codec(spec, topic, timestamped=timestamped)
    return CodecWithHeaders(spec, topic, timestamped=timestamped, record_headers=record_headers)


def reader_of(store: StoreForTasks) -> AnyReader:
    """Return the reader of a store."""
    return next(reader(store) for kind, reader in READERS.items() if isinstance(store, kind))
