"""The contract of serdes."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from ks_actors._errors import TopologyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes._as_read import AsRead

T = TypeVar("T")


class Serde(ABC, Generic[T]):
    """Base class of serdes: convert objects to bytes and back.

    `serializer` and `deserializer` are called once per topic and use: do all preparation there. The
    functions that they return are called once per key or value, never for null: None and missing
    bytes are handled outside. Any exception that these functions raise means bad data, and the
    app's exception handlers decide about it.

    `faithful` promises that decoded objects can stand for their bytes: decoding encoded bytes gives
    an equal object, objects are hashable, and two of them are equal exactly when their bytes are.
    Stores keep such keys decoded. `immutable` promises that a decoded object cannot be changed in
    place, so that it may be shared: stores keep such values decoded, and others as bytes from the
    moment of the put. Both may be left at False at the cost of some speed; a broken promise
    corrupts state.
    """

    faithful: bool = False
    immutable: bool = False

    @abstractmethod
    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[T], bytes]:
        """Return the function that encodes a key or a value of `topic`."""

    @abstractmethod
    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], T]:
        """Return the function that decodes bytes of `topic`."""

    @staticmethod
    def of(
        serialize: Callable[[T], bytes],
        deserialize: Callable[[bytes], T],
        *,
        faithful: bool = False,
        immutable: bool = False,
        name: str = "of two functions",
    ) -> Serde[T]:
        """Return a serde made of two functions, the same for all topics; `name` is for its repr."""
        given: tuple[tuple[str, Any], ...] = (
            ("serialize", serialize),
            ("deserialize", deserialize),
        )
        for role, function in given:
            if (
                not callable(function)
                or inspect.iscoroutinefunction(function)
                or inspect.isasyncgenfunction(function)
            ):
                raise TopologyError(
                    f"{role} of Serde.of is {function!r}: give a plain function of one argument"
                )
        return FunctionSerde(
            serialize,
            deserialize,
            faithful=faithful,
            immutable=immutable,
            name=name,
            given=True,
        )


@final
class FunctionSerde(Serde[T]):
    """A serde made of two functions that ignore the topic.

    `serialize_key` is the function for keys, if equal keys need special care to get equal bytes.
    `reads_back` tells that a written value may be unreadable, so stores read it at the put. `given`
    says that a user gave the functions. `form` is the format, and the type that is read.
    """

    def __init__(
        self,
        serialize: Callable[[T], bytes],
        deserialize: Callable[[bytes], T],
        *,
        serialize_key: Callable[[T], bytes] | None = None,
        faithful: bool,
        immutable: bool,
        name: str,
        as_read: AsRead | None = None,
        reads_back: bool = True,
        given: bool = False,
        form: tuple[str, Any] | None = None,
    ) -> None:
        self.faithful: bool = faithful
        self.reads_back: bool = reads_back
        self.immutable: bool = immutable
        self.as_read: AsRead | None = as_read
        self.given: bool = given
        self.form: tuple[str, Any] | None = form
        self._serialize: Callable[[T], bytes] = serialize
        self._serialize_key: Callable[[T], bytes] = serialize_key or serialize
        self._deserialize: Callable[[bytes], T] = deserialize
        self._name: str = name

    def serializer(
        self,
        topic: str,  # noqa: ARG002 - the same for all topics
        *,
        is_key: bool = False,
    ) -> Callable[[T], bytes]:
        """Return the function, the same for every topic."""
        return self._serialize_key if is_key else self._serialize

    def deserializer(
        self,
        topic: str,  # noqa: ARG002 - the same for all topics
        *,
        is_key: bool = False,  # noqa: ARG002 - keys and values alike
    ) -> Callable[[bytes], T]:
        """Return the function, the same for every topic."""
        return self._deserialize

    def alike(self, other: FunctionSerde[Any]) -> bool:
        """Return whether the functions are the same, or the names if no user gave them."""
        if self.given or other.given:
            return (self._serialize, self._deserialize) == (other._serialize, other._deserialize)
        return (self._name, self.form) == (other._name, other.form)

    def __repr__(self) -> str:
        return f"<Serde {self._name}>"


def alike_writer(serde: Serde[T], topic: str) -> Callable[[T], bytes]:
    """Return a serializer of values of `topic` that writes equal objects as equal bytes.

    Serdes of this package do so for keys. Of a user's serde, take the serializer of values.
    """
    return serde.serializer(topic, is_key=isinstance(serde, FunctionSerde))


def may_be_same(one: Serde[Any], other: Serde[Any]) -> bool:
    """Return False for serdes that are known to read and write different bytes.

    Serdes of functions are distinguished by their names, others by their classes.
    """
    if isinstance(one, FunctionSerde) and isinstance(other, FunctionSerde):
        return one is other or repr(one) == repr(other)
    return type(one) is type(other)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two serdes, or other options, are known to do the same.

    Functions must be the same object, also in a user's serde. Serdes with a method `alike` decide
    by it. Other objects of one class are the same if they are equal, or their reprs are equal, or
    all of their attributes are.
    """
    if one is other or one == other:
        return True
    if type(one) is not type(other) or inspect.isroutine(one):
        return False
    if (alike := getattr(one, "alike", None)) is not None:
        return bool(alike(other))
    if repr(one) == repr(other):
        return True
    attributes: dict[str, Any] | None = getattr(one, "__dict__", None)
    # Values without attributes, such as texts, have been compared above.
    return attributes is not None and attributes == other.__dict__
