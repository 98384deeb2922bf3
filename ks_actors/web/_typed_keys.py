"""Keys that a person types: the objects that a text can mean to the serde of a store."""

from __future__ import annotations

import json
from base64 import b64decode
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import msgpack

from ks_actors.web._answers import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.serdes import Serde

_AUTO: Final = "auto"
# The ways to read a key, in the order of attempts. Bytes are shown in the last form.
_READINGS: Final[tuple[tuple[str, Callable[[str], Any]], ...]] = (
    ("text", str),
    ("json", json.loads),
    ("hex", bytes.fromhex),
    ("text", str.encode),
    ("base64", partial(b64decode, validate=True)),
)
_SHOWN: Final = 100


def typed_keys(
    serde: Serde[Any], texts: Mapping[str, str], how: str, topic: str = ""
) -> list[dict[str, Any]]:
    """Return the keys that the texts can mean, by the names of the texts, the likeliest first.

    `topic` is the changelog of the store with the keys.

    All texts of an element are read in the same way. `how` is `auto` for all ways, or the name of
    one way. Raises Refusal if the serde accepts no key.
    """
    if how != _AUTO and how not in dict(_READINGS):
        raise Refusal(400, f"parameter 'as' is {how!r}: give auto, text, json, hex or base64")
    if not texts:
        return [{}]
    serializer = serde.serializer(topic, is_key=True)
    deserializer = serde.deserializer(topic, is_key=True)
    found = {
        name: [
            _read(read, text, serializer, deserializer)
            for way, read in _READINGS
            if how in {_AUTO, way}
        ]
        for name, text in texts.items()
    }
    ways = [
        dict(zip(found, keys, strict=True))
        for keys in zip(*found.values(), strict=True)
        if None not in keys
    ]
    # A serde of any objects accepts a text in place of a number; only their bytes differ.
    exact = [way for way in ways if all(key.exact for key in way.values())]
    if not ways:
        text = next((texts[name] for name, keys in found.items() if not any(keys)), None)
        text = " and ".join(texts.values()) if text is None else text
        raise Refusal(400, f"the store's keys are not made of {text[:_SHOWN]!r}, read as {how}")
    return [{name: key.key for name, key in way.items()} for way in exact or ways]


class _Key(NamedTuple):
    key: Any
    exact: bool
    """Whether the serde reads the object back as itself, not as an object of another type."""


def _read(
    read: Callable[[str], Any],
    text: str,
    serialize: Callable[[Any], bytes],
    deserialize: Callable[[bytes], Any],
) -> _Key | None:
    # A serde may raise any error about objects of other types.
    with suppress(Exception):
        meant = read(text)
        if meant is None:
            return None
        # Stores have keys as the serde reads them: for example a UUID where its text was typed.
        key = _key(meant, text, serialize, deserialize)
        if key is not None and isinstance(meant, bool) == isinstance(key, bool):
            return _Key(key, bool(meant == key))
    return None


def _key(
    meant: Any, text: str, serialize: Callable[[Any], bytes], deserialize: Callable[[bytes], Any]
) -> Any:
    """Return the key that a serde makes of a parsed object, or None.

    A typed serde may refuse to write that object (a dict in place of a Struct), but can read its
    JSON or MessagePack. Serdes of numbers and bytes are excluded: they would read any text of the
    right length.
    """
    with suppress(Exception):
        return deserialize(serialize(meant))
    for encode in (text.encode, partial(msgpack.encode, meant)):
        with suppress(Exception):
            key = deserialize(encode())
            if not isinstance(key, int | float | bytes):
                return key
    return None
