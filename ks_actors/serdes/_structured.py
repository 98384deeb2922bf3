"""Serdes of JSON and MessagePack, with types."""

from __future__ import annotations

from typing import Any, Literal, TypeVar, get_origin, overload

import msgspec
from msgspec import inspect

from ks_actors.serdes._as_read import of_type
from ks_actors.serdes._known import parts_of, unknown_types
from ks_actors.serdes._pydantic import as_object, coders, holds_models, info_of, is_model
from ks_actors.serdes._serde import FunctionSerde, Serde
from ks_actors.serdes._typed_writer import (
    Decode,
    Encode,
    checked_key,
    checked_value,
    key_writer,
    value_writer,
)

T = TypeVar("T")
SCALARS = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.DateTimeType,
    inspect.DateType,
    inspect.TimeType,
    inspect.TimeDeltaType,
    inspect.UUIDType,
    inspect.DecimalType,
    inspect.EnumType,
    inspect.LiteralType,
)


@overload
def json(type_: type[T], /) -> Serde[T]: ...
@overload
def json(type_: Any = ..., /) -> Serde[Any]: ...
def json(type_: Any = Any, /) -> Serde[Any]:
    """Return the serde of JSON for a `type_`; other JSON is bad data.

    Examples of types are a Struct, a dataclass, a TypedDict, a class of attrs, a Pydantic model and
    `dict[str, int]`. Without a type any JSON is read, as dicts, lists and scalars. Raises TypeError
    for a type that neither msgspec nor Pydantic knows.

    With a type, objects that would not be read back equal are refused with SerializationError, for
    example another type, or a NaN, which JSON does not have. Parts of type Any are not checked.

    The bytes of a key are its identity. Keys are written with the members of objects in order, and
    numbers as the type has them: an int in the place of a float is written as that float. Defaults
    are written, also those that the data had left out, except by a Struct with `omit_defaults`.
    Without a type 1, 1.0 and True are three keys. With a type, too, 0.0 and -0.0 are two; so are
    equal times of different zones, and equal Decimals with different digits.

    If a type has sets, its values are written with the items of sets and dicts in order, so that
    equal values get the same bytes in each process.

    Pydantic reads and writes a type that has its models: by alias, without computed fields.
    """
    if holds_models(type_):
        return _of_models(type_)
    _check(type_, "json")
    return _typed(
        type_,
        "json",
        msgspec.json.Encoder(order=_order(type_)).encode,
        msgspec.json.Encoder(order="deterministic").encode,
        msgspec.json.Decoder(type_).decode,
        free=True,
    )


@overload
def msgpack(type_: type[T], /) -> Serde[T]: ...
@overload
def msgpack(type_: Any = ..., /) -> Serde[Any]: ...
def msgpack(type_: Any = Any, /) -> Serde[Any]:
    """Return the serde of MessagePack for a `type_`; as `json`, but smaller and faster."""
    _check(type_, "msgpack")
    return _typed(
        type_,
        "msgpack",
        msgspec.msgpack.Encoder(order=_order(type_)).encode,
        msgspec.msgpack.Encoder(order="deterministic").encode,
        msgspec.msgpack.Decoder(type_).decode,
        free=False,  # a dict's keys may be objects that cannot be read
    )


def _typed(
    type_: Any, format_: str, encode: Encode, encode_key: Encode, decode: Decode, *, free: bool
) -> Serde[Any]:
    name = f"{format_}({_name(type_)})"
    immutable = is_immutable(type_)
    typed = type_ is not Any
    return FunctionSerde(
        value_writer(type_, name, encode, decode, free=free) if typed else encode,
        decode,
        serialize_key=key_writer(type_, name, encode_key, decode) if typed else encode_key,
        faithful=False,  # 1 == 1.0 == True, and all three are written differently
        immutable=immutable,
        name=name,
        as_read=of_type(type_) if immutable else None,
        reads_back=not (typed or free),  # a typed writer has read its own bytes
        form=(format_, type_),
    )


def _of_models(type_: Any) -> Serde[Any]:
    name = f"json({_name(type_)})"
    encode, encode_key, decode = coders(type_, name)
    return FunctionSerde(
        checked_value(name, encode, decode),
        decode,
        serialize_key=checked_key(name, encode, encode_key, decode),
        faithful=False,
        immutable=is_immutable(type_),
        name=name,
        reads_back=False,  # the writer has read its own bytes
        form=("json", type_),
    )


def _order(type_: Any) -> Literal["deterministic"] | None:
    """Return the order of items in values; None unless the order differs between processes."""
    parts = parts_of(inspect.type_info(type_))
    unordered = any(isinstance(part, inspect.SetType | inspect.FrozenSetType) for part in parts)
    return "deterministic" if unordered else None


def _check(type_: Any, word: str) -> None:
    # Check now: msgspec makes a decoder for such a type, and it rejects each record.
    for unknown in unknown_types(type_):
        remedy = (
            "json takes it"
            if is_model(unknown)
            else "make it a dataclass, a Struct, a TypedDict, a class of attrs or a Pydantic "
            "model, or give Serde.of(to_bytes, from_bytes)"
        )
        raise TypeError(f"{word}({_name(type_)}): objects of {unknown!r} have no form: {remedy}")


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_)


def is_immutable(type_: Any) -> bool:
    """Return whether msgspec decodes `type_` to deeply immutable objects; False in doubt.

    Immutable are scalars, enums, dates and times, decimals, UUIDs, and containers of only these:
    tuples, named tuples, frozensets, frozen Structs, dataclasses and models, unions.
    """
    return _immutable(info_of(type_), set())


def _immutable(info: inspect.Type, seen: set[Any]) -> bool:
    # A recursive type comes here again, as the same object: then only its other parts matter.
    known = info.cls if isinstance(info, inspect.CustomType) else id(info)
    if known in seen:
        return True
    seen.add(known)
    match info:
        case inspect.CustomType() if is_model(info.cls):
            model = as_object(info.cls)
            if not model.is_frozen:
                return False
            parts: list[inspect.Type] = [field.type for field in model.fields]
        case inspect.Metadata():
            parts = [info.type]
        case inspect.UnionType():
            parts = list(info.types)
        case inspect.TupleType():
            parts = list(info.item_types)
        case inspect.VarTupleType() | inspect.FrozenSetType():
            parts = [info.item_type]
        case inspect.NamedTupleType() | inspect.StructType() | inspect.DataclassType() if _frozen(
            get_origin(info.cls) or info.cls
        ):
            parts = [field.type for field in info.fields]
        case _:
            return isinstance(info, SCALARS)
    return all(_immutable(part, seen) for part in parts)


def _frozen(cls: type[Any]) -> bool:
    for attribute in ("__struct_config__", "__dataclass_params__"):
        if (config := getattr(cls, attribute, None)) is not None:
            return bool(config.frozen)
    return issubclass(cls, tuple)
