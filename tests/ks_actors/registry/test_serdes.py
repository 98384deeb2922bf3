"""Serdes of a registry: schemas of types, evolution, references, subjects, and data that do not fit."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import uuid
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, Field, computed_field, create_model

from ks_actors import SerializationError, serdes
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.registry import InMemoryRegistry, Reference, RegistryError, Schema, SchemaNotFound, SchemaRegistry
from ks_actors.registry._avro_types import avro_schema
from ks_actors.serdes import MutableHeaders, Serde, reader, writer
from ks_actors.testing import TestRecord, TopologyTestDriver
from tests.ks_actors.registry.messages import ORDER, Colour, Everything, Item, Order, PbInner, PbItem, PbOrder, PbOther, everything, pb_order
from tests.ks_actors.registry.server import serving

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "name", "type": "string"}, {"name": "cents", "type": "long"}]}


@pytest.fixture
def memory() -> InMemoryRegistry:
    return InMemoryRegistry()


@pytest.fixture
def registry(memory: InMemoryRegistry) -> SchemaRegistry:
    return SchemaRegistry(memory)


def through(serde: Serde[Any], value: Any, other: Serde[Any] | None = None, *, is_key: bool = False) -> Any:
    """Return what another serde reads of a written value."""
    headers: MutableHeaders = []
    data = writer(serde, "t", is_key=is_key)(value, headers)
    return reader(other or serde, "t", is_key=is_key)(data, headers)


# --- Avro -----------------------------------------------------------------------------------------


def test_types_have_avro_schemas() -> None:
    """Records have the names of classes, defaults those of fields, and a union begins with its default's type."""
    assert avro_schema(Order) == {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "string"},
            {
                "name": "items",
                "type": {
                    "type": "array",
                    "items": {"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}, {"name": "cents", "type": "long"}]},
                },
            },
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "express", "type": "boolean", "default": False},
        ],
    }
    described: Any = avro_schema(Everything)
    fields = {field["name"]: field for field in described["fields"]}
    assert fields["colour"]["type"] == {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}
    assert fields["first"]["type"]["name"] == "Item"
    assert fields["more"] == {"name": "more", "type": {"type": "array", "items": "Item"}, "default": []}
    assert fields["maybe"] == {"name": "maybe", "type": ["long", "null", "string"], "default": 3}
    assert fields["at"]["type"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert avro_schema(str) == {"type": "string"}


@pytest.mark.parametrize("value", [ORDER, everything(), dataclasses.replace(everything(), maybe=None, colour=Colour.RED)])
def test_objects_of_types_come_back_equal(value: Any, registry: SchemaRegistry) -> None:
    """As Avro and as JSON, as keys and as values."""
    for made in (registry.avro(type(value)), registry.json_schema(type(value))):
        assert through(made, value) == value
        assert through(made, value, is_key=True) == value


class Tagged(msgspec.Struct, tag=True):
    id: int


@pytest.mark.parametrize(
    ("type_", "told"),
    [
        (dict[int, str], "the keys of a map are str"),
        (Tagged, "is tagged"),
        (Literal["a b"], "no form of Literal"),
        (Item | Order, "must be tagged"),
        (Any, "no form of Any"),
        (tuple[int, str], "no form of Tuple"),
    ],
)
def test_types_without_an_avro_schema_are_refused(type_: Any, told: str, registry: SchemaRegistry) -> None:
    """The error says which part, and to give a schema."""
    with pytest.raises(TypeError, match=f"{told}.*; give one"):
        registry.avro(type_)


def test_records_are_converted_to_the_readers_schema(registry: SchemaRegistry) -> None:
    """Fields that the reader lacks are left out, and those that the writer lacks have their defaults."""
    later = {**ITEM, "fields": [ITEM["fields"][0], {"name": "tax", "type": "int", "default": 19}]}
    assert through(registry.avro(ITEM), {"name": "pen", "cents": 5}, registry.avro(later)) == {"name": "pen", "tax": 19}
    assert through(registry.avro(ITEM), {"name": "pen", "cents": 5}, registry.avro()) == {"name": "pen", "cents": 5}
    other = {**ITEM, "fields": [*ITEM["fields"], {"name": "must", "type": "int"}]}
    with pytest.raises(SerializationError, match=r"avro\(shop.Item\) cannot read what was written by the schema .*shop"):
        through(registry.avro(ITEM), {"name": "pen", "cents": 5}, registry.avro(other))
    with pytest.raises(SerializationError, match="1 bytes follow the record"):
        reader(registry.avro(ITEM), "t")(writer(registry.avro(ITEM), "t")({"name": "pen", "cents": 5}, []) + b"x", [])


async def test_schemas_refer_to_others(registry: SchemaRegistry) -> None:
    """References are resolved at any depth, when writing and when reading."""
    await registry.register("item", Schema(json.dumps(ITEM)))
    line = {"type": "record", "name": "Line", "namespace": "shop", "fields": [{"name": "item", "type": "shop.Item"}]}
    to_item = Reference("shop.Item", "item", 1)
    await registry.register("line", Schema(json.dumps(line), references=(to_item,)))
    bill = {"type": "record", "name": "Bill", "fields": [{"name": "lines", "type": {"type": "array", "items": "shop.Line"}}]}
    serde = registry.avro(bill, references=[Reference("shop.Line", "line", 1)])
    value = {"lines": [{"item": {"name": "pen", "cents": 5}}]}
    assert through(serde, value, registry.avro()) == value
    await registry.register("part", Schema('{"type": "integer"}', "JSON"))
    whole = registry.json_schema({"type": "object", "properties": {"n": {"$ref": "part.json"}}}, references=[Reference("part.json", "part", 1)])
    assert through(whole, {"n": 1}) == {"n": 1}
    with pytest.raises(SerializationError, match=r"\$\.n: 'x' is not of type 'integer'"):
        through(whole, {"n": "x"})


# --- Protobuf -------------------------------------------------------------------------------------


def test_messages_come_back_and_imported_files_are_registered(memory: InMemoryRegistry, registry: SchemaRegistry) -> None:
    """Under their own names, and the order's schema refers to them."""
    assert through(registry.protobuf(PbOrder), pb_order()) == pb_order()
    assert memory.subjects() == ["shop/item.proto", "t-value"]
    _, answer = memory.answer("GET", "subjects/t-value/versions/latest")
    assert answer["references"] == [{"name": "shop/item.proto", "subject": "shop/item.proto", "version": 1}]


def test_a_message_of_another_type_is_bad_data(registry: SchemaRegistry) -> None:
    """The place of the message in its file tells, whatever its bytes are."""
    with pytest.raises(SerializationError, match=r"protobuf\(shop.PbOrder\): the record is a shop.Other.Inner"):
        through(registry.protobuf(PbInner), PbInner(text="x"), registry.protobuf(PbOrder))
    with pytest.raises(SerializationError, match="does not write a PbItem"):
        through(registry.protobuf(PbOrder), PbItem())
    whole = writer(registry.protobuf(PbOther), "t")(PbOther(id="x"), [])
    for cut in (whole[:5], whole[:6], whole[:-1]):
        with pytest.raises(SerializationError):
            reader(registry.protobuf(PbOther), "t")(cut, [])
    with pytest.raises(TypeError, match="give a class that protoc has made"):
        registry.protobuf(Item)


def test_a_schema_as_text_is_taken_for_the_messages_own(memory: InMemoryRegistry, registry: SchemaRegistry) -> None:
    """A registry that gives no descriptors does not tell what the places mean."""
    data = writer(registry.protobuf(PbItem), "t")(PbItem(name="pen"), [])
    memory._schemas[0] = Schema('syntax = "proto3";', "PROTOBUF")
    assert reader(SchemaRegistry(memory).protobuf(PbItem), "u")(data, []) == PbItem(name="pen")


# --- JSON Schema ----------------------------------------------------------------------------------


def test_a_given_schema_is_checked_when_writing_and_reading(registry: SchemaRegistry) -> None:
    """The error names the place; `validate=False` leaves it out; a type checks its own fields."""
    schema = {"title": "Item", "type": "object", "properties": {"name": {"type": "string"}, "cents": {"type": "integer", "minimum": 0}}}
    strict, free = registry.json_schema(schema, Item), registry.json_schema(schema, Item, validate=False)
    with pytest.raises(SerializationError, match=r"json_schema\(Item\): \$\.cents: -1 is less than the minimum of 0"):
        through(strict, Item("pen", -1))
    assert through(free, Item("pen", -1)) == Item("pen", -1)
    with pytest.raises(SerializationError, match="less than the minimum"):
        through(free, Item("pen", -1), strict)
    with pytest.raises(msgspec.ValidationError):
        through(registry.json_schema(schema), {"name": "pen"}, registry.json_schema(Item))


def test_a_type_has_a_schema_with_its_name(memory: InMemoryRegistry, registry: SchemaRegistry) -> None:
    """The title is the record's name of subjects."""
    writer(registry.json_schema(Order, subject="record"), "t")(ORDER, [])
    assert memory.subjects() == ["Order"]
    _, answer = memory.answer("GET", "subjects/Order/versions/1")
    assert json.loads(answer["schema"])["type"] == "object"


# --- Pydantic -------------------------------------------------------------------------------------


class Line(BaseModel, frozen=True):
    name: str
    cents: int = Field(alias="centsAmount", gt=0)


class Bill(BaseModel, frozen=True):
    id: uuid.UUID
    at: datetime
    lines: tuple[Line, ...] = (Line(name="fee", centsAmount=1),)
    first: Line = Line(name="fee", centsAmount=1)
    colour: Colour = Colour.RED
    note: str | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def total(self) -> int:
        return sum(line.cents for line in self.lines)


BILL = Bill(id=uuid.UUID(int=7), at=datetime(2026, 1, 2, tzinfo=UTC), lines=(Line(name="pen", centsAmount=5),), colour=Colour.BLUE)


@pytest.mark.parametrize("is_key", [False, True])
def test_models_of_pydantic_come_back_equal(is_key: bool, registry: SchemaRegistry) -> None:
    """By a schema that is made of the model, or a given one: as Avro and as JSON."""
    schema: Any = avro_schema(Bill)
    for made in (
        registry.avro(Bill),
        registry.avro(schema, Bill),
        registry.json_schema(Bill),
        registry.json_schema(Bill.model_json_schema(), Bill),
    ):
        assert through(made, BILL, is_key=is_key) == BILL
        assert made.immutable


def test_a_model_has_a_schema_of_what_is_written(registry: SchemaRegistry) -> None:
    """With its name, the aliases and defaults of its fields, and no computed field."""
    described: Any = avro_schema(Bill)
    assert described["name"] == "Bill"
    fields = {field["name"]: field for field in described["fields"]}
    assert set(fields) == {"id", "at", "lines", "first", "colour", "note"}
    assert fields["lines"]["default"] == [{"name": "fee", "centsAmount": 1}]
    assert fields["first"] == {"name": "first", "type": "Line", "default": {"name": "fee", "centsAmount": 1}}
    assert fields["note"] == {"name": "note", "type": ["null", "string"], "default": None}
    made: Any = registry.json_schema(Bill, subject="record")
    schema = json.loads(made._schema.text)
    assert (schema["title"], set(schema["properties"]), schema["required"]) == ("Bill", set(fields), ["id", "at"])


def test_a_field_that_a_model_adds_has_its_default(registry: SchemaRegistry) -> None:
    """Records of the earlier model are read as the later one, and the other way round."""

    def line(**fields: Any) -> Any:
        return create_model("Line", **fields)

    earlier, later = line(name=str), line(name=str, tax=(int, 19))
    for make in (registry.avro, registry.json_schema):
        assert through(make(earlier), earlier(name="pen"), make(later)) == later(name="pen")
        assert through(make(later), later(name="pen", tax=7), make(earlier)) == earlier(name="pen")


def test_data_that_a_model_refuses_are_bad_data(registry: SchemaRegistry) -> None:
    """The error names the field, and shows no data."""
    for make in (registry.avro, registry.json_schema):
        free = create_model("Line", name=str, centsAmount=int)
        with pytest.raises(SerializationError, match=r"Input should be greater than 0 - at `\$\.centsAmount`") as told:
            through(make(free), free(name="secret", centsAmount=-5), make(Line))
        assert "secret" not in str(told.value)
        for other in (BILL, "pen", Line.model_construct(name="pen", cents=-1)):
            with pytest.raises(SerializationError, match="give an object of its type"):
                through(make(Line), other)


# --- ids and subjects -----------------------------------------------------------------------------


def test_code_outside_of_an_event_loop_may_wait() -> None:
    """A script, or a thread of a batch job, uses a serde as it is; an id that the registry lacks is asked for once in a while."""
    with serving(InMemoryRegistry()) as server:
        assert through(SchemaRegistry(server.url).avro(Item), Item("pen", 5), SchemaRegistry(server.url).avro(Item)) == Item("pen", 5)
        read = reader(SchemaRegistry(server.url).avro(Item), "u")
        asked = len(server.registry.requests)
        for _ in range(3):
            with pytest.raises(SerializationError, match="schema 9 is not in http"):
                read(b"\0\0\0\0\x09", [])
        assert len(server.registry.requests) == asked + 1


async def test_an_event_loop_does_not_wait_for_a_registry() -> None:
    """Schemas that were not found before are an error, which says why."""
    with serving(InMemoryRegistry()) as server:
        with pytest.raises(SerializationError, match="has not found the schema of subject t-value before the start"):
            writer(SchemaRegistry(server.url).avro(Item), "t")(Item("pen", 5), [])
        with pytest.raises(SerializationError, match=r"schema 9 was not looked up in http.* before its data are read"):
            reader(SchemaRegistry(server.url).avro(Item), "u")(b"\0\0\0\0\x09", [])
        assert server.registry.requests == []


def test_ids_are_read_in_any_place(registry: SchemaRegistry) -> None:
    """A reader takes a GUID or an id, in a header or in front, whatever its own option is; the last header counts."""
    headers: MutableHeaders = []
    data = writer(registry.avro(Item, ids="header"), "t")(Item("pen", 5), headers)
    ((name, guid),) = headers
    assert (name, len(guid or b"")) == ("__value_schema_id", 17)
    read = reader(registry.avro(Item), "t")
    assert read((guid or b"") + data, []) == Item("pen", 5)
    assert read(data, [(name, b"\0\0\0\0\x09"), (name, b"\0\0\0\0\1")]) == Item("pen", 5)
    assert read(b"\0\0\0\0\1" + data, [("__key_schema_id", b"?")]) == Item("pen", 5)
    with pytest.raises(SerializationError, match="not in the format of a registry"):
        read(data, [(name, b"")])


def test_an_id_that_came_with_a_record_is_not_passed_on(registry: SchemaRegistry) -> None:
    """It was one of other data: a sink removes it, also where it puts its own id in front."""
    builder = StreamsBuilder()
    item = registry.avro(Item)
    builder.stream("in", Consumed(serdes.STRING, serdes.BYTES)).map_values(lambda _: Item("pen", 5)).to("out", Produced(serdes.STRING, item))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.STRING, serdes.BYTES).pipe_input("k", b"", 1, (("__value_schema_id", b"\1"), ("a", b"b")))
        assert driver.create_output_topic("out", serdes.STRING, item).read_record() == TestRecord("k", Item("pen", 5), 1, (("a", b"b"),))


def test_rows_have_their_ids_in_front(memory: InMemoryRegistry) -> None:
    """A store and its changelog have no headers of a value's own, so a serde with ids in headers writes them in front there."""
    item = SchemaRegistry(memory).avro(Item, ids="header")
    builder = StreamsBuilder()
    builder.table("in", Consumed(serdes.STRING, item), Materialized("rows"))
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", serdes.STRING, item).pipe_input("k", Item("pen", 5), 1)
        assert driver.get_key_value_store("rows").get("k") == Item("pen", 5)


@pytest.mark.parametrize(("subject", "found"), [("topic", "t-key"), ("record", "shop.Item"), ("topic_record", "t-shop.Item")])
def test_subjects_are_named_by_topic_or_record(subject: Any, found: str, memory: InMemoryRegistry, registry: SchemaRegistry) -> None:
    """Or by both."""
    through(registry.avro(ITEM, subject=subject), {"name": "pen", "cents": 5}, is_key=True)
    assert memory.subjects() == [found]


def test_the_latest_version_may_be_the_one_to_write_by(registry: SchemaRegistry) -> None:
    """The serde needs no schema of its own then."""
    writer(registry.avro(ITEM), "t")({"name": "pen", "cents": 5}, [])
    later = {**ITEM, "fields": [*ITEM["fields"], {"name": "tax", "type": "int", "default": 19}]}
    writer(registry.avro(later), "t")({"name": "pen", "cents": 5}, [])
    latest = registry.avro(use_latest_version=True)
    assert through(latest, {"name": "pen", "cents": 5}) == {"name": "pen", "cents": 5, "tax": 19}


def test_a_schema_that_may_not_be_registered_must_be_there(memory: InMemoryRegistry, registry: SchemaRegistry) -> None:
    """Without auto_register nothing is registered, also not what the schema imports."""
    for serde, value in ((registry.avro(Item, auto_register=False), Item("pen", 5)), (registry.protobuf(PbOrder, auto_register=False), pb_order())):
        with pytest.raises(SchemaNotFound):
            writer(serde, "t")(value, [])
    assert memory.subjects() == []
    with pytest.raises(RegistryError, match="has no schema to write by: give it one, or use_latest_version=True"):
        writer(registry.avro(), "t")({}, [])


async def test_the_registry_is_asked_to_normalize() -> None:
    """When registering, and when looking up."""
    with serving(InMemoryRegistry()) as server:
        registry = SchemaRegistry(server.url)
        await registry.register("s", Schema("{}"), normalize=True)
        with pytest.raises(SchemaNotFound):
            await registry.lookup("other", Schema("{}"), normalize=True)
        await asyncio.to_thread(writer(registry.avro(ITEM, normalize=True), "t"), {"name": "pen", "cents": 5}, [])
        assert server.queries == ["normalize=true"] * 3


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda r: r.avro(Item, subject="name"), ValueError, "subject is 'name': use one of topic, record, topic_record"),
        (lambda r: r.avro(Item, ids="headers"), ValueError, "ids is 'headers': use one of prefix, header"),
        (lambda r: r.avro(Item, compression="no"), TypeError, r"avro\(Item\) has no option compression"),
        (lambda r: r.avro('"string', subject="topic"), ValueError, "is no JSON"),
        (lambda r: r.avro('["null", "int"]', subject="record"), ValueError, "its schema has no name"),
        (lambda r: r.avro(Item, Item), TypeError, "give a text, a dict or None"),
        (lambda r: r.json_schema("{", Item), ValueError, "is no JSON"),
        (lambda r: r.protobuf(PbItem, references=[Reference("a", "b", 1)]), TypeError, "those that its file imports"),
    ],
)
def test_wrong_schemas_and_options_are_refused_at_once(make: Any, error: type[Exception], told: str, registry: SchemaRegistry) -> None:
    """When the serde is made, by the name of the option."""
    with pytest.raises(error, match=told):
        make(registry)


def test_a_schema_that_cannot_be_used_makes_bad_data_of_its_records(memory: InMemoryRegistry, registry: SchemaRegistry) -> None:
    """Such as one of another type; the error names the schema and the reason."""
    memory.answer("POST", "subjects/t-value/versions", {"schema": '{"type": "nonsense"}'})
    with pytest.raises(SerializationError, match=r"avro\(Item\) cannot read records of schema 1: .*nonsense"):
        reader(registry.avro(Item), "t")(b"\0\0\0\0\1", [])


# --- the registry in memory -----------------------------------------------------------------------


def test_a_named_registry_in_memory_is_shared_while_it_is_used() -> None:
    """By all clients of the process; without any, its schemas are gone."""
    first = SchemaRegistry("mock://shared")
    writer(first.avro(Item), "t")(Item("pen", 5), [])
    assert InMemoryRegistry.named("shared").subjects() == ["t-value"]
    assert through(SchemaRegistry("mock://shared").avro(Item), Item("pen", 5)) == Item("pen", 5)
    assert SchemaRegistry("mock://other").at_once
    del first
    gc.collect()
    assert InMemoryRegistry.named("shared").subjects() == []


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "nothing", 404),
        ("POST", "nothing", 404),
        ("GET", "subjects/no/versions", 40401),
        ("GET", "subjects/t/versions/0", 40402),
        ("GET", "schemas/guids/x", 40403),
    ],
)
def test_a_registry_in_memory_fails_as_a_server_does(method: str, path: str, code: int, memory: InMemoryRegistry) -> None:
    """With Confluent's codes."""
    memory.answer("POST", "subjects/t/versions", {"schema": "{}"})
    status, answer = memory.answer(method, path, {"schema": "{}"})
    assert (status, answer["error_code"]) == (404, code)
    assert memory.answer("POST", "subjects/t/versions", {"schema": 5})[0] == 422
