"""Types in the place of serdes."""

from __future__ import annotations

import uuid
from typing import Any, TypeAlias, TypeVar

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
    STRING, BYTES, BOOLEAN, LONG, DOUBLE, UUID and VOID. Any other type that msgspec knows is JSON:
    a dataclass, a Struct, a TypedDict, a class of attrs, `dict[str, int]`, `Any`. Raises
    TopologyError, which names the argument `role` of `of`, for anything else.
    """
    if given is None or isinstance(given, Serde):
        return given
    try:
        if (scalar := _SCALARS.get(given)) is not None:
            return scalar
        return json(given)
    except TypeError as error:
        raise TopologyError(
            f"{role} of {of} is {given!r}, which is neither a serde nor a type that has one: "
            f"{error}; give a type, an object of ks_actors.serdes, or None for the app's default"
        ) from error
