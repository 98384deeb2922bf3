"""Responses: messages of a right row to the left rows that subscribe to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import SerializationError
from ks_actors.processors.foreign_keys._subscription_wrapper import HASH_BYTES
from ks_actors.serdes import Serde, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

_WITHOUT_HASH: Final = 0x80
_VERSION_BITS: Final = 0x7F


class SubscriptionResponse(NamedTuple):
    """The right row for the left row with the key of the record.

    `hash` is the hash in the subscription. `foreign_value` is the right row's value, None without a
    row. The response is sent to `primary_partition`, or to the default partition if that is None;
    the partition is not written.
    """

    hash: bytes | None
    foreign_value: Any
    primary_partition: int | None = None


@final
class SubscriptionResponseSerde(Serde[SubscriptionResponse]):
    """Write a response as Kafka Streams does (version 0).

    The first byte has the version, and its highest bit is set if there is no hash. Then come the
    hash and the right value by the serde of the right table's values; None adds nothing. An inner
    serde of None must still be set by `or_default`.
    """

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner: Serde[Any] | None = inner

    def or_default(self, default: Serde[Any] | None) -> SubscriptionResponseSerde:
        """Return this serde, or one with the app's default if the serde of values is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else SubscriptionResponseSerde(inner)

    def serializer(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[SubscriptionResponse], bytes]:
        """Return the function for `topic`, around the inner serde's."""
        write = self._required().serializer(topic, is_key=is_key)

        def serialize(response: SubscriptionResponse) -> bytes:
            hash_, value, _ = response
            data = b"" if value is None else write(value)
            return b"\x80" + data if hash_ is None else b"\0" + hash_ + data

        return serialize

    def deserializer(
        self, topic: str, *, is_key: bool = False
    ) -> Callable[[bytes], SubscriptionResponse]:
        """Return the function for `topic`, around the inner serde's."""
        read = self._required().deserializer(topic, is_key=is_key)

        def deserialize(data: bytes) -> SubscriptionResponse:
            flag = data[0] if data else 0
            begin = 1 if flag & _WITHOUT_HASH else 1 + HASH_BYTES
            if flag & _VERSION_BITS:
                raise SerializationError(
                    f"a response to a subscription has version {flag & _VERSION_BITS}, and only 0 "
                    "can be read: a newer app writes to this topic; upgrade this one "
                    f"({data[:64]!r})"
                )
            if len(data) < begin:
                raise SerializationError(
                    f"a response to a subscription has at least {begin} bytes: {data!r}"
                )
            return SubscriptionResponse(
                None if flag & _WITHOUT_HASH else data[1:begin],
                read(data[begin:]) if len(data) > begin else None,
            )

        return deserialize

    def _required(self) -> Serde[Any]:
        if self.inner is None:
            raise SerializationError(
                "no serde is known for the values of the right table of a foreign-key join: give "
                "it where the table is made, or set the app's default_value_serde"
            )
        return self.inner

    def __repr__(self) -> str:
        return f"<Serde of responses with {self.inner!r}>"
