"""Serializers of typed JSON and MessagePack: all that they write is read back equal."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from msgspec import inspect

from ks_actors._errors import SerializationError
from ks_actors.serdes._as_read import Conditions
from ks_actors.serdes._columns import for_column, has_column
from ks_actors.serdes._complete import completion
from ks_actors.serdes._known import parts_of

Encode: TypeAlias = Callable[[Any], bytes]
Decode: TypeAlias = Callable[[bytes], Any]
Compare: TypeAlias = Callable[[Any, Any], bool]
Complete: TypeAlias = Callable[[Any], None]

ARRAYS: Final = (list, tuple)
"""Classes that are written as the same array, so an object may be read back as the other class."""


def value_writer(type_: Any, name: str, encode: Encode, decode: Decode, *, free: bool) -> Encode:
    """Return a serializer of values of a type, with a form for columns.

    It raises SerializationError for an object that `decode` could not read, or would read as
    another object. With `free`, `decode` reads everything that is written for a part of type Any.
    """
    slow = checked_value(name, encode, decode, _comparison(type_), completion(type_))
    return _with_quick_check(type_, encode, slow, Conditions(equal=True, free=free))


def key_writer(type_: Any, name: str, encode: Encode, decode: Decode) -> Encode:
    """Return a serializer of keys of a type, with a form for columns.

    It refuses the same objects as `value_writer`. Keys that are read back as the same object of the
    type get the same bytes: an int in the place of a float is written as that float.
    """
    slow = checked_key(
        name,
        encode,
        encode,
        decode,
        _comparison(type_),
        completion(type_),
        completion(type_, omitted=True),
    )
    return _with_quick_check(type_, encode, slow, Conditions(omitted=True))


def _with_quick_check(type_: Any, encode: Encode, slow: Encode, conditions: Conditions) -> Encode:
    """Return `encode` for objects that meet the quick conditions of a type, `slow` for others."""
    condition = conditions.of(type_, "value")
    if condition is None:
        return slow
    names = {**conditions.names, "encode": encode, "slow": slow}
    # The evaluated text has only names of fields and types, never data.
    write: Encode = eval(f"lambda value: encode(value) if {condition} else slow(value)", names)  # noqa: S307 - of fixed parts
    names |= {"together": for_column(encode), "one_by_one": for_column(write)}
    has_column(
        write,
        eval(  # noqa: S307 - of fixed parts
            f"lambda column: together(column) if all([{condition} for value in column if value is "
            "not None]) else one_by_one(column)",
            names,
        ),
    )
    return write


def checked_value(
    name: str,
    encode: Encode,
    decode: Decode,
    reads_as: Compare | None = None,
    complete: Complete | None = None,
) -> Encode:
    """Return a serializer that reads its bytes back, and compares the object with the original."""
    reads_as = reads_as or same

    def checked(value: Any) -> bytes:
        try:
            data = encode(value)
            back = decode(data)
            if back == value or reads_as(value, back):
                if complete is None:
                    return data
                complete(back)
                return encode(back)
        except Exception as error:
            raise SerializationError(
                f"{name} cannot write this {type(value).__name__} so that it can be read again: "
                f"{error}; give an object of its type"
            ) from error
        raise SerializationError(
            f"{name} would read this {type(value).__name__} back as another object, a "
            f"{type(back).__name__}: {back!r:.100}; give an object of its type"
        )

    return checked


def checked_key(
    name: str,
    encode: Encode,
    encode_key: Encode,
    decode: Decode,
    reads_as: Compare | None = None,
    complete: Complete | None = None,
    complete_key: Complete | None = None,
) -> Encode:
    """Return a serializer that writes the object it reads back, if that is equal."""
    checked = checked_value(name, encode, decode, reads_as, complete)

    def as_typed(key: Any) -> bytes:
        back = decode(checked(key))
        if complete_key is not None:
            complete_key(back)
        return encode_key(back)

    return as_typed


def _comparison(type_: Any) -> Compare:
    """Return the comparison of an object with the object that is read back."""
    info = inspect.type_info(type_)
    if not any(isinstance(part, inspect.AnyType | inspect.RawType) for part in parts_of(info)):
        return same
    # Only parts of type Any may be read back as something else, as a tuple is as a list.
    if isinstance(info, inspect.UnionType):
        return lambda _, __: True
    return _alike


def _alike(one: Any, other: Any) -> bool:
    """Return whether two objects are of one kind."""
    return (
        isinstance(one, type(other))
        or all(isinstance(each, Mapping) for each in (one, other))
        or all(isinstance(each, ARRAYS) for each in (one, other))
    )


def same(one: Any, other: Any) -> bool:
    """Return whether two objects are equal, also where their class does not say so.

    A NaN is the same as any NaN, and a sequence the same as another with the same items.
    """
    if one == other:
        return True
    if isinstance(one, float) and isinstance(other, float):
        return math.isnan(one) and math.isnan(other)
    match one, other:
        case Mapping(), Mapping():
            return len(one) == len(other) and all(
                key in other and same(value, other[key]) for key, value in one.items()
            )
        case (list() | tuple(), list() | tuple()):
            return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and _same_fields(one, other)


def _same_fields(one: Any, other: Any) -> bool:
    names = list(_fields(one))
    return bool(names) and all(same(getattr(one, name), getattr(other, name)) for name in names)


def _fields(value: Any) -> Iterator[str]:
    yield from getattr(value, "__struct_fields__", ())
    if dataclasses.is_dataclass(value):
        yield from (field.name for field in dataclasses.fields(value))
    yield from (field.name for field in getattr(value, "__attrs_attrs__", ()))
    yield from getattr(type(value), "model_fields", ())  # of Pydantic
