"""Serdes of JSON and MessagePack, with types."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

from ks_actors.serdes._as_read import of_type
from ks_actors.serdes._immutable import is_immutable
from ks_actors.serdes._known import unknown_types
from ks_actors.serdes._serde import FunctionSerde, Serde

T = TypeVar("T")


@overload
def json(type_: type[T], /) -> Serde[T]: ...
@overload
def json(type_: Any = ..., /) -> Serde[Any]: ...
def json(type_: Any = Any, /) -> Serde[Any]:
    """Return the serde of JSON for a `type_` that msgspec knows; other JSON is bad data.

    Examples of types are a Struct, a dataclass and `dict[str, int]`. Without a type any JSON is
    read, as dicts, lists and scalars. Keys are written with the members of objects in order, so
    that equal keys get equal bytes. Raises TypeError for a type that msgspec does not know.
    """
    _check(type_, "json")
    return FunctionSerde(
        msgspec.json.Encoder().encode,
        msgspec.json.Decoder(type_).decode,
        serialize_key=msgspec.json.Encoder(order="deterministic").encode,
        faithful=False,  # 1 == 1.0 == True, and all three are written differently
        immutable=is_immutable(type_),
        name=f"json({_name(type_)})",
        as_read=of_type(type_) if is_immutable(type_) else None,
        reads_back=type_ is not Any,  # all that is written is JSON
    )


@overload
def msgpack(type_: type[T], /) -> Serde[T]: ...
@overload
def msgpack(type_: Any = ..., /) -> Serde[Any]: ...
def msgpack(type_: Any = Any, /) -> Serde[Any]:
    """Return the serde of MessagePack for a `type_`; as `json`, but smaller and faster."""
    _check(type_, "msgpack")
    return FunctionSerde(
        msgspec.msgpack.Encoder().encode,
        msgspec.msgpack.Decoder(type_).decode,
        serialize_key=msgspec.msgpack.Encoder(order="deterministic").encode,
        faithful=False,
        immutable=is_immutable(type_),
        name=f"msgpack({_name(type_)})",
        as_read=of_type(type_) if is_immutable(type_) else None,
    )


def _check(type_: Any, word: str) -> None:
    # Check now: msgspec makes a decoder for such a type, and it rejects each record.
    for unknown in unknown_types(type_):
        raise TypeError(
            f"{word}({_name(type_)}): msgspec cannot read objects of {unknown!r}; give a Struct, a "
            "dataclass, a TypedDict or a built-in type, or make a serde of two functions, for a "
            "Pydantic model Serde.of(lambda it: it.model_dump_json().encode(), "
            "Model.model_validate_json)"
        )


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_)
