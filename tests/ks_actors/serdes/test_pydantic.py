"""Models of Pydantic as JSON."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr, computed_field, field_validator
from pydantic.dataclasses import dataclass as model_dataclass

from ks_actors import SerializationError, TopologyError, serdes
from ks_actors.dsl import Consumed
from ks_actors.serdes import reads
from ks_actors.serdes._structured import is_immutable

if sys.version_info >= (3, 12):
    from typing import TypedDict
else:
    # Pydantic refuses typing.TypedDict on these versions.
    from typing_extensions import TypedDict

T = TypeVar("T")


class Item(BaseModel):
    """A part of an order."""

    name: str
    price: Decimal = Decimal("0.00")


class Order(BaseModel):
    """A mutable model."""

    number: int
    items: list[Item] = []
    at: dt.datetime | None = None
    weight: float = 0.0


class Customer(BaseModel):
    """A frozen model with an alias, a set and a dict."""

    model_config = ConfigDict(frozen=True)
    id: int = Field(alias="customerId")
    tags: frozenset[str] = frozenset()
    limits: dict[str, float] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        """A text that is computed."""
        return f"#{self.id}"


class Page(BaseModel, Generic[T]):
    """A generic model."""

    rows: list[T]


class Node(BaseModel):
    """A frozen model that refers to itself."""

    model_config = ConfigDict(frozen=True)
    name: str
    next: Node | None = None


class Random(BaseModel):
    """A model with a private attribute, which is not written."""

    number: int
    _made: object = PrivateAttr(default_factory=object)


@model_dataclass
class Point:
    """A dataclass of Pydantic."""

    x: Annotated[int, Field(gt=0)]
    y: int = 0


@dataclass
class Basket:
    """A dataclass that has models."""

    orders: list[Order]


class Row(TypedDict):
    """A TypedDict that has models."""

    order: Order


class Pair(NamedTuple):
    """A named tuple that has models."""

    order: Order
    number: int


class Packed(msgspec.Struct):
    """A Struct that has a model, which neither library can read."""

    order: Order


class Later(BaseModel):
    """A model with a field of a type that does not exist."""

    other: Missing  # type: ignore[name-defined]  # noqa: F821 - that is the case


ORDER = Order(number=1, items=[Item(name="tea", price=Decimal("2.50"))], at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC))
VALUES: list[tuple[Any, Any]] = [
    (Order, ORDER),
    (Page[Item], Page[Item](rows=[Item(name="tea")])),
    (list[Order], [ORDER, ORDER]),
    (dict[str, Order], {"a": ORDER}),
    (Order | None, ORDER),
    (Order | Item, Item(name="tea")),
    (Basket, Basket([ORDER])),
    (Row, {"order": ORDER}),
    (Pair, Pair(ORDER, 2)),
    (Point, Point(1, 2)),
    (Customer, Customer(customerId=7, tags=frozenset("abc"), limits={"b": 1.0, "a": 2.0})),
    (Node, Node(name="a", next=Node(name="b"))),
    (Random, Random(number=3)),
]


@pytest.mark.parametrize(("type_", "value"), VALUES, ids=lambda each: getattr(each, "__name__", ""))
def test_models_are_written_and_read_back(type_: Any, value: Any) -> None:
    """A model, and any type that has models, is read back as an equal object, by the type alone and by `json`."""
    serde: Any = Consumed(str, type_).value
    for each in (serde, serdes.json(type_)):
        data = each.serializer("t")(value)
        back = each.deserializer("t")(data)
        assert type(back) is type(value)
        assert back == value or isinstance(value, Random)  # which differs in its private attribute
        assert each.serializer("t")(back) == data
    assert repr(serde) == repr(serdes.json(type_))


def test_the_bytes_are_pydantics_own() -> None:
    """Another program reads a value by `model_validate_json`; aliases are written, computed fields are not."""
    data = serdes.json(Order).serializer("t")(ORDER)
    assert data == ORDER.model_dump_json().encode()
    assert json.loads(serdes.json(Customer).serializer("t")(Customer(customerId=7))) == {"customerId": 7, "tags": [], "limits": {}}


def test_bad_data_is_named_by_its_field_and_not_shown() -> None:
    """A validation error is a SerializationError that has the field, and none of the data."""
    read = serdes.json(Order).deserializer("t")
    with pytest.raises(SerializationError, match=r"no json\(Order\): .*integer.* - at `\$.number`; .* at `\$.items\[0\].name`") as failure:
        read(b'{"number": "secret", "items": [{}]}')
    assert "secret" not in str(failure.value)
    assert failure.value.__cause__ is None
    many = ",".join(["{}"] * 9)
    with pytest.raises(SerializationError, match="and 5 more"):
        read(f'{{"items": [{many}]}}'.encode())
    with pytest.raises(SerializationError, match=r"Invalid JSON"):
        read(b"nonsense")


class Lower(BaseModel):
    """A model whose validator changes the data."""

    text: str

    @field_validator("text")
    @classmethod
    def lower(cls, text: str) -> str:
        """Return the text in lower case."""
        return text.lower()


class Hidden(BaseModel):
    """A model that does not show its field when it is written."""

    password: SecretStr


class Wide(Order):
    """A model with one more field."""

    more: int = 1


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Order, {"number": 1}),
        (Order, Order.model_construct(number="one")),
        (Order, Order(number=1, weight=float("nan"))),
        (Order, Wide(number=1)),
        (Order, Item(name="tea")),
        (Lower, Lower.model_construct(text="A")),
        (Hidden, Hidden(password=SecretStr("x"))),
        (list[Order], [1]),
    ],
)
def test_an_object_that_would_be_read_back_as_another_is_refused(type_: Any, value: Any) -> None:
    """The writer promises what `json` promises for other types."""
    serde = serdes.json(type_)
    for is_key in (False, True):
        with pytest.raises(SerializationError, match="give an object of its type"):
            serde.serializer("t", is_key=is_key)(value)


def test_equal_keys_have_equal_bytes() -> None:
    """Keys are written as they are read, with the items of sets and dicts in order, in each process."""
    write = serdes.json(Customer).serializer("t", is_key=True)
    one = Customer(customerId=7, tags=frozenset(["b", "a"]), limits={"b": 1.0, "a": 2.0})
    other = Customer.model_construct(id=7, tags={"a", "b"}, limits={"a": 2, "b": 1})
    assert write(one) == b'{"customerId":7,"limits":{"a":2.0,"b":1.0},"tags":["a","b"]}'
    assert write(one) == write(Customer(customerId=7, tags=frozenset(["a", "b"]), limits={"a": 2.0, "b": 1.0}))
    assert other == one
    with pytest.raises(SerializationError):  # its set is not frozen, so it is not of its type
        write(other)
    whole = Order.model_construct(number=1, items=[], at=None, weight=2)
    assert serdes.json(Order).serializer("t", is_key=True)(whole) == serdes.json(Order).serializer("t", is_key=True)(Order(number=1, weight=2.0))


def test_values_with_sets_are_written_in_order() -> None:
    """Equal values get the same bytes in each process, as `json` promises."""
    tags = [f"tag{number}" for number in range(20)]
    written = {
        serdes.json(Customer).serializer("t")(Customer(customerId=1, tags=frozenset(each))) for each in (tags, tags[::-1], sorted(tags, key=hash))
    }
    assert [json.loads(data)["tags"] for data in written] == [sorted(tags)]


@pytest.mark.parametrize(
    ("type_", "immutable"),
    [(Node, True), (Order, False), (Item, False), (Customer, False), (Random, False), (tuple[Node, ...], True), (Page[Node], False)],
)
def test_frozen_models_of_immutable_parts_are_immutable(type_: Any, immutable: bool) -> None:
    """Stores share an object only if nothing can change it."""
    assert is_immutable(type_) is immutable
    assert serdes.json(type_).immutable is immutable


def test_a_type_without_a_form_is_an_error_that_says_what_to_write() -> None:
    """A class that neither library knows, or a Struct with a model, is refused when the serde is made."""

    class Plain:
        pass

    with pytest.raises(TopologyError, match=r"value of Consumed is .*Plain.* make it a dataclass, a Struct, .* or give Serde.of"):
        Consumed(str, Plain)
    for wrong in (Packed, Later):
        with pytest.raises(TopologyError, match="Pydantic cannot read this type"):
            Consumed(str, wrong)
    with pytest.raises(TypeError, match="json takes it"):
        serdes.msgpack(Order)


class Old:
    """An earlier version of the app."""

    class Order(BaseModel):
        """An order with a number only."""

        number: int

    class Node(BaseModel):
        """A node that refers to itself."""

        name: str
        next: Old.Node | None = None


def test_versions_of_models_are_compared_by_their_fields() -> None:
    """A new model reads what an old one wrote if its further fields have defaults."""
    new, old = serdes.json(Order), serdes.json(Old.Order)
    assert reads(new, old)
    assert not reads(serdes.json(Item), serdes.json(Order))
    assert reads(serdes.json(Node), serdes.json(Old.Node))
    assert not reads(new, serdes.json(Lower))
    assert reads(serdes.json(list[Node]), serdes.json(list[Node]))


def test_pydantic_is_imported_by_its_users_only() -> None:
    """An app without models does not pay for Pydantic."""
    subprocess.run([sys.executable, "-c", "import sys, ks_actors; ks_actors.Topic('a', str, dict); assert 'pydantic' not in sys.modules"], check=True)
