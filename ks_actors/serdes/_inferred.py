"""Serdes that follow from the annotations of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, final

from ks_actors.serdes._defaults import with_default
from ks_actors.serdes._serde import Serde, is_same
from ks_actors.serdes._windowed import WindowedKeySerde

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@final
class InferredSerde(Serde[T]):
    """A serde that is used only if the app has no default serde.

    So annotations change nothing in an app that has default serdes.
    """

    def __init__(self, found: Serde[T]) -> None:
        self.faithful: bool = found.faithful
        self.immutable: bool = found.immutable
        self._found: Serde[T] = found

    def or_default(self, default: Serde[Any] | None) -> Serde[Any]:
        """Return the app's default, or the inferred serde."""
        return self._found if default is None else default

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[T], bytes]:
        """Return the function of the inferred serde."""
        return self._found.serializer(topic, is_key=is_key)

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], T]:
        """Return the function of the inferred serde."""
        return self._found.deserializer(topic, is_key=is_key)

    def __repr__(self) -> str:
        return repr(self._found)


def inferred(serde: Serde[Any] | None) -> Serde[Any] | None:
    """Return a serde that is used only if the app has no default serde.

    Returns None for a serde of windowed keys, because it also decides about partitions.
    """
    if serde is None or isinstance(serde, InferredSerde):
        return serde
    return None if isinstance(serde, WindowedKeySerde) else InferredSerde(serde)


def common(one: Serde[Any] | None, other: Serde[Any] | None) -> Serde[Any] | None:
    """Return the serde of two merged streams, as an inferred serde; None if the two differ.

    In Kafka Streams a merged stream has no serde.
    """
    return inferred(one) if is_same(with_default(one, None), with_default(other, None)) else None


def chosen(*serdes: Serde[Any] | None) -> Serde[Any] | None:
    """Return the first serde that is known, or else the first that is inferred."""
    found = [serde for serde in serdes if serde is not None]
    known = (serde for serde in found if not isinstance(serde, InferredSerde))
    return next(known, found[0] if found else None)


def is_known(serde: Serde[Any] | None) -> bool:
    """Return whether a serde is given, and not inferred."""
    return serde is not None and not isinstance(serde, InferredSerde)
