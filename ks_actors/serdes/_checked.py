"""Serializers of a user's serdes, checked to return bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors.lifecycle import component_log
from ks_actors.serdes._headers import HeaderSerde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes._headers import MutableHeaders
    from ks_actors.serdes._serde import Serde

_log = component_log(__name__)
_OURS: Final = __name__.partition(".")[0] + "."
_COMPARED: Final = 10
"""The number of keys that are written twice."""


def checked_serializer(
    serde: Serde[Any],
    topic: str,
    *,
    is_key: bool = False,
    null: bool = False,
    headers: MutableHeaders | None = None,
) -> Callable[[Any], Any]:
    """Return the serializer of a serde for `topic`; it raises TypeError unless it returns bytes.

    Bytearrays and memoryviews become bytes. With `null` it may also return None, for a record
    without the key or the value. A serde that takes headers gets the list `headers`, if there is
    one: the caller puts each record's headers there before the call. Serdes of this package return
    bytes, and are not checked. The first keys are written twice, and a warning tells if their bytes
    differ.
    """
    # Other types would fail in a batch of records, and the error could not name the record.
    serialize = again = serde.serializer(topic, is_key=is_key)
    if headers is not None and isinstance(serde, HeaderSerde):
        write = serde.serializer_with_headers(topic, is_key=is_key)
        serialize, again = (
            lambda value: write(value, headers),
            lambda value: write(value, [*headers]),
        )
    if type(serde).__module__.startswith(_OURS) and not getattr(serde, "given", False):
        return serialize

    compared = 0 if is_key else _COMPARED

    def checked(value: Any) -> Any:
        nonlocal compared
        data: Any = serialize(value)
        if compared < _COMPARED:
            compared += 1
            if again(value) != data:
                compared = _COMPARED
                tell_of_varying(serde, f"keys of {topic}", "find no row again by its key")
        if type(data) is bytes or (data is None and null):
            return data
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        role = "key" if is_key else "value"
        raise TypeError(
            f"{serde!r} returned {type(data).__name__} for a {role}: a serializer returns bytes"
        )

    return checked


def tell_of_varying(serde: Serde[Any], written: str, harm: str) -> None:
    """Warn of a serde that does not write the same object as the same bytes each time."""
    _log.warning(
        "%r writes equal %s as different bytes, so the app may %s: write equal objects as equal "
        "bytes, without times or random numbers, and with the items of sets in order",
        serde,
        written,
        harm,
    )
