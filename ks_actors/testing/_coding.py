"""Serdes in a harness: bytes stay bytes, None stays None."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes import Serde


def encoder(serde: Serde[Any] | None, topic: str, *, is_key: bool) -> Callable[[Any], bytes | None]:
    """Return the encoder of a topic's keys or values."""
    encode = None if serde is None else serde.serializer(topic, is_key=is_key)

    def encoded(value: Any) -> bytes | None:
        return (
            value if value is None or encode is None or isinstance(value, bytes) else encode(value)
        )

    return encoded


def decoder(serde: Serde[Any] | None, topic: str, *, is_key: bool) -> Callable[[bytes | None], Any]:
    """Return the decoder of a topic's keys or values."""
    decode = None if serde is None else serde.deserializer(topic, is_key=is_key)
    return lambda data: data if data is None or decode is None else decode(data)
