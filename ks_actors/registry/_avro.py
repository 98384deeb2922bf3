"""The serde of Avro. Needs the extra `registry`."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import msgspec

from ks_actors._errors import SerializationError
from ks_actors.registry._avro_types import avro_schema
from ks_actors.registry._extra import extra
from ks_actors.registry._serde import RegistrySerde
from ks_actors.registry._types import Schema
from ks_actors.serdes import converters, holds_models, is_immutable

with extra("fastavro"):
    from fastavro import parse_schema, schemaless_reader, schemaless_writer
    from fastavro.read import SchemaResolutionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.registry._client import SchemaRegistry
    from ks_actors.registry._types import Options
    from ks_actors.serdes import Serde

T = TypeVar("T")

BUILT_IN: Final = (bytes, dt.datetime, dt.date, dt.time, Decimal, uuid.UUID)
"""Types that fastavro reads and writes by itself, as logical types."""


def avro(registry: SchemaRegistry, schema: Any, type_: Any, options: Options) -> Serde[Any]:
    """Return a serde of Avro; see SchemaRegistry.avro."""
    if schema is not None and not isinstance(schema, str | dict):
        if type_ is not None:
            raise TypeError(f"the schema of avro is {schema!r}: give a text, a dict or None")
        schema, type_ = avro_schema(schema), schema
    made = None if schema is None else _schema(schema, options)
    return AvroSerde(registry, made, type_, options)


def _schema(given: str | Mapping[str, Any], options: Options) -> Schema:
    text = given if isinstance(given, str) else json.dumps(given)
    text = text.strip()
    # Registries take a primitive type as an object only.
    if text[:1] not in {"{", "["}:
        text = f'{{"type":{text}}}'
    try:
        json.loads(text)
    except ValueError as error:
        raise ValueError(f"the schema of avro is no JSON: {error}: {text[:200]!r}") from error
    return Schema(text, "AVRO", tuple(options.get("references", ())))


@final
class AvroSerde(RegistrySerde[T]):
    """Avro with Confluent's framing."""

    def __init__(
        self, registry: SchemaRegistry, schema: Schema | None, type_: Any, options: Options
    ) -> None:
        record = None if schema is None else _name_of(json.loads(schema.text))
        shown = getattr(type_, "__name__", str(type_)) if type_ is not None else record
        super().__init__(registry, schema, record, options, name=f"avro({shown or ''})")
        self._type = type_
        self._models = converters(type_, self._name) if holds_models(type_) else None
        self.immutable: bool = type_ is not None and is_immutable(type_)

    async def writer_of(
        self,
        schema: Schema,
        *,
        is_key: bool,  # noqa: ARG002 - the schema has the order of fields
    ) -> Callable[[T], bytes]:
        """Return the function that writes by a schema."""
        parsed, typed = await self._parsed(schema), self._type is not None
        to_plain = None if self._models is None else self._models[0]
        # Like Confluent's clients, write only the bytes, without their length.
        if _is_bytes(parsed):
            return _as_bytes

        def write(value: T) -> bytes:
            out = BytesIO()
            plain = value if to_plain is None else to_plain(value)
            if typed:
                plain = msgspec.to_builtins(plain, builtin_types=BUILT_IN)
            schemaless_writer(out, parsed, plain)
            return out.getvalue()

        return write

    async def reader_of(self, schema: Schema) -> Callable[[bytes, int], T]:
        """Return the function that reads data from a position on."""
        written = await self._parsed(schema)
        own = None if self._schema is None else await self._parsed(self._schema)
        if own == written:
            own = None  # nothing to convert
        name, convert = self._name, self._convert
        if _is_bytes(written):
            return lambda data, at: convert(data[at:])

        def read(data: bytes, at: int) -> T:
            source = BytesIO(data)
            source.seek(at)
            try:
                found = schemaless_reader(source, written, own)
            except SchemaResolutionError as error:
                raise SerializationError(
                    f"{name} cannot read what was written by the schema {schema.text:.200}"
                ) from error
            if source.tell() != len(data):
                raise SerializationError(
                    f"{name}: {len(data) - source.tell()} bytes follow the record"
                )
            return convert(found)

        return read

    def _convert(self, found: Any) -> T:
        if self._type is None:
            return found  # type: ignore[no-any-return]
        if self._models is not None:
            return self._models[1](found)  # type: ignore[no-any-return]
        return msgspec.convert(found, self._type, builtin_types=BUILT_IN)  # type: ignore[no-any-return]

    async def _parsed(self, schema: Schema) -> Any:
        named: dict[str, Any] = {}
        await self._resolve(schema, named)
        return parse_schema(json.loads(schema.text), named_schemas=named)

    async def _resolve(self, schema: Schema, named: dict[str, Any]) -> None:
        """Parse the schemas to which `schema` refers, at any depth."""
        for each in schema.references:
            if each.name not in named:
                found = (await self._registry.version(each.subject, each.version)).schema
                await self._resolve(found, named)
                parse_schema(json.loads(found.text), named_schemas=named)


def _name_of(schema: Any) -> str | None:
    if not isinstance(schema, dict):
        return None
    name, space = schema.get("name"), schema.get("namespace")
    if name is None:
        kind = schema.get("type")
        return kind if isinstance(kind, str) else None
    return f"{space}.{name}" if space and "." not in name else str(name)


def _is_bytes(parsed: Any) -> bool:
    return parsed == "bytes" or (
        isinstance(parsed, dict) and parsed.get("type") == "bytes" and "logicalType" not in parsed
    )


def _as_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise SerializationError(f"the schema is bytes, and the value is {value!r:.200}")
    return value
