"""Convert batches of a topic or a store to Spark's record batches: select keys and decode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from ks_actors.batch.source._source_options import serde_of
from ks_actors.batch.tables import TopicColumns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa

    from ks_actors.batch._reading import LogRange
    from ks_actors.batch.source._source_options import SourceOptions
    from ks_actors.records import Batch


@final
class Records:
    """Convert batches to record batches of a schema.

    `keys` are the query's values, decoded if there is a serde.
    """

    def __init__(
        self, options: SourceOptions, schema: pa.Schema, topic: str, keys: frozenset[Any] | None
    ) -> None:
        self._options = options
        self._topic = topic
        self._keys = keys
        self._decode: Callable[[bytes], Any] | None = (
            None
            if options.key_serde is None
            else serde_of(options.key_serde).deserializer(topic, is_key=True)
        )
        value = (
            None
            if options.value_serde is None
            else serde_of(options.value_serde).deserializer(topic)
        )
        self._columns = TopicColumns(
            schema,
            self._decode,
            value,
            options.store_kind,
            advice="Give the serde and the type that it has, read it without a serde, as bytes, or "
            "leave its offset out",
        )

    def of(self, batches: Iterable[Batch], where: LogRange) -> Iterator[pa.RecordBatch]:
        """Yield the record batches of the wanted keys."""
        for batch in batches:
            wanted = batch if self._keys is None else self._wanted(batch, where)
            if len(wanted):
                yield self._columns.of(wanted, where)

    def _wanted(self, batch: Batch, where: LogRange) -> Batch:
        try:
            return batch.select([self._wants(key) for key in batch.keys])
        except Exception as error:
            raise self._columns.blamed(batch, where, error) from error

    def _wants(self, key: bytes | None) -> bool:
        if key is None or self._keys is None:
            return False
        plain = self._columns.key_of(key)
        return (plain if self._decode is None else self._decode(plain)) in self._keys

    def encoded_keys(self) -> list[bytes] | None:
        """Return the wanted keys in the store's encoding; None for all."""
        if self._keys is None or self._options.key_serde is None:
            return None if self._keys is None else sorted(self._keys)
        encode = serde_of(self._options.key_serde).serializer(self._topic, is_key=True)
        return sorted(map(encode, self._keys))
