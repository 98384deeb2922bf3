"""Byte for byte against the serializers of Confluent's client, both ways, over one registry."""

from __future__ import annotations

import importlib
import json
from typing import Any, NamedTuple

import msgspec
import pytest

from ks_actors.registry import InMemoryRegistry, SchemaRegistry
from ks_actors.serdes import MutableHeaders, Serde, reader, writer
from tests.ks_actors.registry.messages import ORDER, Item, Order, PbDeep, PbInner, PbOrder, PbOther, pb_order
from tests.ks_actors.registry.server import Server, serving

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "name", "type": "string"}, {"name": "cents", "type": "long"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "items", "type": {"type": "array", "items": ITEM}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "express", "type": "boolean", "default": False},
    ],
}
AVRO_VALUE = msgspec.json.decode(msgspec.json.encode(ORDER))
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "share": {"type": "number"}, "items": {"type": "array"}},
    "required": ["id"],
}
# Its members are in order, in which ours writes those of keys.
JSON_VALUE = {"id": "ö1", "items": [1, None, {"a": "\u2028"}], "share": 0.1}


class Case(NamedTuple):
    """A serde of ours, Confluent's pair, and an object in the form of each."""

    ours: Any
    theirs: Any
    value: Any
    their_value: Any


def confluent(name: str) -> Any:
    """Return a module of Confluent's client; fail if it is not installed."""
    try:
        return importlib.import_module(f"confluent_kafka.{name}")
    except ModuleNotFoundError as missing:
        pytest.fail(f"the bytes are NOT compared with Confluent's: {missing}: pip install 'confluent-kafka[avro,json,protobuf]'", pytrace=False)


def avro_case(registry: SchemaRegistry, client: Any, options: Any, conf: Any, ids: Any) -> Case:
    module = confluent("schema_registry.avro")
    text = json.dumps(AVRO)
    theirs = module.AvroSerializer(client, text, conf=conf), module.AvroDeserializer(client, text)
    return Case(registry.avro(AVRO, **options), theirs, AVRO_VALUE, AVRO_VALUE)


def typed_avro_case(registry: SchemaRegistry, client: Any, options: Any, conf: Any, ids: Any) -> Case:
    module = confluent("schema_registry.avro")
    text = json.dumps(AVRO)
    theirs = (
        module.AvroSerializer(client, text, lambda order, _: msgspec.to_builtins(order), conf),
        module.AvroDeserializer(client, text, lambda made, _: msgspec.convert(made, Order)),
    )
    return Case(registry.avro(AVRO, Order, **options), theirs, ORDER, ORDER)


def bytes_case(registry: SchemaRegistry, client: Any, options: Any, conf: Any, ids: Any) -> Case:
    module = confluent("schema_registry.avro")
    theirs = module.AvroSerializer(client, '"bytes"', conf=conf), module.AvroDeserializer(client, '"bytes"')
    return Case(registry.avro('"bytes"', **options), theirs, b"\0\1\2\3\4\5\6", b"\0\1\2\3\4\5\6")


def protobuf_case(message: Any, value: Any) -> Any:
    def case(registry: SchemaRegistry, client: Any, options: Any, conf: Any, ids: Any) -> Case:
        module = confluent("schema_registry.protobuf")
        theirs = module.ProtobufSerializer(message, client, conf), module.ProtobufDeserializer(message, {"use.deprecated.format": False}, client)
        return Case(registry.protobuf(message, **options), theirs, value, value)

    return case


def json_case(registry: SchemaRegistry, client: Any, options: Any, conf: Any, ids: Any) -> Case:
    module = confluent("schema_registry.json_schema")
    text = json.dumps(JSON_SCHEMA)
    theirs = module.JSONSerializer(text, client, conf=conf), module.JSONDeserializer(text, schema_registry_client=client)
    return Case(registry.json_schema(JSON_SCHEMA, **options), theirs, JSON_VALUE, JSON_VALUE)


CASES = {
    "avro": avro_case,
    "typed avro": typed_avro_case,
    "bytes": bytes_case,
    "protobuf": protobuf_case(PbOrder, pb_order()),
    "second message": protobuf_case(PbOther, PbOther(id="long enough")),
    "nested message": protobuf_case(PbInner, PbInner(text="long enough")),
    "deep message": protobuf_case(PbDeep, PbDeep(text="long enough")),
    "json": json_case,
}
SUBJECTS = {"topic": "topic_subject_name_strategy", "record": "record_subject_name_strategy", "topic_record": "topic_record_subject_name_strategy"}


@pytest.fixture
def server() -> Any:
    with serving(InMemoryRegistry()) as made:
        yield made


@pytest.mark.heavy("it imports Confluent's client, and asks a server for each case")
@pytest.mark.parametrize("ids", ["prefix", "header"])
@pytest.mark.parametrize("is_key", [False, True])
# A schema without a name has subjects by topic only.
@pytest.mark.parametrize(("name", "subject"), [(name, subject) for name in CASES for subject in SUBJECTS if name != "bytes" or subject == "topic"])
def test_bytes_are_those_of_confluents_client(name: str, is_key: bool, ids: Any, subject: Any, server: Server) -> None:
    """Each side writes what the other writes, under the same subject, and reads what the other wrote."""
    theirs = confluent("schema_registry")
    serialization = confluent("serialization")
    conf = {
        "auto.register.schemas": True,
        "subject.name.strategy": getattr(theirs, SUBJECTS[subject]),
        "schema.id.serializer": getattr(theirs, f"{ids}_schema_id_serializer"),
    }
    # The server gives ids to both: each registers the same schema, whichever comes first.
    ours, other = server.registry, server
    registry = SchemaRegistry(ours)
    case = CASES[name](registry, theirs.SchemaRegistryClient({"url": other.url}), {"ids": ids, "subject": subject}, conf, ids)
    serialize, deserialize = case.theirs
    field = serialization.MessageField.KEY if is_key else serialization.MessageField.VALUE
    their_headers: list[Any] = []
    written = serialize(case.their_value, serialization.SerializationContext("orders", field, their_headers))
    headers: MutableHeaders = []
    serde: Serde[Any] = case.ours
    assert writer(serde, "orders", is_key=is_key)(case.value, headers) == written
    assert headers == their_headers
    assert [*headers] == [] or ids == "header"
    left = [*headers, ("more", b"1")]
    assert reader(serde, "orders", is_key=is_key)(written, left) == case.value
    assert left == [("more", b"1")]
    context = serialization.SerializationContext("orders", field, headers)
    assert deserialize(written, context) == case.their_value
    assert len(ours.subjects()) == (2 if name == "protobuf" else 2 if "message" in name else 1)


def test_data_of_one_type_are_read_as_another_version_by_both(server: Server) -> None:
    """A reader with an older schema gets the same fields and defaults from both clients."""
    theirs, module, serialization = confluent("schema_registry"), confluent("schema_registry.avro"), confluent("serialization")
    older = {**ITEM, "fields": [*ITEM["fields"], {"name": "tax", "type": "int", "default": 19}]}
    data = writer(SchemaRegistry(server.registry).avro(ITEM, Item), "items")(Item("pen", 120), [])
    context = serialization.SerializationContext("items", serialization.MessageField.VALUE, [])
    read = module.AvroDeserializer(theirs.SchemaRegistryClient({"url": server.url}), json.dumps(older))(data, context)
    assert reader(SchemaRegistry(server.registry).avro(older), "items")(data, []) == read == {"name": "pen", "cents": 120, "tax": 19}
