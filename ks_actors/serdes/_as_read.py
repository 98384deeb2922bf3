"""Tell objects that are read back just as they were written, without writing them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from operator import attrgetter
from typing import Any, Final, TypeAlias, get_origin

from msgspec import inspect

AsRead: TypeAlias = Callable[[Any], bool]
"""Return True when an object can be written and is read back as an equal object of the same types; False in doubt."""


def whole_number(bits: int) -> AsRead:
    """Return what tells integers that fit into so many bits, sign included."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    return lambda value: type(value) is int and low <= value <= high


def is_text(value: Any) -> bool:
    """Return whether this is a str that can be UTF-8."""
    if type(value) is not str:
        return False
    if value.isascii():
        return True
    value.encode()  # raises where a surrogate stands alone
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


def is_finite(value: Any) -> bool:
    """Return whether this is a float that JSON knows."""
    return type(value) is float and value - value == 0


def is_uuid(value: Any) -> bool:
    """Return whether this is a UUID."""
    return type(value) is uuid.UUID


def is_none(value: Any) -> bool:
    """Return whether this is None."""
    return value is None


SCALARS: Final[tuple[tuple[inspect.Type, AsRead], ...]] = (
    (inspect.IntType(), whole_number(64)),
    (inspect.StrType(), is_text),
    (inspect.FloatType(), is_finite),
    (inspect.BoolType(), is_bool),
    (inspect.BytesType(), is_bytes),
    (inspect.NoneType(), is_none),
)
"""Types without bounds or patterns, which only reading would look at."""


def of_serde(serde: Any) -> AsRead | None:
    """Return what a serde can tell of its objects; None: nothing."""
    found: AsRead | None = getattr(serde, "as_read", None)
    return found


def of_type(type_: Any) -> AsRead | None:
    """Return what tells objects that msgspec reads back as they are, written as a `type_`; None where that is not told so quickly."""
    return _of(inspect.type_info(type_), frozenset())


def _of(info: inspect.Type, around: frozenset[int]) -> AsRead | None:
    if id(info) in around:
        return None  # a type that holds itself
    around |= {id(info)}
    found: AsRead | None = None
    match info:
        case inspect.TupleType():
            found = _row(tuple, tuple, [_of(item, around) for item in info.item_types])
        case inspect.VarTupleType(min_length=None, max_length=None):
            found = _run(_of(info.item_type, around))
        case inspect.StructType() | inspect.DataclassType() if not hasattr(info.cls, "__post_init__") and get_origin(info.cls) is None:
            found = _row(info.cls, _whole([field.name for field in info.fields]), [_of(field.type, around) for field in info.fields])
        case inspect.UnionType():
            found = _either([_of(part, around) for part in info.types])
        case _:
            found = next((as_read for plain, as_read in SCALARS if info == plain), None)
    return found


def _whole(names: list[str]) -> Callable[[Any], Any]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


def _row(cls: type[Any], columns: Callable[[Any], Any], parts: list[AsRead | None]) -> AsRead | None:
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None

    def as_read(value: Any) -> bool:
        if type(value) is not cls:
            return False
        row = columns(value)
        return len(row) == len(known) and all(part(each) for part, each in zip(known, row, strict=True))

    return as_read


def _run(part: AsRead | None) -> AsRead | None:
    return None if part is None else lambda value: type(value) is tuple and all(map(part, value))


def _either(parts: list[AsRead | None]) -> AsRead | None:
    known = [part for part in parts if part is not None]
    return None if len(known) < len(parts) else lambda value: any(part(value) for part in known)
