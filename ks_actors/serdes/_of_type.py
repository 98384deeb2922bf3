"""Types in the place of serdes."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import msgspec

from ks_actors._errors import TopologyError
from ks_actors.serdes._scalars import BOOLEAN, BYTES, DOUBLE, LONG, STRING, UUID, VOID
from ks_actors.serdes._serde import Serde
from ks_actors.serdes._structured import json

T = TypeVar("T")

SerdeOrType: TypeAlias = Serde[T] | type[T]
"""A serde, or a type for which `serde_of` has one."""

_SCALARS: dict[Any, Serde[Any]] = {
    str: STRING,
    bytes: BYTES,
    bool: BOOLEAN,
    int: LONG,
    float: DOUBLE,
    uuid.UUID: UUID,
    type(None): VOID,
}


def serde_of(given: Any, *, role: str, of: str) -> Any:
    """Return the serde of a type; a serde and None as they are.

    `str`, `bytes`, `bool`, `int`, `float`, `UUID` and `NoneType` have the formats of Java's serdes
    STRING, BYTES, BOOLEAN, LONG, DOUBLE, UUID and VOID; so have their `NewType`s. Any other type
    that `json` takes is JSON: a dataclass, a Struct, a TypedDict, a class of attrs, a Pydantic
    model, `dict[str, int]`, `Any`. Raises TopologyError, which names the argument `role` of `of`,
    for anything else.
    """
    if given is None or isinstance(given, Serde):
        return given
    try:
        return of_type(given)
    except (TypeError, NameError) as error:
        remedy = "a type, an object of ks_actors.serdes"
        if getattr(given, "__module__", "").startswith("ks_actors.serdes"):
            remedy = f"its result for a type, such as serdes.{given.__name__}(Order)"
        raise TopologyError(
            f"{role} of {of} is {given!r}, which is neither a serde nor a type that has one: "
            f"{error}; give {remedy}, or None for the app's default"
        ) from error


def inner_serde(given: Any, of: str) -> Any:
    """Return the serde that another one, `of`, wraps. Raises TopologyError also for None."""
    if given is None:
        raise TopologyError(f"inner of {of} is None: give a type, or an object of ks_actors.serdes")
    return serde_of(given, role="inner", of=of)


def of_type(type_: Any) -> Serde[Any]:
    """Return the serde of a type. Raises TypeError or NameError for a type that has none."""
    plain = _plain(type_)
    scalar = _SCALARS.get(plain)
    return json(plain) if scalar is None else scalar


def _plain(type_: Any) -> Any:
    """Return the type for which a NewType or a type alias stands."""
    while True:
        if hasattr(type_, "__supertype__"):  # a NewType
            type_ = type_.__supertype__
        elif type(type_).__name__ == "TypeAliasType":  # a `type` statement
            type_ = type_.__value__
        elif get_origin(type_) is Annotated and not any(
            isinstance(each, msgspec.Meta) for each in get_args(type_)[1:]
        ):
            type_ = get_args(type_)[0]
        else:
            return type_
