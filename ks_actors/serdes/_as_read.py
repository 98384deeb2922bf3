"""Detect objects that are read back just as they were written, without writing them."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias, get_origin

from msgspec import inspect

from ks_actors.serdes._complete import in_dict, is_like, omitted_defaults

AsRead: TypeAlias = Callable[[Any], bool]
"""Return True when an object can be written and is read back as an equal object of the same types.

Returns False in doubt.
"""


def whole_number(bits: int) -> AsRead:
    """Return a check for integers that fit into this many bits, sign included."""
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


SCALARS: Final[tuple[tuple[inspect.Type, str], ...]] = (
    (inspect.IntType(), f"type({{0}}) is int and {-1 << 63} <= {{0}} < {1 << 63}"),
    (inspect.StrType(), "type({0}) is str and ({0}.isascii() or is_text({0}))"),
    (inspect.FloatType(), "type({0}) is float and {0} - {0} == 0"),
    (inspect.BoolType(), "{0} is True or {0} is False"),
    (inspect.BytesType(), "type({0}) is bytes"),
    (inspect.NoneType(), "{0} is None"),
    (inspect.UUIDType(), "type({0}) is uuid_"),
    (inspect.DateType(), "type({0}) is date"),
    (
        inspect.DateTimeType(),
        "type({0}) is datetime_ and not {0}.fold and ({0}.tzinfo is None or {0}.tzinfo is utc)",
    ),
    (inspect.DecimalType(), "type({0}) is decimal_ and {0}.is_finite()"),
)
"""Types without bounds or patterns, and the conditions for their objects.

Types with bounds or patterns are not here, because only decoding checks these.
"""

EXACT_FLOATS: Final = 1 << 53
"""Whole numbers up to this number can be converted to floats without loss."""

WHOLE_FLOAT: Final = (
    "({0} - {0} == 0 if type({0}) is float else "
    f"type({{0}}) is int and {-EXACT_FLOATS} <= {{0}} <= {EXACT_FLOATS})"
)
"""The condition for a float that may be given as an int."""

NAMES: Final[dict[str, Any]] = {
    "is_text": is_text,
    "uuid_": uuid.UUID,
    "date": dt.date,
    "datetime_": dt.datetime,
    "utc": dt.UTC,
    "is_like": is_like,
    "decimal_": decimal.Decimal,
}


class Conditions:
    """The conditions under which objects are read back from JSON or MessagePack.

    A condition is one expression: a call for each part of an object would take as long as writing
    the object. The expression refers to names in `names`. If it is true, the object is read back
    unchanged, or with `equal` as an equal object. With `free` parts of type Any may be anything.
    With `omitted`, Structs leave out defaults, as `omit_defaults` says.
    """

    def __init__(self, *, equal: bool = False, free: bool = False, omitted: bool = False) -> None:
        self.names: dict[str, Any] = dict(NAMES)
        self._equal: bool = equal
        self._free: bool = free
        self._omitted: bool = omitted

    def of(self, type_: Any, place: str) -> str | None:
        """Return the condition for the object at a place, None where there is no quick one."""
        return self._condition(inspect.type_info(type_), place, frozenset())

    def _condition(self, info: inspect.Type, place: str, around: frozenset[int]) -> str | None:
        if id(info) in around:
            return None  # A recursive type.
        around |= {id(info)}
        if isinstance(info, inspect.UnionType):
            each = [self._condition(part, place, around) for part in info.types]
            return None if None in each else f"({' or '.join(f'({part})' for part in each)})"
        parts = self._loose(info, place) or self._composed(info, place, around)
        if not parts:
            known = (template.format(place) for plain, template in SCALARS if info == plain)
            return next(known, None)
        if None in parts:
            return None
        return " and ".join(f"({part})" for part in parts if part != "True") or "True"

    def _loose(self, info: inspect.Type, place: str) -> list[str | None]:
        """Return the conditions for an object that need not be read back unchanged."""
        match info:
            case inspect.AnyType() if self._free:
                return ["True"]
            case inspect.FloatType(gt=None, ge=None, lt=None, le=None, multiple_of=None) if (
                self._equal
            ):
                return [WHOLE_FLOAT.format(place)]
            # If items have types, checking each takes longer than reading them all again.
            case inspect.ListType(
                item_type=inspect.AnyType(), min_length=None, max_length=None
            ) if self._free:
                return [f"type({place}) is list"]
            case inspect.DictType(
                value_type=inspect.AnyType(), min_length=None, max_length=None
            ) if self._free:
                if isinstance(info.key_type, inspect.AnyType):
                    return [f"type({place}) is dict"]
                if info.key_type == inspect.StrType():
                    return [
                        f"type({place}) is dict",
                        f"not {place} or set(map(type, {place})) == {{str}}",
                    ]
        return []

    def _composed(self, info: inspect.Type, place: str, around: frozenset[int]) -> list[str | None]:
        """Return the conditions for an object of a user's class, or a tuple."""
        parts: list[str | None] = []
        match info:
            case inspect.TupleType():
                parts = [f"type({place}) is tuple and len({place}) == {len(info.item_types)}"]
                parts += [
                    self._condition(item, f"{place}[{index}]", around)
                    for index, item in enumerate(info.item_types)
                ]
            case inspect.VarTupleType(min_length=None, max_length=None) if not self._equal:
                item = self._condition(info.item_type, "each", around)
                parts = [
                    f"type({place}) is tuple",
                    item and f"all([{item} for each in {place}])",
                ]
            case inspect.TypedDictType() if all(field.required for field in info.fields):
                parts = [f"type({place}) is dict and len({place}) == {len(info.fields)}"]
                for field in info.fields:
                    parts.append(f"{field.name!r} in {place}")
                    parts.append(self._condition(field.type, f"{place}[{field.name!r}]", around))
            case inspect.StructType() | inspect.DataclassType() | inspect.NamedTupleType() if (
                not hasattr(info.cls, "__post_init__") and get_origin(info.cls) is None
            ):
                parts = [f"type({place}) is {self._name(info.cls)}"]
                parts += [
                    self._condition(field.type, f"{place}.{field.name}", around)
                    for field in info.fields
                ]
                parts += self._alike(info, info.cls, place)
            case inspect.EnumType() if not issubclass(info.cls, enum.Flag):
                parts = [f"type({place}) is {self._name(info.cls)}"]
        return parts

    def _alike(self, info: inspect.Type, cls: Any, place: str) -> list[str | None]:
        """Return the conditions for an object that is written like every object equal to it."""
        parts: list[str | None] = []
        if names := in_dict(info):
            if hasattr(cls, "__attrs_attrs__"):
                parts = [f"[*{place}.__dict__] == {self._name(names)}"]
            else:  # only a default can be missing
                parts = [f"{each!r} in {place}.__dict__" for each in names if hasattr(cls, each)]
        for name, default in omitted_defaults(info) if self._omitted else ():
            parts.append(f"not is_like({place}.{name}, {self._name(default)})")
        return parts

    def _name(self, value: Any) -> str:
        name = f"name{len(self.names)}"
        self.names[name] = value
        return name


def of_type(type_: Any) -> AsRead | None:
    """Return a check of whether msgspec reads an object of `type_` back unchanged.

    Returns None if there is no quick check for the type.
    """
    conditions = Conditions()
    expression = conditions.of(type_, "value")
    found: AsRead | None = (
        # The evaluated text has only names of fields and types, never data.
        None if expression is None else eval(f"lambda value: {expression}", conditions.names)  # noqa: S307 - of fixed parts
    )
    return found
