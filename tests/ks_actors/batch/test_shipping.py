"""Serdes and their decoders work in the tasks of Spark as they do here."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest

from ks_actors import serdes
from ks_actors.batch._shipping import packed, unpacked


def pair(code: int, data: memoryview) -> tuple[int, bytes]:
    return code, bytes(data)


def upper(kind: type, value: Any) -> Any:
    return kind(value.upper())


class Name:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) and self.text == other.text

    __hash__ = None  # type: ignore[assignment]  # can be changed


@pytest.mark.parametrize(
    ("decoder", "data"),
    [
        (msgspec.json.Decoder(dict, float_hook=Decimal), b'{"price": 0.1}'),
        (msgspec.json.Decoder(list[Name], dec_hook=upper), b'["a"]'),
        (msgspec.json.Decoder(int, strict=False), b'"1"'),
        (msgspec.msgpack.Decoder(object, ext_hook=pair), msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"x"))),
        (msgspec.msgpack.Decoder(list[Name], dec_hook=upper), msgspec.msgpack.encode(["a"])),
        (msgspec.msgpack.Decoder(int, strict=False), msgspec.msgpack.encode("1")),
    ],
)
def test_decoders_keep_all_their_hooks_on_the_way_to_spark(decoder: Any, data: bytes) -> None:
    """So numbers that are Decimals here are Decimals there."""
    serde = serdes.Serde.of(msgspec.json.encode, decoder.decode)
    found = unpacked(packed(serde)).deserializer("t")(data)
    assert found == decoder.decode(data)
    assert type(found) is type(decoder.decode(data))
