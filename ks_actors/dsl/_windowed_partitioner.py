"""Where records with windowed keys go: all windows of a key to one partition, that of the key alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._partitioner import partition
from ks_actors.serdes._windowed import _WindowedSerde

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes import Serde
    from ks_actors.topology._nodes import Partitioner

_START_BYTES = 8


def default_partitioner(key: Serde[Any] | None) -> Partitioner | None:
    """Return what partitions by the inner key if this is a serde of windowed keys, None (by the hash of the whole key) for others."""
    if not isinstance(key, _WindowedSerde):
        return None
    serializers: dict[str, Callable[[Any], bytes]] = {}

    def partition_of(topic: str, record_key: Any, _value: Any, partitions: int) -> int | None:
        if record_key is None:
            return None
        serialize = serializers.get(topic)
        if serialize is None:
            serialize = serializers[topic] = key.serializer(topic, is_key=True)
        return partition(serialize(record_key)[:-_START_BYTES], partitions)

    return partition_of
