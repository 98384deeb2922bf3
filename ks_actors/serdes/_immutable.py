"""Find out whether decoded objects of a type can be changed in place."""

from __future__ import annotations

from typing import Any, get_origin

from msgspec import inspect

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


def is_immutable(type_: Any) -> bool:
    """Return whether msgspec decodes `type_` to deeply immutable objects; False in doubt.

    Immutable are scalars, enums, dates and times, decimals, UUIDs, and containers of only such:
    tuples, named tuples, frozensets, frozen Structs and dataclasses, unions.
    """
    return _immutable(inspect.type_info(type_), set())


def _immutable(info: inspect.Type, seen: set[int]) -> bool:
    # A recursive type returns here as the same object: it is as immutable as the rest of its parts.
    if id(info) in seen:
        return True
    seen.add(id(info))
    match info:
        case inspect.Metadata():
            parts: list[inspect.Type] = [info.type]
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
