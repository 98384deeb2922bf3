"""Objects that are told to be read back as they were written."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import serdes
from ks_actors.serdes._as_read import of_serde


class Point(msgspec.Struct, frozen=True):
    x: int
    name: str | None = None
    path: tuple[float, ...] = ()


@dataclass(frozen=True)
class Pair:
    point: Point
    flag: bool


class Row(NamedTuple):
    name: str
    size: float


class Colour(enum.Enum):
    RED = 1


class Chain(msgspec.Struct, frozen=True):
    size: int
    rest: Chain | None = None


SERDES: tuple[Any, ...] = (
    serdes.SHORT,
    serdes.INTEGER,
    serdes.LONG,
    serdes.FLOAT,
    serdes.DOUBLE,
    serdes.BOOLEAN,
    serdes.STRING,
    serdes.BYTES,
    serdes.UUID,
    *(
        make(type_)
        for make in (serdes.json, serdes.msgpack)
        for type_ in (int, float, str, bytes, bool, Point, Pair, Chain, tuple[int, str], int | None, Row, Colour, uuid.UUID, date, datetime, Decimal)
    ),
)
ATOMS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.sampled_from([1 << 15, (1 << 31) - 1, -(1 << 31) - 1, 1 << 63, -(1 << 63), (1 << 63) - 1]),
    st.floats(),
    st.text(st.characters()),
    st.sampled_from(["\ud800", "é"]),
    st.binary(),
    st.binary().map(bytearray),
    st.uuids(),
    st.dates(),
    st.datetimes(timezones=st.none() | st.just(UTC)),
    st.decimals(),
    st.just(Colour.RED),
)
POINTS = st.builds(Point, ATOMS, ATOMS, st.lists(ATOMS, max_size=2) | st.lists(ATOMS, max_size=2).map(tuple))
VALUES = (
    ATOMS
    | POINTS
    | st.builds(Pair, POINTS, ATOMS)
    | st.builds(Chain, ATOMS)
    | st.builds(Row, ATOMS, ATOMS)
    | st.tuples(ATOMS, ATOMS)
    | st.lists(ATOMS, max_size=2)
)


@given(VALUES)
def test_values_declared_readable_come_back_unchanged(value: Any) -> None:
    """With the types of all its parts; the rest is found out by writing and reading."""
    for serde in SERDES:
        as_read = of_serde(serde)
        if as_read is not None and as_read(value):
            assert repr(serde.deserializer("t")(serde.serializer("t")(value))) == repr(value)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (serdes.LONG, (1 << 63) - 1),
        (serdes.STRING, "é"),
        (serdes.DOUBLE, 0.5),
        (serdes.json(Point), Point(1, "x", (0.5,))),
        (serdes.json(Pair), Pair(Point(1), flag=True)),
        (serdes.msgpack(tuple[int, str]), (1, "x")),
        (serdes.json(int | None), None),
    ],
)
def test_plain_objects_are_told_at_a_glance(serde: Any, value: Any) -> None:
    """Plain objects are shared without a copy."""
    as_read = of_serde(serde)
    assert as_read is not None
    assert as_read(value)


def test_types_that_hold_themselves_are_not_told() -> None:
    """There would be no end."""
    assert of_serde(serdes.json(Chain)) is None
