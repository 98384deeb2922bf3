"""JSON of Pydantic's models. Nothing here imports Pydantic: a user's model has done that."""

from __future__ import annotations

import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from ks_actors._errors import SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable

_SETS = ("set", "frozenset")
_MOST_PROBLEMS = 5
_WITH_FIELDS = (
    "__dataclass_fields__",
    "__total__",
    "_fields",
    "__attrs_attrs__",
    "__struct_fields__",
)


def is_model(cls: object) -> bool:
    """Return whether this is a class of Pydantic v2: a model, or one of its dataclasses."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__")


def holds_models(type_: Any) -> bool:
    """Return whether a type is, or has at any depth, a class of Pydantic."""
    return "pydantic" in sys.modules and _holds_models(type_, [])


def _holds_models(type_: Any, seen: list[Any]) -> bool:
    # msgspec does not inspect a union of models, so look for models here.
    if is_model(type_):
        return True
    if type_ in seen:
        return False
    seen.append(type_)
    cls = get_origin(type_) or type_
    parts = [*get_args(type_)]
    if any(hasattr(cls, name) for name in _WITH_FIELDS):
        with suppress(NameError, TypeError):  # msgspec reports such types
            parts += get_type_hints(cls).values()
    return any(_holds_models(part, seen) for part in parts)


def info_of(type_: Any) -> inspect.Type:
    """Return msgspec's description of a type; a type with several models counts as Any."""
    try:
        return inspect.type_info(type_)
    except TypeError:
        return inspect.AnyType()


# A value that its field does not allow is an error, not a warning. Write aliases, and no computed
# fields, because these are the fields that are read.
_WRITTEN = {"by_alias": True, "round_trip": True, "warnings": "error"}


def adapter_of(type_: Any, name: str) -> Any:
    """Return Pydantic's adapter of a type with models.

    Raises TypeError for a type that Pydantic does not know either, such as a Struct that has a
    model.
    """
    pydantic: Any = sys.modules["pydantic"]
    try:
        adapter = pydantic.TypeAdapter(type_)
        adapter.rebuild()  # raises for a forward reference that is undefined
        adapter.core_schema  # noqa: B018 - likewise
    except (pydantic.errors.PydanticUserError, NameError) as error:
        reason = str(error).partition("\n")[0]
        raise TypeError(f"{name}: Pydantic cannot read this type: {reason}") from error
    return adapter


def converters(type_: Any, name: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return the functions that make plain data of a type with models, and read plain data.

    A value that would be read back as another one is a SerializationError, as in `json`.
    """
    adapter = adapter_of(type_, name)
    read = _reading(adapter.validate_python, f"this record is no {name}")

    def plain(value: Any) -> Any:
        try:
            made = adapter.dump_python(value, **_WRITTEN)
            back = read(made)
        except Exception as error:
            raise SerializationError(
                f"{name} cannot write this {type(value).__name__} so that it can be read again: "
                f"{error}; give an object of its type"
            ) from error
        if back != value:
            raise SerializationError(
                f"{name} would read this {type(value).__name__} back as another object, a "
                f"{type(back).__name__}; give an object of its type"
            )
        return made

    return plain, read


def coders(
    type_: Any, name: str
) -> tuple[Callable[[Any], bytes], Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return the functions that encode values and keys of a type with models, and decode them.

    Raises TypeError, as `adapter_of` does.
    """
    adapter = adapter_of(type_, name)
    encode_ordered = msgspec.json.Encoder(order="deterministic").encode

    def encode(value: Any) -> bytes:
        data: bytes = adapter.dump_json(value, **_WRITTEN)
        return data

    def ordered(value: Any) -> bytes:
        return encode_ordered(
            _ordered(
                adapter.dump_python(value, **_WRITTEN),
                adapter.dump_python(value, mode="json", **_WRITTEN),
                encode_ordered,
            )
        )

    decode = _reading(adapter.validate_json, f"these bytes are no {name}")
    return ordered if _has_sets(adapter.core_schema) else encode, ordered, decode


def _reading(read: Callable[[Any], Any], told: str) -> Callable[[Any], Any]:
    """Return the function that raises SerializationError where `read` raises Pydantic's error."""
    pydantic: Any = sys.modules["pydantic"]

    def checked(data: Any) -> Any:
        try:
            return read(data)
        except pydantic.ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
        # Raise outside of `except`: the text of pydantic's error contains the data.
        raise SerializationError(f"{told}: {_told(problems)}")

    return checked


def as_object(cls: type[Any]) -> Any:
    """Return a model's fields in the form in which msgspec describes the fields of an object.

    `is_frozen` says that no part of a model can be replaced.
    """
    model: Any = cls
    if hasattr(model, "model_rebuild"):
        model.model_rebuild(raise_errors=False)  # with the classes that are defined by now
    fields = getattr(model, "model_fields", {}).items()
    config = getattr(model, "model_config", {})
    extra = config.get("extra")
    return SimpleNamespace(
        fields=[
            SimpleNamespace(
                encode_name=field.alias or name,
                required=field.is_required(),
                type=info_of(field.annotation),
            )
            for name, field in fields
        ],
        forbid_unknown_fields=extra == "forbid",
        is_frozen=bool(config.get("frozen"))
        and extra != "allow"
        and not getattr(model, "__private_attributes__", None),
    )


def _told(problems: list[Any]) -> str:
    told = [f"{each['msg']} - at `{_path(each['loc'])}`" for each in problems[:_MOST_PROBLEMS]]
    more = len(problems) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


def _path(places: tuple[Any, ...]) -> str:
    return "$" + "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in places)


def _has_sets(schema: Any) -> bool:
    if isinstance(schema, dict):
        return schema.get("type") in _SETS or any(map(_has_sets, schema.values()))
    return isinstance(schema, list | tuple) and any(map(_has_sets, schema))


def _ordered(value: Any, written: Any, encode: Callable[[Any], bytes]) -> Any:
    """Return `written`, the JSON form of `value`, with the items of sets in order."""
    match value, written:
        case dict(), dict():
            return {
                name: _ordered(each, form, encode)
                for each, (name, form) in zip(value.values(), written.items(), strict=True)
            }
        case (list() | tuple() | set() | frozenset(), list()):
            items = [_ordered(*pair, encode) for pair in zip(value, written, strict=True)]
            return sorted(items, key=encode) if isinstance(value, set | frozenset) else items
    return written
