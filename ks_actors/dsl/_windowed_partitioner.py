"""The partitioner of windowed keys: all windows of a key go to the partition of the key alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.records import partition
from ks_actors.serdes import WindowedKeySerde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes import Serde
    from ks_actors.topology import Partitioner


class WindowedKeyPartitioner:
    """Partition by the bytes of the inner key.

    A sink that has already serialized a key can hash its `part`, and need not call the partitioner.
    """

    def __init__(self, key: WindowedKeySerde[Any]) -> None:
        self._key = key
        self._window_bytes = key.window_bytes
        self._serializers: dict[str, Callable[[Any], bytes]] = {}

    def __call__(self, topic: str, key: Any, _value: Any, partitions: int, /) -> int | None:
        """Return the partition of a record."""
        if key is None:
            return None
        serialize = self._serializers.get(topic)
        if serialize is None:
            serialize = self._serializers[topic] = self._key.serializer(topic, is_key=True)
        return partition(self.part(serialize(key)), partitions)

    def part(self, key: bytes) -> bytes:
        """Return the part of a serialized key that the partition depends on."""
        return key[: -self._window_bytes]


def default_partitioner(key: Serde[Any] | None) -> Partitioner | None:
    """Return a partitioner by the inner key for a serde of windowed keys, None for other serdes.

    With None, records are partitioned by the hash of the whole key.
    """
    return WindowedKeyPartitioner(key) if isinstance(key, WindowedKeySerde) else None
