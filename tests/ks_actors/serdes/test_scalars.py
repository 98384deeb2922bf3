"""Kafka's own serdes."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import SerializationError
from ks_actors.serdes import BOOLEAN, BYTES, DOUBLE, FLOAT, INTEGER, LONG, SHORT, STRING, UUID, VOID, Serde

# Written by the serializers of kafka-clients 4.3.1.
JAVA: list[tuple[Serde[Any], Any, str]] = [
    (SHORT, 0, "0000"),
    (SHORT, -1, "ffff"),
    (SHORT, 258, "0102"),
    (SHORT, 32767, "7fff"),
    (SHORT, -32768, "8000"),
    (INTEGER, 1, "00000001"),
    (INTEGER, -1, "ffffffff"),
    (INTEGER, 258, "00000102"),
    (INTEGER, 2147483647, "7fffffff"),
    (INTEGER, -2147483648, "80000000"),
    (LONG, 0, "0000000000000000"),
    (LONG, -1, "ffffffffffffffff"),
    (LONG, 1700000000000, "0000018bcfe56800"),
    (LONG, 9223372036854775807, "7fffffffffffffff"),
    (LONG, -9223372036854775808, "8000000000000000"),
    (FLOAT, 0.0, "00000000"),
    (FLOAT, -0.0, "80000000"),
    (FLOAT, 1.5, "3fc00000"),
    (FLOAT, -2.25, "c0100000"),
    (FLOAT, float("inf"), "7f800000"),
    (DOUBLE, -0.0, "8000000000000000"),
    (DOUBLE, 0.1, "3fb999999999999a"),
    (DOUBLE, 1.7976931348623157e308, "7fefffffffffffff"),
    (DOUBLE, 5e-324, "0000000000000001"),
    (DOUBLE, float("-inf"), "fff0000000000000"),
    (STRING, "", ""),
    (STRING, "abc", "616263"),
    (STRING, "\u00e9\u4e2d", "c3a9e4b8ad"),
    (STRING, "\U0001f600", "f09f9880"),
    (BOOLEAN, True, "01"),
    (BOOLEAN, False, "00"),
    (UUID, uuid.UUID("123e4567-e89b-12d3-a456-426614174000"), b"123e4567-e89b-12d3-a456-426614174000".hex()),
    (BYTES, b"\x00\xff", "00ff"),
]

VALUES: list[tuple[Serde[Any], st.SearchStrategy[Any]]] = [
    (STRING, st.text()),
    (BYTES, st.binary()),
    (SHORT, st.integers(-(1 << 15), (1 << 15) - 1)),
    (INTEGER, st.integers(-(1 << 31), (1 << 31) - 1)),
    (LONG, st.integers(-(1 << 63), (1 << 63) - 1)),
    (FLOAT, st.floats(width=32, allow_nan=False)),
    (DOUBLE, st.floats(allow_nan=False)),
    (BOOLEAN, st.booleans()),
    (UUID, st.uuids()),
]


def both(serde: Serde[Any]) -> tuple[Any, Any]:
    return serde.serializer("topic"), serde.deserializer("topic", is_key=True)


@pytest.mark.parametrize(("serde", "value", "written"), JAVA)
def test_bytes_are_those_of_java(serde: Serde[Any], value: Any, written: str) -> None:
    """To the last bit, both ways."""
    serialize, deserialize = both(serde)
    assert serialize(value).hex() == written
    assert repr(deserialize(bytes.fromhex(written))) == repr(value)


@given(st.sampled_from(VALUES).flatmap(lambda pair: st.tuples(st.just(pair[0]), pair[1], pair[1])))
def test_written_values_are_read_back(case: tuple[Serde[Any], Any, Any]) -> None:
    """A faithful serde gives equal bytes to equal values, and different bytes to different ones."""
    serde, value, other = case
    serialize, deserialize = both(serde)
    assert deserialize(serialize(value)) == value
    assert serde.immutable
    if serde.faithful:
        assert hash(deserialize(serialize(value))) == hash(value)
        assert (serialize(value) == serialize(other)) == (value == other)


def test_numbers_that_have_two_zeros_are_not_faithful() -> None:
    """0.0 equals -0.0, their bytes do not."""
    assert not FLOAT.faithful
    assert not DOUBLE.faithful


@pytest.mark.parametrize(("serde", "size"), [(SHORT, 2), (INTEGER, 4), (FLOAT, 4), (LONG, 8), (DOUBLE, 8), (UUID, 36)])
@pytest.mark.parametrize("more", [-1, 1])
def test_bytes_of_another_length_are_bad(serde: Serde[Any], size: int, more: int) -> None:
    """The error names the serde, the expected form and the bytes."""
    with pytest.raises(SerializationError, match=f"is {size} bytes, got {size + more}: b'0"):
        serde.deserializer("topic")(b"0" * (size + more))


@pytest.mark.parametrize(
    ("serde", "bad"),
    [
        (STRING, b"\xff"),
        (STRING, b"\xc3"),
        (BOOLEAN, b"\x02"),
        (BOOLEAN, b""),
        (BOOLEAN, b"\x01\x01"),
        (UUID, b"x" * 36),
        (UUID, b'"' * 36),
        (VOID, b""),
    ],
)
def test_bytes_that_mean_nothing_are_bad(serde: Serde[Any], bad: bytes) -> None:
    """Any error counts."""
    with pytest.raises(Exception):  # noqa: B017 - any exception is how a serde says so
        serde.deserializer("topic")(bad)


@pytest.mark.parametrize(
    ("serde", "bad", "error"),
    [
        (STRING, b"bytes", TypeError),
        (STRING, "\ud800", UnicodeEncodeError),
        (BYTES, "text", TypeError),
        (BYTES, bytearray(b"mutable"), TypeError),
        (SHORT, 1 << 15, struct.error),
        (INTEGER, 1 << 31, struct.error),
        (LONG, 1 << 63, struct.error),
        (LONG, 1.5, struct.error),
        (FLOAT, 1e300, OverflowError),
        (DOUBLE, "1", struct.error),
        (BOOLEAN, "yes", SerializationError),
        (UUID, "123e4567", SerializationError),
        (UUID, 5, SerializationError),
        (VOID, 0, SerializationError),
    ],
)
def test_objects_of_another_kind_are_not_written(serde: Serde[Any], bad: object, error: type[Exception]) -> None:
    """Numbers out of range are refused too."""
    with pytest.raises(error):
        serde.serializer("topic")(bad)


def test_a_serde_has_a_name() -> None:
    """For messages and reprs."""
    assert repr(LONG) == "<Serde LONG>"


def test_two_functions_make_a_serde() -> None:
    """Promises are made by the user alone."""
    serde: Serde[int] = Serde.of(lambda value: str(value).encode(), int)
    assert both(serde)[0](7) == b"7"
    assert both(serde)[1](b"7") == 7
    assert (serde.faithful, serde.immutable, repr(serde)) == (False, False, "<Serde of two functions>")
    promising = Serde.of(str.encode, bytes.decode, faithful=True, immutable=True, name="text")
    assert (promising.faithful, promising.immutable, repr(promising)) == (True, True, "<Serde text>")


def test_a_users_serde_promises_nothing_unless_it_says_so() -> None:
    """The serde is told the topic that it works for."""

    class Tagged(Serde[str]):
        def serializer(self, topic: str, *, is_key: bool = False) -> Any:
            return lambda value: f"{topic}:{is_key}:{value}".encode()

        def deserializer(self, topic: str, *, is_key: bool = False) -> Any:
            return lambda data: data.decode().removeprefix(f"{topic}:{is_key}:")

    serde = Tagged()
    assert not serde.faithful
    assert not serde.immutable
    assert serde.serializer("t", is_key=True)("x") == b"t:True:x"
    assert serde.deserializer("t", is_key=True)(b"t:True:x") == "x"
