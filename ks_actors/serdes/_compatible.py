"""Comparison of serdes of two versions of an app: whether the new serde reads the old data."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from msgspec import inspect

from ks_actors.serdes._pydantic import as_object, info_of, is_model
from ks_actors.serdes._serde import FunctionSerde, Serde

_WRITTEN_ALIKE = (inspect.AnyType, inspect.StrType, inspect.IntType, inspect.BoolType)
"""Types whose objects have the same bytes without a type."""


def reads(new: Serde[Any] | None, old: Serde[Any] | None, *, is_key: bool = False) -> bool:
    """Tell whether `new` reads what `old` wrote, as far as can be seen.

    A key is found by its bytes, so `is_key` requires equal bytes. Types of JSON and MessagePack are
    compared by their parts, in whatever module they are, and other serdes by their names: functions
    and classes of a user are not inspected. None is an unknown serde.
    """
    if new is old or new is None or old is None:
        return True
    if isinstance(new, FunctionSerde) and isinstance(old, FunctionSerde):
        if new.form is None or old.form is None:
            return repr(new) == repr(old)
        (new_format, new_type), (old_format, old_type) = new.form, old.form
        return new_format == old_format and _Types(exact=is_key).fit(
            info_of(old_type), info_of(new_type)
        )
    if type(new).__qualname__ != type(old).__qualname__:
        return False
    ours: dict[str, Any] = getattr(new, "__dict__", {})
    theirs: dict[str, Any] = getattr(old, "__dict__", {})
    return all(
        reads(inner, theirs[name], is_key=is_key)
        for name, inner in ours.items()
        if isinstance(inner, Serde) and isinstance(theirs.get(name), Serde)
    )


class _Types:
    """A comparison of types; if `exact`, equal objects are to be written as equal bytes."""

    def __init__(self, *, exact: bool) -> None:
        self._exact: bool = exact
        self._seen: set[tuple[int, int]] = set()
        self._models: dict[type[Any], Any] = {}

    def fit(self, old: inspect.Type, new: inspect.Type) -> bool:  # noqa: PLR0911 - one per kind
        """Return whether `new` reads everything that `old` writes."""
        old, new = self._fields_of(old), self._fields_of(new)
        if (id(old), id(new)) in self._seen:
            return True  # a recursive type
        self._seen.add((id(old), id(new)))
        if isinstance(new, inspect.AnyType) or isinstance(old, inspect.AnyType):
            return isinstance(new, inspect.AnyType) and (
                not self._exact or isinstance(old, _WRITTEN_ALIKE)
            )
        if isinstance(old, inspect.UnionType):
            return all(self.fit(each, new) for each in old.types)
        if isinstance(new, inspect.UnionType):
            return any(self.fit(old, each) for each in new.types)
        if hasattr(old, "fields") and hasattr(new, "fields"):
            return self._objects(old, new)
        if isinstance(old, inspect.TupleType) and isinstance(new, inspect.TupleType):
            return len(old.item_types) == len(new.item_types) and all(
                map(self.fit, old.item_types, new.item_types)
            )
        if isinstance(old, inspect.CollectionType) and isinstance(new, inspect.CollectionType):
            return self.fit(old.item_type, new.item_type)
        if isinstance(old, inspect.DictType) and isinstance(new, inspect.DictType):
            return self.fit(old.key_type, new.key_type) and self.fit(old.value_type, new.value_type)
        return self._scalars(old, new)

    def _fields_of(self, info: Any) -> Any:
        """Return the fields of a model of Pydantic, other types as they are."""
        if not isinstance(info, inspect.CustomType):
            return info
        if is_model(info.cls) and info.cls not in self._models:
            self._models[info.cls] = as_object(info.cls)
        return self._models.get(info.cls, info)

    def _scalars(self, old: inspect.Type, new: inspect.Type) -> bool:
        if isinstance(old, inspect.EnumType) and isinstance(new, inspect.EnumType):
            return {each.value for each in old.cls} <= {each.value for each in new.cls}
        if isinstance(old, inspect.LiteralType) and isinstance(new, inspect.LiteralType):
            return set(old.values) <= set(new.values)
        if isinstance(old, inspect.IntType) and isinstance(new, inspect.FloatType):
            return not self._exact
        if type(old) is not type(new):
            return False
        if isinstance(old, inspect.CustomType) and isinstance(new, inspect.CustomType):
            return old.cls.__qualname__ == new.cls.__qualname__
        # Bounds may have been widened, or left out.
        return old == new or self._exact or new == type(new)()

    def _objects(self, old: Any, new: Any) -> bool:
        in_order = _in_order(new)
        if in_order is not _in_order(old) or getattr(new, "tag", None) != getattr(old, "tag", None):
            return False
        names = [field.encode_name for field in old.fields]
        if self._exact and names != [field.encode_name for field in new.fields]:
            return False
        if in_order:
            pairs = list(zip_longest(old.fields, new.fields))
        else:
            by_name = {field.encode_name: field for field in old.fields}
            pairs = [(by_name.pop(field.encode_name, None), field) for field in new.fields]
            pairs += [(field, None) for field in by_name.values()]
        return all(self._fields(before, after, new) for before, after in pairs)

    def _fields(self, old: Any, new: Any, owner: Any) -> bool:
        if new is None:
            # A named tuple has no room for more fields, and some Structs refuse unknown fields.
            return not (
                isinstance(owner, inspect.NamedTupleType)
                or getattr(owner, "forbid_unknown_fields", False)
            )
        if old is None:
            return not new.required
        # A field with a default in the old type may be missing in rows of an earlier version.
        return (old.required or not new.required) and self.fit(old.type, new.type)


def _in_order(info: Any) -> bool:
    """Return whether an object is written as an array of its fields."""
    return isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False)
