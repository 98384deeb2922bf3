"""The classes that make and read each kind of store.

Add a kind of store here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, Union

from ks_actors.state.core import Codec, CodecWithHeaders, StoreForTasks, StoreParts
from ks_actors.system import Later, is_loaded
from ks_actors.topology import HEADED, StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.records import Headers
    from ks_actors.state.custom import CustomReader
    from ks_actors.state.key_value import KeyValueReader
    from ks_actors.state.session import SessionReader
    from ks_actors.state.versioned import VersionedReader
    from ks_actors.state.window import DuplicatesReader, WindowReader

if TYPE_CHECKING:
    from ks_actors.state import custom, join_window, key_value, session, timed, versioned, window
else:
    custom, join_window = Later("ks_actors.state.custom"), Later("ks_actors.state.join_window")
    key_value, session = Later("ks_actors.state.key_value"), Later("ks_actors.state.session")
    timed, versioned = Later("ks_actors.state.timed"), Later("ks_actors.state.versioned")
    window = Later("ks_actors.state.window")

AnyReader: TypeAlias = Union[
    "KeyValueReader",
    "WindowReader",
    "DuplicatesReader",
    "SessionReader",
    "VersionedReader",
    "CustomReader",
]

TIMESTAMPED: Final = frozenset(
    {
        StoreKind.TIMESTAMPED_KEY_VALUE,
        StoreKind.TIMESTAMPED_WINDOW,
        StoreKind.KEY_VALUE_WITH_HEADERS,
        StoreKind.WINDOW_WITH_HEADERS,
    }
)
"""Kinds of stores with timestamped values, in the engine too."""


def make_store(parts: StoreParts) -> StoreForTasks:  # noqa: PLR0911 - one for each kind
    """Return a new store of any kind but custom; the first store of a kind imports its module."""
    match parts.spec.kind:
        case StoreKind.KEY_VALUE:
            return key_value.KeyValueStore(parts)
        case StoreKind.TIMESTAMPED_KEY_VALUE:
            return key_value.TimestampedKeyValueStore(parts)
        case StoreKind.KEY_VALUE_WITH_HEADERS:
            return key_value.KeyValueStoreWithHeaders(parts)
        case StoreKind.SESSION:
            return session.SessionStore(parts)
        case StoreKind.SESSION_WITH_HEADERS:
            return session.SessionStoreWithHeaders(parts)
        case StoreKind.VERSIONED:
            return versioned.VersionedKeyValueStore(parts)
        case _:
            made: StoreForTasks = window.window_store(parts)
            return made


def codec_of(spec: StoreSpec, topic: str, record_headers: Callable[[], Headers]) -> Codec:
    """Return the codec of a store of any kind but custom ones."""
    if spec.kind is StoreKind.VERSIONED:
        return versioned.VersionCodec(spec, topic)
    timestamped = spec.kind in TIMESTAMPED
    if spec.kind not in HEADED:
        return Codec(spec, topic, timestamped=timestamped)
    return CodecWithHeaders(spec, topic, timestamped=timestamped, record_headers=record_headers)


def reader_of(store: StoreForTasks) -> AnyReader:
    """Return the reader of a store."""
    if is_loaded(key_value) and isinstance(store, key_value.KeyValueBase):
        return key_value.KeyValueReader(store)
    if is_loaded(session) and isinstance(store, session.SessionStore):
        return session.SessionReader(store)
    if is_loaded(timed) and isinstance(store, timed.TimedStore):
        return window.WindowReader(store)
    if is_loaded(join_window) and isinstance(store, join_window.JoinWindowLookups):
        return window.DuplicatesReader(store)
    if is_loaded(versioned) and isinstance(store, versioned.VersionedKeyValueStore):
        return versioned.VersionedReader(store)
    assert isinstance(store, custom.CustomStore)
    return custom.CustomReader(store)
