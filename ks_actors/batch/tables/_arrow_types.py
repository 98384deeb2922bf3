"""Arrow types of Python types: structs, lists, maps and scalars; text for anything else."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import inspect

from ks_actors import serdes
from ks_actors.serdes import WindowedKeySerde

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.serdes import Serde

    _Inner = Callable[[inspect.Type], "Shape"]

_TIME = pa.timestamp("us", "UTC")
_LAST_MS = 253_402_300_799_999
_SCALARS: list[tuple[type[Any], pa.DataType]] = [
    (inspect.BoolType, pa.bool_()),
    (inspect.IntType, pa.int64()),
    (inspect.FloatType, pa.float64()),
    (inspect.StrType, pa.string()),
    (inspect.BytesType, pa.binary()),
    (inspect.DateType, pa.date32()),
    (inspect.DateTimeType, _TIME),
]
_SERDES: list[tuple[Serde[Any], pa.DataType]] = [
    (serdes.STRING, pa.string()),
    (serdes.BYTES, pa.binary()),
    (serdes.SHORT, pa.int16()),
    (serdes.INTEGER, pa.int32()),
    (serdes.LONG, pa.int64()),
    (serdes.FLOAT, pa.float32()),
    (serdes.DOUBLE, pa.float64()),
    (serdes.BOOLEAN, pa.bool_()),
]
_DECODERS = (msgspec.json.Decoder, msgspec.msgpack.Decoder)


class Shape(NamedTuple):
    """An Arrow type, and the function that converts objects to it (None if not needed)."""

    type: Any
    convert: Callable[[Any], Any] | None


def shape_of(type_: Any) -> Shape:
    """Return the Arrow shape of a Python type; inside itself, a type becomes JSON text."""
    return _shape(frozenset(), inspect.type_info(type_))


def _shape(around: frozenset[int], info: inspect.Type) -> Shape:
    """Return the shape of a type nested in the types `around` it.

    Types are compared by identity, as msgspec has one description of each.
    """
    scalar = next((kind for each, kind in _SCALARS if isinstance(info, each)), None)
    if scalar is not None:
        return Shape(scalar, None)
    if isinstance(info, _PLAIN):
        return _TEXT
    if isinstance(info, inspect.EnumType | inspect.LiteralType):
        return _chosen(info)
    if id(info) in around:
        return _JSON
    inner = partial(_shape, around | {id(info)})
    return next((make(info, inner) for kinds, make in _NESTED if isinstance(info, kinds)), _JSON)


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


_JSON = Shape(pa.string(), _text)
# Text is as in JSON, but without quotation marks, which comparisons and casts do not expect.
_TEXT = Shape(pa.string(), msgspec.to_builtins)
_PLAIN = (inspect.DecimalType, inspect.UUIDType, inspect.TimeType, inspect.TimeDeltaType)


def _chosen(info: inspect.EnumType | inspect.LiteralType) -> Shape:
    """Return the shape of an enum or literal: that of its values."""
    values = (
        [each.value for each in info.cls]
        if isinstance(info, inspect.EnumType)
        else [each for each in info.values if each is not None]
    )
    if all(isinstance(each, int) for each in values):
        return Shape(pa.int64(), msgspec.to_builtins)
    return _TEXT if all(isinstance(each, str) for each in values) else _JSON


def _item(value: Any, name: str) -> Any:
    return value[int(name[1:]) - 1]


def _members(fields: list[tuple[str, Shape]], get: Callable[[Any, str], Any]) -> Shape:
    if not fields:
        return _JSON

    def convert(value: Any) -> dict[str, Any]:
        return {name: _converted(shape, get(value, name)) for name, shape in fields}

    return Shape(pa.struct([(name, shape.type) for name, shape in fields]), convert)


def _converted(shape: Shape, value: Any) -> Any:
    if value is None or value is msgspec.UNSET:
        return None
    return value if shape.convert is None else shape.convert(value)


def _many(item: Shape) -> Shape:
    return Shape(pa.list_(item.type), lambda values: [_converted(item, value) for value in values])


def _map(key: Shape, value: Shape) -> Shape:
    def convert(found: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return [(_converted(key, each), _converted(value, found[each])) for each in found]

    return Shape(pa.map_(key.type, value.type), convert)


def _union(infos: Iterable[inspect.Type], inner: _Inner) -> Shape:
    several = list(infos)
    if len(several) == 1:
        return inner(several[0])
    if several and all(isinstance(each, inspect.IntType | inspect.FloatType) for each in several):
        return Shape(pa.float64(), float)
    return _JSON


def _fields(info: Any, inner: _Inner) -> list[tuple[str, Shape]]:
    return [(field.name, inner(field.type)) for field in info.fields]


_NESTED: list[tuple[tuple[type[Any], ...], Callable[[Any, _Inner], Shape]]] = [
    (
        (inspect.StructType, inspect.DataclassType, inspect.NamedTupleType),
        lambda info, inner: _members(_fields(info, inner), getattr),
    ),
    ((inspect.TypedDictType,), lambda info, inner: _members(_fields(info, inner), dict.get)),
    (
        (inspect.TupleType,),
        lambda info, inner: _members(
            [(f"_{number}", inner(each)) for number, each in enumerate(info.item_types, 1)], _item
        ),
    ),
    (
        (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType),
        lambda info, inner: _many(inner(info.item_type)),
    ),
    ((inspect.DictType,), lambda info, inner: _map(inner(info.key_type), inner(info.value_type))),
    (
        (inspect.UnionType,),
        lambda info, inner: _union(
            [each for each in info.types if not isinstance(each, inspect.NoneType)], inner
        ),
    ),
]


class Decoding(NamedTuple):
    """The column type and the function that decodes bytes into its values."""

    type: Any
    decode: Callable[[bytes], Any] | None


def decoding_of(
    serde: Serde[Any], topic: str, *, is_key: bool = False, type_: Any = None
) -> Decoding:
    """Return the decoding of a serde's bytes.

    If neither the serde nor `type_` gives a type, the values stay bytes.
    """
    known = next((kind for each, kind in _SERDES if each is serde), None)
    if type_ is None and known is not None:
        return Decoding(known, serde.deserializer(topic, is_key=is_key))
    if isinstance(serde, WindowedKeySerde):
        return _windowed(serde, topic, is_key=is_key)
    decode = serde.deserializer(topic, is_key=is_key)
    decoder = getattr(decode, "__self__", None)
    if type_ is None and isinstance(decoder, _DECODERS):
        type_ = decoder.type
    if type_ is None:
        return Decoding(pa.binary(), None)
    shape = shape_of(type_)
    return Decoding(shape.type, decode if shape.convert is None else _both(decode, shape))


def _both(decode: Callable[[bytes], Any], shape: Shape) -> Callable[[bytes], Any]:
    def run(data: bytes) -> Any:
        return _converted(shape, decode(data))

    return run


def _windowed(serde: Any, topic: str, *, is_key: bool) -> Decoding:
    inner = decoding_of(serde.inner, topic, is_key=is_key)
    decode, encode = (
        serde.deserializer(topic, is_key=is_key),
        serde.inner.serializer(topic, is_key=is_key),
    )

    def run(data: bytes) -> dict[str, Any]:
        found = decode(data)
        plain = encode(found.key)
        return {
            "key": plain if inner.decode is None else inner.decode(plain),
            "start": micros(found.window.start),
            "end": micros(found.window.end),
        }

    return Decoding(pa.struct([("key", inner.type), ("start", _TIME), ("end", _TIME)]), run)


def micros(time_ms: int) -> int | None:
    """Return a time for a column of timestamps; None for a time that no reader could show.

    Such times are the end of an unlimited window, and all times after the year 9999.
    """
    return None if time_ms > _LAST_MS else time_ms * 1000
