"""The serde of JSON with a JSON Schema. Needs the extra `registry`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeVar, final

import msgspec

from ks_actors._errors import SerializationError
from ks_actors.registry._extra import extra
from ks_actors.registry._serde import RegistrySerde
from ks_actors.registry._types import Schema
from ks_actors.serdes import adapter_of, holds_models, is_immutable
from ks_actors.serdes import json as json_of

with extra("jsonschema"):
    from jsonschema import ValidationError
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT7

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.registry._client import SchemaRegistry
    from ks_actors.registry._types import Options
    from ks_actors.serdes import Serde

T = TypeVar("T")


def json_schema(
    registry: SchemaRegistry, schema: Any, type_: Any, options: Options, *, validate: bool
) -> Serde[Any]:
    """Return a serde of JSON; see SchemaRegistry.json_schema."""
    made = not isinstance(schema, str | dict)
    if made:
        if type_ is not None:
            raise TypeError(f"the schema of json_schema is {schema!r}: give a text or a dict")
        schema, type_ = _of_type(schema), schema
    return JsonSchemaSerde(
        registry, _schema(schema, options), type_, options, validate=validate and not made
    )


def _of_type(type_: Any) -> dict[str, Any]:
    made = (
        adapter_of(type_, "json_schema").json_schema()
        if holds_models(type_)
        else msgspec.json.schema(type_)
    )
    parts = made.get("$defs", {})
    # The definition of the type itself is the schema, with the name that subjects have.
    name = made.get("$ref", "").removeprefix("#/$defs/")
    if name in parts and not _refers(parts, made["$ref"]):
        made = {**parts.pop(name), **({"$defs": parts} if parts else {})}
    title = name or getattr(type_, "__name__", None)
    return {**({} if title is None else {"title": title}), **made}


def _refers(parts: Any, reference: str) -> bool:
    if isinstance(parts, dict):
        return parts.get("$ref") == reference or any(
            _refers(each, reference) for each in parts.values()
        )
    return isinstance(parts, list) and any(_refers(each, reference) for each in parts)


def _schema(given: str | Mapping[str, Any], options: Options) -> Schema:
    text = given if isinstance(given, str) else json.dumps(given)
    try:
        json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"the schema of json_schema is no JSON: {error}: {text[:200]!r}"
        ) from error
    return Schema(text, "JSON", tuple(options.get("references", ())))


@final
class JsonSchemaSerde(RegistrySerde[T]):
    """JSON with Confluent's framing."""

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: Schema,
        type_: Any,
        options: Options,
        *,
        validate: bool,
    ) -> None:
        content = json.loads(schema.text)
        record = content.get("title") if isinstance(content, dict) else None
        shown = getattr(type_, "__name__", str(type_)) if type_ is not None else record
        super().__init__(registry, schema, record, options, name=f"json_schema({shown or ''})")
        self._type = Any if type_ is None else type_
        self._models = json_of(type_) if holds_models(type_) else None
        self._validate = validate
        self.immutable: bool = type_ is not None and is_immutable(type_)

    async def writer_of(self, schema: Schema, *, is_key: bool) -> Callable[[T], bytes]:
        """Return the function that writes by a schema."""
        check = await self._check_of(schema)
        if self._models is not None:
            return _checked(self._models.serializer("", is_key=is_key), check)
        # Equal keys have equal bytes, and so have values of a type; dicts keep their order.
        in_order = is_key or self._type is not Any
        encode = msgspec.json.Encoder(order="deterministic" if in_order else None).encode
        if check is None:
            return encode

        def write(value: T) -> bytes:
            check(msgspec.to_builtins(value, str_keys=True))
            return encode(value)

        return write

    async def reader_of(self, schema: Schema) -> Callable[[bytes, int], T]:  # noqa: ARG002 - its own
        """Return the function that reads data from a position on."""
        assert self._schema is not None
        check = await self._check_of(self._schema)
        if self._models is None:
            decode: Callable[[Any], Any] = msgspec.json.Decoder(self._type).decode
        else:
            of_model = self._models.deserializer("")

            def decode_model(payload: Any) -> Any:
                return of_model(bytes(payload))

            decode = decode_model

        def read(data: bytes, at: int) -> T:
            payload = memoryview(data)[at:]
            if check is not None:
                check(msgspec.json.decode(payload))
            return decode(payload)  # type: ignore[no-any-return]

        return read

    async def _check_of(self, schema: Schema) -> Callable[[Any], None] | None:
        """Return the function that checks an object against a schema; None without checks."""
        if not self._validate:
            return None
        content, name = json.loads(schema.text), self._name
        cls = validator_for(content)
        cls.check_schema(content)
        validator = cls(content, registry=await self._resolve(schema, Registry()))

        def check(value: Any) -> None:
            try:
                validator.validate(value)
            except ValidationError as error:
                raise SerializationError(f"{name}: {error.json_path}: {error.message}") from error

        return check

    async def _resolve(self, schema: Schema, registry: Any) -> Any:
        """Return the registry with the schemas to which `schema` refers, at any depth."""
        for each in schema.references:
            found = (await self._registry.version(each.subject, each.version)).schema
            resource = Resource.from_contents(json.loads(found.text), default_specification=DRAFT7)
            registry = await self._resolve(found, registry.with_resource(each.name, resource))
        return registry


def _checked(
    encode: Callable[[Any], bytes], check: Callable[[Any], None] | None
) -> Callable[[Any], bytes]:
    if check is None:
        return encode

    def write(value: Any) -> bytes:
        data = encode(value)
        check(msgspec.json.decode(data))
        return data

    return write
