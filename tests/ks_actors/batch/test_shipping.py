"""Serdes and their decoders work in the tasks of Spark as they do here."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from pyspark import cloudpickle

from ks_actors import BatchError, serdes
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


def test_classes_that_cannot_be_imported_travel_with_their_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a script; msgspec has been at work with them here. Structs, whose fields would be lost, are refused."""

    @dataclasses.dataclass
    class Order:
        cents: int

    class Row(TypedDict):
        cents: int

    class Pair(NamedTuple):
        one: int
        other: int

    class Paid(msgspec.Struct):
        cents: int

    values: list[tuple[Any, Any]] = [(Order, Order(5)), (Row, {"cents": 5}), (Pair, Pair(1, 5))]
    for kind, value in values:
        serde: serdes.Serde[Any] = serdes.json(kind)
        data = serde.serializer("t")(value)
        sent = packed(serde)
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", {})  # as in a process that has never seen the class
            found = unpacked(sent)
            assert found.serializer("t")(found.deserializer("t")(data)) == data
    with pytest.raises(BatchError, match=r"Paid is a msgspec Struct of tests\..*: move it to a module, or make it a dataclass"):
        packed(serdes.json(Paid))
