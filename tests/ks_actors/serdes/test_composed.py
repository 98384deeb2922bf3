"""Serdes that are made from types and from other serdes."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import uuid
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors._errors import SerializationError
from ks_actors.dsl._windowed_partitioner import WindowedKeyPartitioner, default_partitioner
from ks_actors.records._partitioner import partition
from ks_actors.records._windowed import Window, Windowed
from ks_actors.serdes import BOOLEAN, DOUBLE, INTEGER, LONG, STRING, UUID, Serde, json, list_of, msgpack, session_windowed, windowed

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: float


class Bag(NamedTuple):
    items: list[int]


class Frozen(msgspec.Struct, frozen=True):
    name: str
    color: Color = Color.RED
    parent: Frozen | None = None


class Open(msgspec.Struct):
    name: str


class FrozenAroundOpen(msgspec.Struct, frozen=True):
    inner: Open


class Pair(msgspec.Struct, Generic[T], frozen=True):
    left: T
    right: T


@dataclasses.dataclass(frozen=True)
class FrozenData:
    name: str


@dataclasses.dataclass
class OpenData:
    name: str


class Typed(TypedDict):
    name: str


IMMUTABLE: list[Any] = [
    int,
    str,
    bytes,
    bool,
    float,
    None,
    Color,
    Literal["a", "b"],
    dt.datetime,
    dt.timedelta,
    decimal.Decimal,
    uuid.UUID,
    Point,
    Frozen,
    Pair[int],
    FrozenData,
    int | None,
    tuple[int, str],
    tuple[Frozen, ...],
    frozenset[str],
    Annotated[int, msgspec.Meta(gt=0)],
    Annotated[int, msgspec.Meta(title="number", extra={"unit": "ms"})],
]
MUTABLE: list[Any] = [
    Any,
    dict,
    list[int],
    set[int],
    Bag,
    Open,
    FrozenAroundOpen,
    Pair[list[int]],
    OpenData,
    Typed,
    tuple[int, list[int]],
    Open | None,
]


@pytest.mark.parametrize("type_", IMMUTABLE, ids=str)
def test_types_that_cannot_change_are_immutable(type_: Any) -> None:
    """All the way down."""
    assert json(type_).immutable
    assert msgpack(type_).immutable


@pytest.mark.parametrize("type_", MUTABLE, ids=str)
def test_types_that_can_change_are_not_immutable(type_: Any) -> None:
    """However deep the part that can."""
    assert not json(type_).immutable
    assert not msgpack(type_).immutable


@given(st.builds(Frozen, st.text(), parent=st.none() | st.builds(Frozen, st.text())))
def test_typed_values_are_read_back(value: Frozen) -> None:
    """As objects of their type."""
    for serde in (json(Frozen), msgpack(Frozen)):
        assert serde.deserializer("topic")(serde.serializer("topic")(value)) == value


@pytest.mark.parametrize("make", [json, msgpack])
def test_data_of_another_type_is_bad(make: Any) -> None:
    """For any writer."""
    data = make().serializer("topic")({"name": 5})
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$\.name`"):
        make(Frozen).deserializer("topic")(data)


@pytest.mark.parametrize("make", [json, msgpack])
def test_equal_keys_are_equal_bytes(make: Any) -> None:
    """For any order in which a dict was filled."""
    serialize = make(dict[str, int]).serializer("topic", is_key=True)
    assert serialize({"a": 1, "b": 2}) == serialize({"b": 2, "a": 1})


def test_without_a_type_anything_goes() -> None:
    """JSON as it comes."""
    serde = json()
    assert serde.serializer("topic")({"a": [1, None]}) == b'{"a":[1,null]}'
    assert serde.deserializer("topic")(b'{"a":[1,null]}') == {"a": [1, None]}


def test_names_tell_the_type() -> None:
    """For messages and reprs."""
    assert repr(json(Frozen)) == "<Serde json(Frozen)>"
    assert repr(msgpack(tuple[int, str])) == "<Serde msgpack(tuple[int, str])>"
    assert repr(json()) == "<Serde json(Any)>"
    assert repr(windowed(STRING, 10)) == "<Serde windowed(<Serde STRING>, 10)>"
    assert repr(list_of(LONG)) == "<Serde list_of(<Serde LONG>)>"


# --- windowed -------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, 1 << 60))
def test_windowed_keys_are_the_key_and_the_start(key: str, start: int) -> None:
    """The end comes from the size."""
    serde = windowed(STRING, 5_000)
    data = serde.serializer("topic")(Windowed(key, Window(start, start + 5_000)))
    assert data == key.encode() + start.to_bytes(8, "big")
    assert serde.deserializer("topic")(data) == Windowed(key, Window(start, start + 5_000))


def test_a_window_ends_at_the_last_instant_at_most() -> None:
    """As Kafka Streams has it."""
    serde = windowed(STRING, (1 << 63) - 1)
    assert serde.deserializer("topic")(b"k" + (5).to_bytes(8, "big")).window == Window(5, (1 << 63) - 1)


def test_windowed_is_as_immutable_as_its_key_and_never_faithful() -> None:
    """Windows of different ends have the same bytes."""
    assert windowed(STRING, 1).immutable
    assert not windowed(json(list[int]), 1).immutable
    assert not windowed(STRING, 1).faithful


def test_a_windowed_key_without_its_time_is_bad() -> None:
    """As is a window of no length."""
    with pytest.raises(SerializationError, match="ends with a time of 8 bytes, got 3"):
        windowed(STRING, 1).deserializer("topic")(b"abc")
    with pytest.raises(ValueError, match="at least 1 ms"):
        windowed(STRING, 0)


# --- lists ----------------------------------------------------------------------------------------------------------------

# Written by the ListSerializer of kafka-clients 4.3.1.
JAVA: list[tuple[Serde[Any], list[Any], str]] = [
    (INTEGER, [1, None, -2], "0000000001000000010000000300000001fffffffe"),
    (INTEGER, [], "000000000000000000"),
    (STRING, ["a", None, "", "xyz"], "01000000040000000161ffffffff000000000000000378797a"),
    (UUID, [uuid.UUID("123e4567-e89b-12d3-a456-426614174000")], "000000000000000001" + b"123e4567-e89b-12d3-a456-426614174000".hex()),
    (BOOLEAN, [True, False], "010000000200000001010000000100"),
]


@pytest.mark.parametrize(("inner", "values", "written"), JAVA)
def test_lists_are_those_of_java(inner: Serde[Any], values: list[Any], written: str) -> None:
    """With nulls in them."""
    serde = list_of(inner)
    assert serde.serializer("topic")(values).hex() == written
    assert serde.deserializer("topic")(bytes.fromhex(written)) == values


@given(st.lists(st.none() | st.integers(-5, 5)), st.lists(st.none() | st.text()))
def test_lists_are_read_back(numbers: list[Any], texts: list[Any]) -> None:
    """Of either format, and nested."""
    for inner, values in ((LONG, numbers), (STRING, texts)):
        serde: Serde[Any] = list_of(list_of(inner))
        assert serde.deserializer("topic")(serde.serializer("topic")([values, None])) == [values, None]


@pytest.mark.parametrize("cut", range(1, 21))
def test_a_list_that_ends_too_early_is_bad(cut: int) -> None:
    """Wherever it was cut."""
    data = bytes.fromhex(JAVA[0][2])
    with pytest.raises(SerializationError):
        list_of(INTEGER).deserializer("topic")(data[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        bytes.fromhex(JAVA[2][2]),
        bytes.fromhex(JAVA[0][2]) + b"!",
        bytes.fromhex("00ffffffff00000000"),
        bytes.fromhex("0000000000ffffffff"),
    ],
)
def test_bytes_that_are_no_list_are_bad(data: bytes) -> None:
    """Of the other format, too long, or with counts below zero."""
    with pytest.raises(SerializationError):
        list_of(INTEGER).deserializer("topic")(data)


# --- sessions -------------------------------------------------------------------------------------------------------------


@given(st.text(), st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 63) - 1))
def test_keys_with_sessions_are_the_key_the_end_and_the_start(key: str, one: int, other: int) -> None:
    """As SessionWindowedSerializer writes them."""
    start, end = sorted((one, other))
    serde, session = session_windowed(STRING), Windowed(key, Window(start, end))
    data = serde.serializer("topic", is_key=True)(session)
    assert data == key.encode() + end.to_bytes(8, "big") + start.to_bytes(8, "big")
    assert serde.deserializer("topic", is_key=True)(data) == session


def test_a_serde_of_sessions_promises_the_same_as_that_of_the_key() -> None:
    """Nothing of a session is left out of its bytes."""
    inners: tuple[Serde[Any], ...] = (STRING, DOUBLE, json(list[int]))
    for inner in inners:
        serde = session_windowed(inner)
        assert (serde.faithful, serde.immutable) == (inner.faithful, inner.immutable)
    assert repr(session_windowed(STRING)) == "<Serde session_windowed(<Serde STRING>)>"
    with pytest.raises(SerializationError, match="ends with two times of 8 bytes, got 9 in all"):
        session_windowed(STRING).deserializer("topic")(b"123456789")


def test_records_of_a_key_go_to_one_partition_for_any_session() -> None:
    """That of the key alone, as with Kafka Streams' WindowedStreamPartitioner."""
    partitioner = default_partitioner(session_windowed(STRING))
    assert isinstance(partitioner, WindowedKeyPartitioner)
    assert {partitioner("topic", Windowed("key", Window(start, 9)), None, 7) for start in range(9)} == {partition(b"key", 7)}
    assert partitioner.part(session_windowed(STRING).serializer("topic")(Windowed("key", Window(3, 9)))) == b"key"
