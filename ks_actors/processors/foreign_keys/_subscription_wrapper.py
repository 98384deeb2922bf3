"""Subscriptions: messages of the left table to a row of the right table."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from ks_actors._errors import SerializationError
from ks_actors.serdes import Serde, with_default

if TYPE_CHECKING:
    from collections.abc import Callable

_VERSION: Final = 1
_WITHOUT_HASH: Final = 0x80
_VERSION_BITS: Final = 0x7F
_HEAD_BYTES: Final = 2
HASH_BYTES: Final = 16
_PARTITION: Final = struct.Struct(">i")
KEY_TOPIC: Final = "-pk"


class Instruction(IntEnum):
    """The order of a subscription to the right side of a join."""

    DELETE_KEY_NO_PROPAGATE = 0
    """Delete the subscription; send no response."""
    DELETE_KEY_AND_PROPAGATE = 1
    """Delete the subscription; respond without a row."""
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    """Keep the subscription; respond with the right row, or without a row if there is none."""
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3
    """Keep the subscription; respond if there is a right row."""


_INSTRUCTIONS: Final = {int(instruction): instruction for instruction in Instruction}


class Subscription(NamedTuple):
    """A left row's subscription to the right row with the key of the record.

    `hash` is the hash of the left value, None for a deleted row. `primary_key` is the left row's
    key and `primary_partition` its partition, or None if Kafka Streams before 3.4 wrote the
    subscription. `data` are the bytes of a subscription that was read.
    """

    hash: bytes | None
    instruction: Instruction
    primary_key: Any
    primary_partition: int | None
    data: bytes = b""

    @property
    def key_data(self) -> bytes:
        """The bytes of the primary key in `data`."""
        begin = _HEAD_BYTES if self.hash is None else _HEAD_BYTES + HASH_BYTES
        return self.data[begin : len(self.data) - _trailing(self.primary_partition)]


@final
class SubscriptionSerde(Serde[Subscription]):
    """Write a subscription as Kafka Streams 4 does (version 1).

    The first byte has the version, and its highest bit is set if there is no hash. Then come the
    instruction, the hash, the primary key by the serde of the left table's keys, and the primary
    partition (4 bytes, big-endian). Version 0 has no partition. An inner serde of None must still
    be set by `or_default`.
    """

    wraps_key: bool = True

    def __init__(self, inner: Serde[Any] | None) -> None:
        self.inner: Serde[Any] | None = inner

    def or_default(self, default: Serde[Any] | None) -> SubscriptionSerde:
        """Return this serde, or one with the app's default if the serde of keys is unknown."""
        inner = with_default(self.inner, default)
        return self if inner is self.inner else SubscriptionSerde(inner)

    def serializer(self, topic: str, *, is_key: bool = False) -> Callable[[Subscription], bytes]:  # noqa: ARG002 - a value
        """Return the function for `topic`, around the inner serde's for `<topic>-pk`."""
        write = self._required().serializer(topic + KEY_TOPIC, is_key=True)

        def serialize(subscription: Subscription) -> bytes:
            hash_, instruction, key, partition, _ = subscription
            version = 0 if partition is None else _VERSION
            return b"%c%c%b%b%b" % (
                version | _WITHOUT_HASH if hash_ is None else version,
                instruction,
                hash_ or b"",
                write(key),
                b"" if partition is None else _PARTITION.pack(partition),
            )

        return serialize

    def deserializer(self, topic: str, *, is_key: bool = False) -> Callable[[bytes], Subscription]:  # noqa: ARG002 - a value
        """Return the function for `topic`, around the inner serde's for `<topic>-pk`."""
        read = self._required().deserializer(topic + KEY_TOPIC, is_key=True)

        def deserialize(data: bytes) -> Subscription:
            hash_, begin, end, partition = parts(data)
            instruction = _INSTRUCTIONS.get(data[1])
            if instruction is None:
                raise SerializationError(
                    f"the second byte of a subscription is its instruction, 0 to 3: {data[:64]!r}"
                )
            return Subscription(hash_, instruction, read(data[begin:end]), partition, data)

        return deserialize

    def _required(self) -> Serde[Any]:
        if self.inner is None:
            raise SerializationError(
                "no serde is known for the keys of the left table of a foreign-key join: give it "
                "where the table is made, or set the app's default_key_serde"
            )
        return self.inner

    def __repr__(self) -> str:
        return f"<Serde of subscriptions of {self.inner!r}>"


def parts(data: bytes) -> tuple[bytes | None, int, int, int | None]:
    """Return the hash of a written subscription, the start and end of its key, its partition."""
    flag = data[0] if data else 0
    version = flag & _VERSION_BITS
    if version > _VERSION:
        raise SerializationError(
            f"a subscription has version {version}, and 0 and 1 can be read: a newer app writes "
            f"to this topic; upgrade this one ({data[:64]!r})"
        )
    begin = _HEAD_BYTES if flag & _WITHOUT_HASH else _HEAD_BYTES + HASH_BYTES
    end = len(data) - (_PARTITION.size if version else 0)
    if end < begin:
        raise SerializationError(f"a subscription of {len(data)} bytes is too short: {data!r}")
    return (
        None if flag & _WITHOUT_HASH else data[_HEAD_BYTES:begin],
        begin,
        end,
        _PARTITION.unpack_from(data, end)[0] if version else None,
    )


def _trailing(partition: int | None) -> int:
    return 0 if partition is None else _PARTITION.size
