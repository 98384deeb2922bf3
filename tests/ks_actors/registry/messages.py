"""Types of all formats for tests; Protobuf's are made without protoc."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from typing import Any

import msgspec
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP


class Item(msgspec.Struct, frozen=True):
    name: str
    cents: int


class Order(msgspec.Struct, frozen=True):
    id: str
    items: tuple[Item, ...]
    note: str | None = None
    express: bool = False


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Everything:
    """One field for each kind of type that Avro has."""

    number: int
    share: float
    text: str
    data: bytes
    at: dt.datetime
    day: dt.date
    id: uuid.UUID
    colour: Colour
    counts: dict[str, int]
    first: Item
    more: list[Item] = dataclasses.field(default_factory=list)
    maybe: int | str | None = 3
    time: dt.time | None = None


def everything() -> Everything:
    return Everything(
        number=-5,
        share=0.25,
        text="ü",
        data=b"\0\xff",
        at=dt.datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=dt.UTC),
        day=dt.date(2026, 1, 2),
        id=uuid.UUID(int=7),
        colour=Colour.BLUE,
        counts={"a": 1, "b": 2},
        first=Item("pen", 120),
        more=[Item("ink", 5)],
        maybe="x",
        time=dt.time(1, 2, 3),
    )


ORDER = Order("ö1", (Item("pen", 120), Item("ink", -3)), "quick", express=True)


def _field(name: str, number: int, type_: Any, type_name: str = "", *, many: bool = False) -> FieldDescriptorProto:
    label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
    return FieldDescriptorProto(name=name, number=number, type=type_, type_name=type_name or None, label=label)


def _messages() -> dict[str, Any]:
    text, number, message = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.TYPE_INT64, FieldDescriptorProto.TYPE_MESSAGE
    item = FileDescriptorProto(name="shop/item.proto", package="shop", syntax="proto3")
    item.message_type.append(DescriptorProto(name="PbItem", field=[_field("name", 1, text), _field("cents", 2, number)]))
    order = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3", dependency=["shop/item.proto", TIMESTAMP.name])
    inner = DescriptorProto(name="Inner", field=[_field("text", 1, text)])
    deep = DescriptorProto(name="Deep", field=[_field("text", 1, text)])
    order.message_type.extend(
        [
            DescriptorProto(
                name="PbOrder",
                field=[
                    _field("id", 1, text),
                    _field("items", 2, message, ".shop.PbItem", many=True),
                    _field("at", 3, message, ".google.protobuf.Timestamp"),
                ],
            ),
            DescriptorProto(name="Other", field=[_field("id", 1, text)], nested_type=[inner, DescriptorProto(name="Second", nested_type=[deep])]),
        ]
    )
    pool = DescriptorPool()
    pool.AddSerializedFile(TIMESTAMP.serialized_pb)
    pool.AddSerializedFile(item.SerializeToString())
    pool.AddSerializedFile(order.SerializeToString())
    names = ("shop.PbItem", "shop.PbOrder", "shop.Other", "shop.Other.Inner", "shop.Other.Second.Deep")
    return {name: GetMessageClass(pool.FindMessageTypeByName(name)) for name in names}


MESSAGES = _messages()
PbItem, PbOrder, PbOther, PbInner, PbDeep = MESSAGES.values()


def pb_order() -> Any:
    made = PbOrder(id="ö1")
    made.items.add(name="pen", cents=120)
    made.at.FromJsonString("2026-01-02T03:04:05Z")
    return made
