"""Objects of serdes as values that Arrow takes, and values of Arrow as objects."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from msgspec import inspect

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SIMPLE = {type(None), bool, int, float, str, bytes}
# Times of day are missing: Spark has no type for them that all of its versions can read.
_EXACT: dict[type[Any], Any] = {
    dt.datetime: pa.types.is_timestamp,
    dt.date: pa.types.is_date,
    dt.timedelta: pa.types.is_duration,
    Decimal: pa.types.is_decimal,
}


def plain(name: str, objects: list[Any], kind: pa.DataType | None) -> list[Any]:
    """Return the objects of a column as values of its type; None infers the type.

    Structs and dataclasses become dicts at any depth. Dates, times and decimals stay unchanged if
    the type has them, and become text otherwise. Raises ConfigError for a type with fields that the
    objects do not have.
    """
    found = set(map(type, objects))
    if found <= _SIMPLE:
        return objects
    if kind is not None:
        for each in found:
            _check_fields(name, each, kind)
    leaves = None if kind is None else list(_leaves(kind))
    exact = tuple(each for each, fits in _EXACT.items() if leaves is None or any(map(fits, leaves)))
    values = [one if type(one) in _SIMPLE else _built(one, exact) for one in objects]
    if leaves and exact and any(map(_is_text, leaves)):
        return [_texts(value, kind) for value in values]
    return values


def _built(value: Any, exact: tuple[type[Any], ...]) -> Any:
    try:
        return msgspec.to_builtins(value, builtin_types=(bytes, *exact))
    except TypeError:
        # msgspec does not know the type; Arrow may know it, or raises an error that names it.
        return value


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _leaves(kind: pa.DataType) -> Iterable[pa.DataType]:
    if pa.types.is_nested(kind):
        for number in range(kind.num_fields):
            yield from _leaves(kind.field(number).type)
    else:
        yield kind


def _texts(value: Any, kind: Any) -> Any:
    """Turn dates, times and decimals into text where the type is text."""
    if _is_text(kind):
        return _built(value, ()) if type(value) in _EXACT else value
    if isinstance(value, dict):
        if pa.types.is_struct(kind):
            return {one.name: _texts(value.get(one.name), one.type) for one in kind}
        if pa.types.is_map(kind):
            return {_texts(key, kind.key_type): _texts(value[key], kind.item_type) for key in value}
    if isinstance(value, list | tuple) and pa.types.is_list(kind):
        return [_texts(each, kind.value_type) for each in value]
    return value


def _check_fields(name: str, of: type[Any], kind: pa.DataType) -> None:
    """Raise ConfigError if a type has fields that objects of a class do not have.

    Each such field would be null in every row, without an error.
    """
    if issubclass(of, msgspec.Struct) or dataclasses.is_dataclass(of):
        try:
            info = inspect.type_info(of)
        except TypeError:
            return
        _compare(name, info, kind)


def _compare(path: str, info: Any, kind: Any) -> None:
    if isinstance(info, inspect.UnionType):
        several = [each for each in info.types if not isinstance(each, inspect.NoneType)]
        if len(several) == 1:
            _compare(path, several[0], kind)
    elif isinstance(info, inspect.StructType | inspect.DataclassType) and pa.types.is_struct(kind):
        if isinstance(info, inspect.StructType) and info.array_like:
            return
        fields = {field.encode_name: field.type for field in info.fields}
        tag = getattr(info, "tag_field", None)
        if strange := [one.name for one in kind if one.name not in fields and one.name != tag]:
            raise ConfigError(
                f"{path}: its type has {', '.join(strange)}, but {info.cls.__qualname__} has no "
                f"such fields, so every row would have nulls there; its fields are "
                f"{', '.join(fields) or 'none'}"
            )
        for one in kind:
            if one.name in fields:
                _compare(f"{path}.{one.name}", fields[one.name], one.type)
    elif isinstance(info, inspect.DictType) and pa.types.is_map(kind):
        _compare(path, info.value_type, kind.item_type)
    elif pa.types.is_list(kind) and (item := getattr(info, "item_type", None)) is not None:
        _compare(path, item, kind.value_type)


def objects_of(column: pa.ChunkedArray) -> list[Any]:
    """Return the values of a column as objects; maps become dicts again."""
    values: list[Any] = column.to_pylist()
    return [_object(value, column.type) for value in values] if _has_map(column.type) else values


def _has_map(kind: Any) -> bool:
    return pa.types.is_map(kind) or (
        pa.types.is_nested(kind)
        and any(_has_map(kind.field(number).type) for number in range(kind.num_fields))
    )


def _object(value: Any, kind: Any) -> Any:
    if value is None or not _has_map(kind):
        return value
    if pa.types.is_map(kind):
        pairs: Sequence[tuple[Any, Any]] = value
        return {_object(key, kind.key_type): _object(item, kind.item_type) for key, item in pairs}
    if pa.types.is_struct(kind):
        return {one.name: _object(value[one.name], one.type) for one in kind}
    return [_object(each, kind.value_type) for each in value]
