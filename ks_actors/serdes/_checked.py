"""Serializers of a user's serdes, checked to return bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes._serde import Serde

_OURS: Final = __name__.partition(".")[0] + "."


def checked_serializer(
    serde: Serde[Any], topic: str, *, is_key: bool = False, null: bool = False
) -> Callable[[Any], Any]:
    """Return the serializer of a serde for `topic`; it raises TypeError unless it returns bytes.

    Bytearrays and memoryviews become bytes. With `null` it may also return None, for a record
    without the key or the value. Serdes of this package return bytes, and are not checked.
    """
    # Unchecked bytes would fail in a batch of records, where nothing tells which one is at fault.
    serialize = serde.serializer(topic, is_key=is_key)
    if type(serde).__module__.startswith(_OURS) and not getattr(serde, "given", False):
        return serialize

    def checked(value: Any) -> Any:
        data: Any = serialize(value)
        if type(data) is bytes or (data is None and null):
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        role = "key" if is_key else "value"
        raise TypeError(
            f"{serde!r} returned {type(data).__name__} for a {role}: a serializer returns bytes"
        )

    return checked
