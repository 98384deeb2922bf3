"""Inspect the types that msgspec decodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import inspect

if TYPE_CHECKING:
    from collections.abc import Iterator


def unknown_types(type_: Any) -> Iterator[type[Any]]:
    """Yield the classes in `type_`, at any depth, for which msgspec has no form.

    Raises TypeError for a value that is not a type.
    """
    for part in parts_of(inspect.type_info(type_)):
        if isinstance(part, inspect.CustomType):
            yield part.cls


def parts_of(info: inspect.Type) -> Iterator[inspect.Type]:
    """Yield a type and all types in it, at any depth."""
    yield from _parts(info, set())


def _parts(info: inspect.Type, seen: set[int]) -> Iterator[inspect.Type]:
    if id(info) in seen:
        return
    seen.add(id(info))
    yield info
    # Kinds of types differ between versions of msgspec; these names of their parts do not.
    single = (getattr(info, name, None) for name in ("type", "item_type", "key_type", "value_type"))
    several = (part for name in ("types", "item_types") for part in getattr(info, name, ()))
    fields = (field.type for field in getattr(info, "fields", ()))
    for part in (*single, *several, *fields):
        if isinstance(part, inspect.Type):
            yield from _parts(part, seen)
