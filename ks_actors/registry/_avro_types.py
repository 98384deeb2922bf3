"""Avro schemas of Python types."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, get_origin

import msgspec
from msgspec import inspect

from ks_actors.serdes import is_model

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final[dict[type[inspect.Type], Any]] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.DateTimeType: {"type": "long", "logicalType": "timestamp-micros"},
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
}


def avro_schema(type_: Any) -> dict[str, Any] | list[Any]:
    """Return the Avro schema of a type that msgspec or Pydantic knows.

    Structs, dataclasses, attrs classes, named tuples, TypedDicts and Pydantic models are records
    with the names of their classes, and defaults where the fields have some. Numbers are longs and
    doubles; datetimes are timestamps in microseconds. Raises TypeError for what Avro does not have.
    """
    try:
        made = _Types(type_).of(inspect.type_info(type_))
    except TypeError as error:
        raise TypeError(f"there is no Avro schema of {type_!r}: {error}; give one") from None
    return {"type": made} if isinstance(made, str) else made


class _Types:
    """The schemas of one type's parts; a record is defined where it comes first."""

    def __init__(self, type_: Any) -> None:
        self._type = type_
        self._named: dict[str, Any] = {}

    def of(self, info: inspect.Type) -> Any:  # noqa: PLR0911 - one per kind
        scalar = _SCALARS.get(type(info))
        if scalar is not None:
            return dict(scalar) if isinstance(scalar, dict) else scalar
        match info:
            case inspect.Metadata():
                return self.of(info.type)
            case inspect.UnionType():
                return self._union(info.types)
            case inspect.ListType() | inspect.VarTupleType():
                return {"type": "array", "items": self.of(info.item_type)}
            case inspect.DictType():
                if not isinstance(info.key_type, inspect.StrType):
                    raise TypeError("the keys of a map are str")
                return {"type": "map", "values": self.of(info.value_type)}
            case inspect.EnumType():
                symbols = [each.value for each in info.cls]
                self._check_names(symbols)
                return self._define(
                    info.cls, lambda: {"type": "enum", "symbols": symbols}, info.cls.__name__
                )
            case inspect.StructType() if info.tag is not None or info.array_like:
                raise TypeError(f"{info.cls.__name__} is tagged, or written as an array")
            case (
                inspect.StructType()
                | inspect.DataclassType()
                | inspect.NamedTupleType()
                | inspect.TypedDictType()
            ):
                cls = get_origin(info.cls) or info.cls
                return self._define(
                    cls,
                    lambda: {"type": "record", "fields": list(map(self._field, info.fields))},
                    cls.__name__,
                )
            case inspect.CustomType() if is_model(info.cls):
                cls = info.cls
                return self._define(
                    cls,
                    lambda: {"type": "record", "fields": list(map(self._field, _fields(cls)))},
                    cls.__name__,
                )
            case _:
                raise TypeError(f"Avro has no form of {type(info).__name__.removesuffix('Type')}")

    def _define(self, cls: Any, make: Any, name: str) -> Any:
        self._check_names([name])
        known = self._named.get(name)
        if known is not None:
            if known is not cls:
                raise TypeError(f"two of its classes have the name {name}")
            return name
        self._named[name] = cls
        made = make()
        return {"type": made.pop("type"), "name": name, **made}

    def _field(self, field: inspect.Field) -> dict[str, Any]:
        self._check_names([field.encode_name])
        if not field.required and field.default is msgspec.NODEFAULT:
            raw = None if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        else:
            raw = field.default
        made = self.of(field.type)
        described: dict[str, Any] = {"name": field.encode_name, "type": made}
        if field.required:
            return described
        default = msgspec.json.decode(msgspec.json.encode(raw, enc_hook=_plain))
        if isinstance(made, list):
            # The default of a union is of its first type.
            first = [each for each in made if _fits(default, each)]
            described["type"] = first[:1] + [each for each in made if each is not first[0]]
        described["default"] = default
        return described

    def _union(self, types: Iterable[inspect.Type]) -> list[Any]:
        # msgspec refuses unions of records that it could not distinguish.
        made = [self.of(each) for each in types]
        return sorted(made, key=lambda each: each != "null")

    @staticmethod
    def _check_names(names: Iterable[Any]) -> None:
        for name in names:
            if not isinstance(name, str) or _NAME.fullmatch(name) is None:
                raise TypeError(f"{name!r} is no name in Avro: letters, digits and _")


def _fields(model: Any) -> list[Any]:
    """Return the fields of a Pydantic model as msgspec describes those of a Struct."""
    model.model_rebuild()
    return [
        inspect.Field(
            name,
            field.alias or name,
            inspect.type_info(field.annotation),
            field.is_required(),
            field.get_default(call_default_factory=True),
        )
        for name, field in model.model_fields.items()
    ]


def _plain(value: Any) -> Any:
    if not is_model(type(value)):
        raise TypeError(f"a default is a {type(value).__name__}")
    return value.model_dump(mode="json", by_alias=True)


def _fits(default: Any, schema: Any) -> bool:
    kind = schema["type"] if isinstance(schema, dict) else schema
    kinds: dict[str, Any] = {
        "null": type(None),
        "boolean": bool,
        "long": int,
        "int": int,
        "double": float,
        "string": str,
        "bytes": str,
        "array": list,
        "map": dict,
        "record": dict,
        "enum": str,
    }
    return type(default) is kinds.get(kind)
