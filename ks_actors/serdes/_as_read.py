"""Detect objects that are read back just as they were written, without writing them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_origin

from msgspec import inspect

AsRead: TypeAlias = Callable[[Any], bool]
"""Return True when an object can be written and is read back as an equal object of the same types.

Returns False in doubt.
"""


def whole_number(bits: int) -> AsRead:
    """Return a check for integers that fit into so many bits, sign included."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return lambda value: type(value) is int and low <= value <= high


def is_text(value: Any) -> bool:
    """Return whether this is a str that can be encoded as UTF-8."""
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:  # A lone surrogate.
        return False
    return True


def is_bytes(value: Any) -> bool:
    """Return whether this is bytes, and of no subclass."""
    return type(value) is bytes


def is_bool(value: Any) -> bool:
    """Return whether this is True or False."""
    return value is True or value is False


def is_double(value: Any) -> bool:
    """Return whether this is a float."""
    return type(value) is float


def is_uuid(value: Any) -> bool:
    """Return whether this is a UUID."""
    return type(value) is uuid.UUID


def of_serde(serde: Any) -> AsRead | None:
    """Return a serde's check of its objects; None if it has none."""
    found: AsRead | None = getattr(serde, "as_read", None)
    return found


def of_type(type_: Any) -> AsRead | None:
    """Return a check for objects that msgspec reads back unchanged, written as a `type_`.

    Returns None where no quick check exists. The check is one expression: a call for each part of
    an object would take as long as writing it.
    """
    names: dict[str, Any] = {"is_text": is_text}
    expression = _condition(inspect.type_info(type_), "value", names, frozenset())
    found: AsRead | None = (
        # The evaluated text has only names of fields and types, never data.
        None if expression is None else eval(f"lambda value: {expression}", names)  # noqa: S307 - of fixed parts
    )
    return found


SCALARS: Final[tuple[tuple[inspect.Type, str], ...]] = (
    (inspect.IntType(), f"type({{0}}) is int and {-1 << 63} <= {{0}} < {1 << 63}"),
    (inspect.StrType(), "type({0}) is str and ({0}.isascii() or is_text({0}))"),
    (inspect.FloatType(), "type({0}) is float and {0} - {0} == 0"),
    (inspect.BoolType(), "{0} is True or {0} is False"),
    (inspect.BytesType(), "type({0}) is bytes"),
    (inspect.NoneType(), "{0} is None"),
)
"""Types without bounds or patterns, and the conditions for their objects.

Bounds and patterns would be checked by decoding only.
"""


def _condition(
    info: inspect.Type, place: str, names: dict[str, Any], around: frozenset[int]
) -> str | None:
    """Return an expression that is true when the object at a place is read back unchanged.

    Types that it refers to are added to `names`.
    """
    if id(info) in around:
        return None  # A recursive type.
    around |= {id(info)}
    parts: list[str | None]
    match info:
        case inspect.TupleType():
            parts = [f"type({place}) is tuple and len({place}) == {len(info.item_types)}"]
            parts += [
                _condition(item, f"{place}[{index}]", names, around)
                for index, item in enumerate(info.item_types)
            ]
        case inspect.VarTupleType(min_length=None, max_length=None):
            each = _condition(info.item_type, "each", names, around)
            parts = [f"type({place}) is tuple", each and f"all([{each} for each in {place}])"]
        case inspect.StructType() | inspect.DataclassType() if (
            not hasattr(info.cls, "__post_init__") and get_origin(info.cls) is None
        ):
            name = f"cls{len(names)}"
            names[name] = info.cls
            parts = [
                f"type({place}) is {name}",
                *(
                    _condition(field.type, f"{place}.{field.name}", names, around)
                    for field in info.fields
                ),
            ]
        case inspect.UnionType():
            parts = [_condition(part, place, names, around) for part in info.types]
            return None if None in parts else f"({' or '.join(f'({part})' for part in parts)})"
        case _:
            parts = [
                next((template.format(place) for plain, template in SCALARS if info == plain), None)
            ]
    return None if None in parts else " and ".join(f"({part})" for part in parts)
