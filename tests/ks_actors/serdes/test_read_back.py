"""Typed serdes write what they read back equal, and refuse all else."""

from __future__ import annotations

import enum
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import SerializationError, serdes
from ks_actors.records import Window, Windowed
from ks_actors.serdes import for_column
from ks_actors.serdes._typed_writer import same


class Order(msgspec.Struct, frozen=True):
    customer: str
    cents: int
    weight: float = 0.0


class Parcel(msgspec.Struct):
    order: Order
    notes: list[str] = []
    extra: dict[str, float] = {}


class Special(Order, frozen=True):
    gift: bool = False


class Chain(msgspec.Struct, frozen=True):
    size: float
    rest: Chain | None = None


@dataclass(eq=False)
class Unequal:
    weight: float
    path: tuple[float, ...] = ()


@dataclass
class Doubled:
    size: int

    def __post_init__(self) -> None:
        self.size = abs(self.size)


class Row(NamedTuple):
    name: str
    size: float


class Entry(TypedDict):
    name: str
    size: float


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


TYPES: tuple[Any, ...] = (
    int,
    float,
    str,
    bytes,
    bool,
    None,
    int | None,
    float | None,
    Order,
    Parcel,
    Chain,
    Unequal,
    Doubled,
    Row,
    Entry,
    Colour,
    Rights,
    uuid.UUID,
    datetime,
    date,
    Decimal,
    list[int],
    list[float],
    set[float],
    frozenset[int],
    tuple[int, float],
    tuple[float, ...],
    dict[str, float],
    dict[str, Order],
    dict[int, str],
    Mapping[str, list[float]],
    Sequence[str],
    Order | None,
)
MAKES = (serdes.json, serdes.msgpack)
SERDES: tuple[Any, ...] = tuple(make(type_) for make in MAKES for type_ in TYPES)

ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=1)), timezone(timedelta(seconds=3208))])
NUMBERS = st.one_of(st.integers(-3, 3), st.integers(), st.floats(), st.booleans())
ATOMS = st.one_of(
    st.none(),
    NUMBERS,
    st.text(st.characters()),
    st.sampled_from(["\ud800", "é", "red", "1"]),
    st.binary(),
    st.uuids(),
    st.sampled_from([*Colour, *Rights, Rights.READ | Rights.WRITE]),
    st.datetimes(timezones=ZONES),
    st.dates(),
    st.decimals().filter(lambda number: not number.is_snan()),  # it has no hash, for sets
)
PARTS = st.one_of(
    ATOMS,
    st.builds(Order, st.text() | ATOMS, st.integers() | ATOMS, NUMBERS),
    st.builds(Special, st.text(), st.integers()),
    st.builds(Unequal, NUMBERS, st.lists(NUMBERS, max_size=2).map(tuple)),
    st.integers().map(Doubled),
    st.builds(Row, st.text() | ATOMS, NUMBERS),
    st.fixed_dictionaries({"name": st.text(), "size": NUMBERS | ATOMS}, optional={"customer": st.text()}),
    st.fixed_dictionaries({"customer": st.text(), "cents": st.integers()}),
    st.builds(Chain, NUMBERS, st.none() | st.builds(Chain, NUMBERS)),
)
VALUES = st.one_of(
    PARTS,
    st.builds(Parcel, PARTS, st.lists(st.text() | ATOMS, max_size=2), st.dictionaries(st.text() | ATOMS, NUMBERS, max_size=2)),
    st.lists(PARTS, max_size=3),
    st.lists(NUMBERS, max_size=3),
    st.lists(ATOMS, max_size=3).map(tuple),
    st.tuples(NUMBERS, NUMBERS),
    st.sets(NUMBERS, max_size=3),
    st.frozensets(ATOMS, max_size=3),
    st.dictionaries(ATOMS, PARTS, max_size=3),
)


def _written(serde: Any, value: Any, *, is_key: bool) -> bytes | None:
    """Return what a serde writes, None when it refuses."""
    try:
        data: bytes = serde.serializer("t", is_key=is_key)(value)
    except SerializationError:
        return None
    return data


@given(VALUES)
def test_typed_serdes_write_only_what_they_read_back_equal(value: Any) -> None:
    """A typed serde reads all that it takes, as key or value, as an equal object; it refuses all else."""
    for serde in (*SERDES, serdes.UUID, serdes.list_of(serdes.json(Order)), serdes.list_of(serdes.UUID)):
        for is_key in (False, True):
            data = _written(serde, value, is_key=is_key)
            if data is not None:
                assert same(value, serde.deserializer("t", is_key=is_key)(data)), serde


@given(st.lists(VALUES, max_size=4))
def test_columns_are_written_as_their_objects_are(column: list[Any]) -> None:
    """A column gives the bytes of its objects one by one, or fails when one of them is refused."""
    for serde in SERDES:
        for is_key in (False, True):
            write = serde.serializer("t", is_key=is_key)
            each = [None if value is None else _written(serde, value, is_key=is_key) for value in column]
            if any(data is None and value is not None for data, value in zip(each, column, strict=True)):
                with pytest.raises(SerializationError):
                    for_column(write)(column)
            else:
                assert for_column(write)(column) == each


@given(VALUES)
def test_written_values_have_the_bytes_of_msgspec(value: Any) -> None:
    """The checks change no byte of a value. Sets are written in order, and a dataclass with a `__dict__` as it is read back: ints as its floats."""
    for number, serde in enumerate(SERDES):
        data = _written(serde, value, is_key=False)
        if data is not None:
            encode = msgspec.json.encode if number < len(TYPES) else msgspec.msgpack.encode
            order: Any = "deterministic" if isinstance(value, set | frozenset) else None
            assert data == encode(serde.deserializer("t")(data) if isinstance(value, Unequal) else value, order=order)


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(1 << 53), 1 << 53), st.text())
def test_equal_keys_of_a_typed_number_have_equal_bytes(number: float, name: str) -> None:
    """An int where the type has a float is the same key as that float: they get the same partition."""
    for make in MAKES:
        for type_, key, as_float in (
            (float, number, float(number)),
            (Chain, Chain(number), Chain(float(number))),
            (Row, Row(name, number), Row(name, float(number))),
            (Entry, {"size": number, "name": name}, {"name": name, "size": float(number)}),
            (dict[str, float], {"b": 1, name: number}, {name: float(number), "b": 1.0} if name != "b" else {"b": float(number)}),
        ):
            write = make(type_).serializer("t", is_key=True)
            assert write(key) == write(as_float)


def test_an_int_as_a_key_of_floats_is_written_as_a_float() -> None:
    """So it is as DOUBLE does, and as a Double of Java is; a value keeps its bytes."""
    floats: Any = serdes.json(float)
    assert floats.serializer("t", is_key=True)(1) == b"1.0"
    assert floats.serializer("t")(1) == b"1"


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, {"customer": "ann", "cents": 1, "weight": 0.0}),
        (Order, {"customer": "ann"}),
        (Order, "ann"),
        (Order, Order("ann", "450")),  # type: ignore[arg-type]
        (Order, Special("ann", 1)),
        (Parcel, Parcel({"customer": "ann", "cents": 1})),  # type: ignore[arg-type]
        (int, True),
        (float, "1"),
        (str, 1),
        (str, Windowed("a", Window(0, 60_000))),
        (Order | None, 1),
        (Colour, "red"),
        (list[int], {1, 2}),
        (tuple[int, float], {1, 2.0}),
        (Parcel, Parcel(Order("ann", 1), {"note"})),  # type: ignore[arg-type]
    ],
)
def test_an_object_of_another_type_is_refused(make: Any, type_: Any, value: Any) -> None:
    """The serde names its type and that of the object, as key and as value."""
    for is_key in (False, True):
        with pytest.raises(SerializationError, match=rf"{make.__name__}\(.*{type(value).__name__}.*give an object of its type"):
            make(type_).serializer("t", is_key=is_key)(value)


def test_nan_is_refused_where_json_has_no_number_for_it() -> None:
    """It would be written as null, and be read as None or not at all; MessagePack has it."""
    cases: tuple[tuple[Any, Any], ...] = ((float, math.nan), (float | None, math.nan), (Chain, Chain(math.inf)), (dict[str, float], {"a": math.nan}))
    for type_, value in cases:
        with pytest.raises(SerializationError):
            serdes.json(type_).serializer("t")(value)
    packed: Any = serdes.msgpack(Chain)
    assert math.isnan(packed.deserializer("t")(packed.serializer("t")(Chain(math.nan))).size)


@pytest.mark.parametrize(
    ("type_", "value"),
    [(dict, {1: (2, date(2026, 1, 1))}), (list, (1, 2)), (dict[str, Any], {"at": datetime(2026, 1, 1, tzinfo=UTC)}), (Any, {1: math.nan})],
)
def test_parts_of_type_any_are_not_looked_at(type_: Any, value: Any) -> None:
    """They are read as the format has them, as a tuple is read as a list."""
    for make, encode in ((serdes.json, msgspec.json.encode), (serdes.msgpack, msgspec.msgpack.encode)):
        assert make(type_).serializer("t")(value) == encode(value)


def test_a_text_is_no_uuid_whatever_its_length() -> None:
    """A text of 36 characters would be written, and never be read."""
    write: Any = serdes.UUID.serializer("t")
    for value in ("x" * 36, str(uuid.UUID(int=1)), b"x" * 36, 1):
        with pytest.raises(SerializationError, match="UUID writes"):
            write(value)


@pytest.mark.parametrize("inner", [serdes.STRING, serdes.LONG])
def test_only_lists_and_tuples_are_written_as_lists(inner: Any) -> None:
    """A text, a dict or a set would be read back as a list of its parts."""
    write: Any = serdes.list_of(inner).serializer("t")
    wrong: tuple[Any, ...] = ("", "ab", {}, set(), {1: 2}, b"ab")
    for value in wrong:
        with pytest.raises(SerializationError, match="list_of writes a list"):
            write(value)
    assert write(()) == write([])
