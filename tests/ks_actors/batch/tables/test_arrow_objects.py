"""Objects of serdes as rows for Spark, and rows as objects: by the type of the column, or as they look."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from ks_actors import BatchError, ConfigError, Record, SerializationError, serdes
from ks_actors.batch._reading import LogRange
from ks_actors.batch.tables import TopicColumns, records_of, table_of
from ks_actors.records import Batch

TIME = pa.timestamp("us", "UTC")
AT = dt.datetime(2020, 1, 2, tzinfo=dt.UTC)


class Order(msgspec.Struct):
    at: dt.datetime
    day: dt.date
    price: Decimal
    id: uuid.UUID


class Renamed(msgspec.Struct, rename="camel"):
    my_qty: int
    of: Order | None = None


class Tagged(msgspec.Struct, tag=True):
    a: int


@dataclass
class Box:
    at: dt.datetime
    orders: list[Order]


ORDER = Order(AT, AT.date(), Decimal("1.50"), uuid.UUID(int=1))
EXACT = pa.struct([("at", TIME), ("day", pa.date32()), ("price", pa.decimal128(10, 2)), ("id", pa.string())])
TEXTS = pa.struct([("at", pa.string()), ("day", pa.string()), ("price", pa.string())])
MIXED = pa.struct([("at", TIME), ("day", pa.string()), ("price", pa.string())])
AS_EXACT = {"at": AT, "day": AT.date(), "price": Decimal("1.50"), "id": str(ORDER.id)}
AS_TEXTS = {"at": "2020-01-02T00:00:00Z", "day": "2020-01-02", "price": "1.50"}
CASES = [
    (Order, ORDER, EXACT, AS_EXACT),
    (Order, ORDER, TEXTS, AS_TEXTS),
    (Order, ORDER, MIXED, {**AS_TEXTS, "at": AT}),
    (Box, Box(AT, [ORDER]), pa.struct([("at", TIME), ("orders", pa.list_(EXACT))]), {"at": AT, "orders": [AS_EXACT]}),
    (list[Order], [ORDER], pa.list_(MIXED), [{**AS_TEXTS, "at": AT}]),
    (dict[str, Order], {"a": ORDER}, pa.map_(pa.string(), MIXED), {"a": {**AS_TEXTS, "at": AT}}),
    (dict[str, int], {"a": 1}, pa.map_(pa.string(), pa.int64()), {"a": 1}),
    (dict[str, dict[str, int]], {"tags": {"a": 1}}, pa.struct([("tags", pa.map_(pa.string(), pa.int64()))]), {"tags": {"a": 1}}),
    (list[dict[str, int]], [{"a": 1}], pa.list_(pa.map_(pa.string(), pa.int64())), [{"a": 1}]),
    (Tagged, Tagged(1), pa.struct([("type", pa.string()), ("a", pa.int64())]), {"type": "Tagged", "a": 1}),
    (Renamed, Renamed(1), pa.struct([("myQty", pa.int64())]), {"myQty": 1}),
    (uuid.UUID, ORDER.id, pa.string(), str(ORDER.id)),
    (Decimal, Decimal(2), pa.string(), "2"),
    (Decimal, Decimal(2), pa.decimal128(10, 0), Decimal(2)),
    (dt.datetime, AT, TIME, AT),
]


def columns(kind: Any, type_: Any) -> TopicColumns:
    return TopicColumns(pa.schema([("value", kind)]), None, serdes.json(type_).deserializer("t"), advice="Look.")


@pytest.mark.parametrize(("type_", "value", "kind", "row"), CASES)
def test_objects_are_rows_of_the_given_type_and_come_back_as_plain_objects(type_: Any, value: Any, kind: Any, row: Any) -> None:
    """Dates, times and decimals stay what they are where the type has such, and are text where it has text; maps are dicts again."""
    data = serdes.json(type_).serializer("t")(value)
    found = columns(kind, type_).of(Batch([None] * 2, [None, data], [1, 1], None, [0, 1]), LogRange("t", 0, 0, 2))
    returned = records_of(table_of([Record("k", None, 1), Record("k", value, 1)], None, kind), 1)
    assert [one.value for one in returned] == [None, row]
    assert found.schema.field("value").type == kind
    assert records_of(pa.table({"key": ["k", "k"], "value": found.column("value")}), 1)[1].value == row


@pytest.mark.parametrize(
    ("value", "row"),
    [(ORDER, AS_EXACT), (Box(AT, [ORDER]), {"at": AT, "orders": [AS_EXACT]}), ([ORDER], [AS_EXACT]), ({"a": ORDER}, {"a": AS_EXACT})],
)
def test_without_a_type_dates_times_and_decimals_look_like_what_they_are(value: Any, row: Any) -> None:
    """Text would be compared as text."""
    assert [one.value for one in records_of(table_of([Record("k", value, 1)], None, None), 1)] == [row]


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (
            ORDER,
            pa.struct([("prize", pa.string())]),
            "value_type: its type has prize, but Order has no such fields.* its fields are at, day, price, id",
        ),
        (Renamed(1), pa.struct([("my_qty", pa.int64())]), "value_type: its type has my_qty, .* its fields are myQty, of"),
        (Renamed(1, ORDER), pa.struct([("of", pa.struct([("x", TIME)]))]), "value_type.of: its type has x, but Order"),
        (Box(AT, []), pa.struct([("orders", pa.list_(pa.struct([("x", TIME)])))]), "value_type.orders: its type has x, but Order"),
    ],
)
def test_fields_that_a_struct_does_not_have_are_refused(value: Any, kind: Any, said: str) -> None:
    """By the source and by functions, at any depth: they would be null in every row."""
    with pytest.raises(ConfigError, match=said):
        table_of([Record("k", value, 1)], None, kind)
    with pytest.raises(ConfigError, match=said):
        columns(kind, type(value)).of(Batch([None], [serdes.json(type(value)).serializer("t")(value)], [1], None, [0]), LogRange("t", 0, 0, 1))


def test_values_that_do_not_fit_their_type_are_named() -> None:
    """With the place of the record, and in a function with the option to change."""
    batch = Batch([None] * 3, [b"1", b"oops", b"2"], [1] * 3, None, [5, 6, 7])
    with pytest.raises(SerializationError, match=r"t-3: the value at offset 6 is not of its serde's type, .* Look\."):
        columns(pa.int64(), int).of(batch, LogRange("t", 3, 0, 9))
    with pytest.raises(SerializationError, match=r"t-3: the value at offset 5 .* or not of the type timestamp"):
        columns(TIME, Any).of(Batch([None], [b'"x"'], [1], None, [5]), LogRange("t", 3, 0, 9))
    with pytest.raises(BatchError, match=r"the values of these records cannot be of type int64: .*; give another value_type"):
        table_of([Record("k", ORDER, 1)], None, pa.int64())
