"""Normalize read objects: msgspec writes some equal objects as different bytes.

A dataclass with a `__dict__` is read without the fields that the data leave out: their defaults are
on the class, and are not written. A class of attrs with a `__dict__` is written in the order of the
`__dict__`, with attributes that are no fields. A Struct with `omit_defaults` leaves out the default
objects themselves, and writes other objects that are equal to them.
"""

from __future__ import annotations

from itertools import chain
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, get_origin

import msgspec
from msgspec import inspect

from ks_actors.serdes._known import parts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_OBJECTS = (inspect.DataclassType, inspect.StructType)


def completion(type_: Any, *, omitted: bool = False) -> Callable[[Any], None] | None:
    """Return the function that normalizes a read object of the type; None if the type needs none.

    It changes the object, and all objects in it, so that equal objects are written alike. With
    `omitted`, it also normalizes defaults that Structs leave out.
    """
    infos = [part for part in parts_of(inspect.type_info(type_)) if isinstance(part, _OBJECTS)]
    fields = {cls_of(info): info.fields for info in infos}
    loose = {cls_of(info): names for info in infos if (names := in_dict(info))}
    defaults = {
        cls_of(info): omits for info in infos if omitted and (omits := omitted_defaults(info))
    }
    if not loose and not defaults:
        return None

    def complete(value: Any) -> None:
        cls = type(value)
        found = fields.get(cls)
        if found is None:
            for part in _items(value):
                complete(part)
            return
        for field in found:
            part = getattr(value, field.name)
            if part is not field.default:  # the default is the user's object: do not change it
                complete(part)
        if cls in loose:
            parts = {name: getattr(value, name) for name in loose[cls]}
            value.__dict__.clear()
            value.__dict__.update(parts)
        for name, default in defaults.get(cls, ()):
            if is_like(getattr(value, name), default):
                msgspec.structs.force_setattr(value, name, default)

    return complete


def _items(value: Any) -> Iterable[Any]:
    """Return the parts of a container, nothing for other objects."""
    if isinstance(value, dict):
        return chain(value, value.values())
    return value if isinstance(value, list | tuple | set | frozenset) else ()


def cls_of(info: inspect.DataclassType | inspect.StructType) -> type[Any]:
    """Return the class of objects of a type, without its arguments."""
    cls: type[Any] = get_origin(info.cls) or info.cls
    return cls


def in_dict(info: inspect.Type) -> list[str]:
    """Return the fields of a dataclass, or of a class of attrs, that are in a `__dict__`."""
    if not isinstance(info, inspect.DataclassType):
        return []
    cls = cls_of(info)
    names = [field.name for field in info.fields]
    slots = any(isinstance(getattr(cls, name, None), MemberDescriptorType) for name in names)
    return [] if slots or not cls.__dictoffset__ else names


def omitted_defaults(info: inspect.Type) -> list[tuple[str, Any]]:
    """Return the fields that a Struct leaves out, and their defaults."""
    if not isinstance(info, inspect.StructType) or not cls_of(info).__struct_config__.omit_defaults:
        return []
    return [
        (each.name, each.default) for each in info.fields if each.default is not msgspec.NODEFAULT
    ]


def is_like(value: Any, default: Any) -> bool:
    """Return whether a value is not the default object itself, but is written alike."""
    return value is not default and type(value) is type(default) and bool(value == default)
