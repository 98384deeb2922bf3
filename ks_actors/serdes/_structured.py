"""Serdes of JSON and MessagePack, with types."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

from ks_actors.serdes._as_read import of_type
from ks_actors.serdes._immutable import is_immutable
from ks_actors.serdes._serde import FunctionSerde, Serde

T = TypeVar("T")


@overload
def json(type_: type[T], /) -> Serde[T]: ...
@overload
def json(type_: Any = ..., /) -> Serde[Any]: ...
def json(type_: Any = Any, /) -> Serde[Any]:
    """Return the serde of JSON that is a `type_`: a Struct, a dataclass, `dict[str, int]`, … whatever msgspec knows; other JSON is bad data.

    Without a type anything is read, as dicts, lists and scalars. Keys are written with the members of objects in order, so that equal keys get
    equal bytes.
    """
    return FunctionSerde(
        msgspec.json.Encoder().encode,
        msgspec.json.Decoder(type_).decode,
        serialize_key=msgspec.json.Encoder(order="deterministic").encode,
        faithful=False,  # 1 == 1.0 == True, and all three are written differently
        immutable=is_immutable(type_),
        name=f"json({_name(type_)})",
        as_read=of_type(type_) if is_immutable(type_) else None,
    )


@overload
def msgpack(type_: type[T], /) -> Serde[T]: ...
@overload
def msgpack(type_: Any = ..., /) -> Serde[Any]: ...
def msgpack(type_: Any = Any, /) -> Serde[Any]:
    """Return the serde of MessagePack that is a `type_`; as `json`, but smaller and quicker."""
    return FunctionSerde(
        msgspec.msgpack.Encoder().encode,
        msgspec.msgpack.Decoder(type_).decode,
        serialize_key=msgspec.msgpack.Encoder(order="deterministic").encode,
        faithful=False,
        immutable=is_immutable(type_),
        name=f"msgpack({_name(type_)})",
        as_read=of_type(type_) if is_immutable(type_) else None,
    )


def _name(type_: Any) -> str:
    return type_.__name__ if isinstance(type_, type) else str(type_)
