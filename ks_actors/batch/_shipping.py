"""Serialization of topologies and settings for other processes."""

from __future__ import annotations

import io
import pickle
import struct
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark import cloudpickle

from ks_actors import serdes
from ks_actors._errors import BatchError

if TYPE_CHECKING:
    from ks_actors.batch.backfill import Recipe

_CONSTANTS = {
    id(value): name for name, value in vars(serdes).items() if isinstance(value, serdes.Serde)
}
_ENCODERS = (msgspec.json.Encoder, msgspec.msgpack.Encoder)
_Base: Any = cloudpickle.Pickler  # untyped package
_DECODERS = (msgspec.json.Decoder, msgspec.msgpack.Decoder)


class _Pickler(_Base):  # type: ignore[misc]  # as it says
    """Pickler that also takes functions without an importable name, and the parts of serdes."""

    def reducer_override(self, obj: Any) -> Any:
        """Return the call that recreates `obj`."""
        if id(obj) in _CONSTANTS:
            return getattr, (serdes, _CONSTANTS[id(obj)])
        if isinstance(obj, struct.Struct):
            return struct.Struct, (obj.format,)
        if isinstance(obj, _ENCODERS):
            return _encoder, (
                type(obj),
                obj.enc_hook,
                obj.decimal_format,
                obj.uuid_format,
                obj.order,
            )
        if isinstance(obj, _DECODERS):
            # Each of the two kinds of decoders has a hook that the other kind lacks.
            hook = "float_hook" if isinstance(obj, msgspec.json.Decoder) else "ext_hook"
            options = {name: getattr(obj, name) for name in ("strict", "dec_hook", hook)}
            return _decoder, (type(obj), obj.type, options)
        reduced = super().reducer_override(obj)
        match reduced:
            # The class travels by value, because it cannot be imported: a class of __main__.
            case (_, _, (members, _), *_) if isinstance(obj, type):
                if issubclass(obj, msgspec.Struct):  # would arrive without its fields
                    raise TypeError(
                        f"{obj.__qualname__} is a msgspec Struct of {obj.__module__}, which "
                        "Spark's tasks cannot import: move it to a module, or make it a dataclass"
                    )
                members.pop("__msgspec_cache__", None)  # an object of this process
        return reduced


def _encoder(kind: Any, enc_hook: Any, decimal_format: Any, uuid_format: Any, order: Any) -> Any:
    return kind(
        enc_hook=enc_hook, decimal_format=decimal_format, uuid_format=uuid_format, order=order
    )


def _decoder(kind: Any, type_: Any, options: dict[str, Any]) -> Any:
    return kind(type_, **options)


_REMEDY = (
    "Functions must not hold objects of this process, such as connections, locks and files: open "
    "those in a processor's init"
)
_REMEDY_OF_SERVICE = (
    "Make it an object of a class that opens the resources of a process in __aenter__, not "
    "before, or backfill with engine='local'"
)


def packed_recipe(recipe: Recipe) -> bytes:
    """Pickle everything that the tasks of a backfill share. Raises BatchError.

    Services and topology are pickled together, so that a function that uses a service gets the same
    object that the other process enters.
    """
    for service in recipe.services:
        # Pickle each service alone first, so that an error names the service.
        packed(service, what=f"the service {service!r}", remedy=_REMEDY_OF_SERVICE)
    return packed(recipe)


def packed(thing: Any, *, what: str = "the topology", remedy: str = _REMEDY) -> bytes:
    """Pickle a value for another process. Raises BatchError, which names the obstacle."""
    file = io.BytesIO()
    pickler: Any = _Pickler(file)
    try:
        pickler.dump(thing)
    except Exception as error:
        raise BatchError(f"{what} cannot be sent to Spark's tasks: {error}. {remedy}") from error
    return file.getvalue()


def unpacked(data: bytes) -> Any:
    """Return the value from `packed`'s bytes."""
    return pickle.loads(data)  # noqa: S301 - our own
