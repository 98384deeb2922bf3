"""Infer serdes from the annotations of functions.

An annotation gives no serde if it cannot be evaluated at run time, for example because its type is
imported for type checkers only. Nor does a type that leaves the format open: `Any`, `object`, a
TypeVar, or a class of this package.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin

from ks_actors.processors import FixedKeyProcessor, Processor, Record
from ks_actors.serdes import InferredSerde, Serde, inferred, is_known, of_type
from ks_actors.system import Later, is_loaded

if TYPE_CHECKING:
    from ks_actors.processors import tables
else:
    tables = Later("ks_actors.processors.tables")

Pair = tuple[Serde[Any] | None, Serde[Any] | None]

_BUILTINS: Final[dict[Any, Any]] = {
    len: int,
    str.encode: bytes,
    bytes.decode: str,
    str.split: list[str],
    str.splitlines: list[str],
    **dict.fromkeys((str.casefold, str.lower, str.strip, str.title, str.upper), str),
}
_NO_ITEMS: Final = (list, dict, set, frozenset, tuple)
"""Classes that, used as functions, do not tell the types of the items in their results."""
_OURS: Final = __name__.partition(".")[0]
_PAIR: Final = 2
_NONE: Final[Pair] = (None, None)


def value_of(*functions: Callable[..., Any] | None) -> Serde[Any] | None:
    """Return the serde of the results of the first function whose result type is known."""
    found = (_serde(_result(function)) for function in functions if function is not None)
    return next((serde for serde in found if serde is not None), None)


def pair_of(function: Callable[..., Any]) -> Pair:
    """Return the serdes of the pairs that a function returns."""
    return _pair(_result(function))


def item_of(function: Callable[..., Any]) -> Serde[Any] | None:
    """Return the serde of the items of a function's results."""
    return _serde(_item(_result(function)))


def pairs_of(function: Callable[..., Any]) -> Pair:
    """Return the serdes of the pairs in a function's results."""
    return _pair(_item(_result(function)))


def records_of(function: Callable[..., Any]) -> Pair:
    """Return the serdes of the records in a function's results."""
    record = _item(_result(function))
    return _last(get_args(record), _PAIR) if get_origin(record) is Record else _NONE


def forwarded_by(processor: type[Any]) -> Pair:
    """Return the serdes of the records that a processor, or a transformer of values, forwards."""
    if arguments := _arguments(processor, Processor):
        return _last(arguments, _PAIR)
    arguments = _arguments(processor, FixedKeyProcessor)
    if not arguments and is_loaded(tables):
        arguments = _arguments(processor, tables.ValueTransformer)
    return _last(arguments, 1) if arguments else _NONE


def _last(arguments: tuple[Any, ...], count: int) -> Pair:
    key = _serde(arguments[-2]) if count == _PAIR else None
    return key, _serde(arguments[-1])


def _arguments(cls: type[Any], base: type[Any]) -> tuple[Any, ...]:
    """Return the type arguments with which a class extends a base."""
    bases = (each for owner in cls.__mro__ for each in vars(owner).get("__orig_bases__", ()))
    return next((get_args(each) for each in bases if get_origin(each) is base), ())


def _result(function: Callable[..., Any]) -> Any:
    """Return the type of a function's results without None, Any if it is unknown."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type | types.GenericAlias) or get_origin(function) is not None:
        return Any if function in _NO_ITEMS else function
    if isinstance(function, types.BuiltinFunctionType | types.MethodDescriptorType):
        return _BUILTINS.get(function, Any)
    plain = isinstance(function, types.FunctionType | types.MethodType)
    if not plain and not hasattr(function, "__wrapped__"):
        function = type(function).__call__
    found = _without_none(_annotation(function))
    origin = get_origin(found)
    if isinstance(origin, type) and issubclass(origin, Awaitable):
        found = _without_none(get_args(found)[-1])
    return found


def _annotation(function: Any) -> Any:
    """Evaluate only the annotation of a function's results: others may be for checkers only."""

    def stub() -> None: ...

    try:
        stub.__annotations__ = {"return": function.__annotations__.get("return", Any)}
        namespace = getattr(_unwrapped(function), "__globals__", {})
        return typing.get_type_hints(stub, namespace, include_extras=True)["return"]
    except Exception:  # noqa: BLE001 - an annotation may be any code
        return Any


def _unwrapped(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _without_none(type_: Any) -> Any:
    if get_origin(type_) in (Union, types.UnionType) and types.NoneType in get_args(type_):
        kinds = tuple(kind for kind in get_args(type_) if kind is not types.NoneType)
        return Union[kinds] if kinds else Any
    return Any if type_ is types.NoneType else type_


def _item(type_: Any) -> Any:
    origin, arguments = get_origin(type_), get_args(type_)
    if not isinstance(origin, type) or not issubclass(origin, Iterable):
        return Any
    if issubclass(origin, Mapping) or (issubclass(origin, tuple) and arguments[1:] != (...,)):
        return Any
    return _without_none(arguments[0])


def _pair(type_: Any) -> Pair:
    arguments = get_args(type_)
    if get_origin(type_) is not tuple or len(arguments) != _PAIR or ... in arguments:
        return _NONE
    return _last(arguments, _PAIR)


def _serde(type_: Any) -> Serde[Any] | None:
    found = _without_none(type_)
    module = getattr(get_origin(found) or found, "__module__", "")
    if found in (Any, object) or bool(getattr(found, "__parameters__", None)):
        return None
    if isinstance(found, typing.TypeVar) or module.partition(".")[0] == _OURS:
        return None
    try:
        return InferredSerde(of_type(found))
    except (TypeError, NameError):
        return None  # no error: perhaps the type is never written to a topic


def like(key: Serde[Any] | None, other: Serde[Any] | None) -> Serde[Any] | None:
    """Return the serde of a stream's keys, or that of the keys with which it is joined.

    Equal keys have to be in the same partitions, so a known serde of the other side is preferred
    to an inferred serde of this side.
    """
    return key if is_known(key) else inferred(other) or key
