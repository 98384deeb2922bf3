"""The input of a task: deserialize records and extract their timestamps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import StreamsError, TimestampInvalid
from ks_actors.lifecycle import component_log
from ks_actors.serdes import HeaderSerde, reader
from ks_actors.topology import RecordTimestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.serdes import Serde
    from ks_actors.task._error_handling import ExceptionHandlers
    from ks_actors.task._record_queue import Decoders
    from ks_actors.task.origins import RawRecord
    from ks_actors.topology import SourceNode, TimestampExtractor

_log = component_log(__name__)


class TopicSource:
    """One topic of a source node, in one task.

    It has the serdes bound to the topic, the timestamp extractor, and the handling of records for
    which a serde or the extractor fails.
    """

    def __init__(
        self,
        node: SourceNode,
        topic: str,
        serdes: tuple[Serde[Any], Serde[Any]],
        extract: TimestampExtractor,
        handlers: ExceptionHandlers,
    ) -> None:
        key, value = serdes
        self.name: str = node.name
        self.decode_key: Callable[[bytes], Any] = key.deserializer(topic, is_key=True)
        self.decode_value: Callable[[bytes], Any] = value.deserializer(topic)
        self.with_headers: Decoders | None = (
            (reader(key, topic, is_key=True), reader(value, topic))
            if isinstance(key, HeaderSerde) or isinstance(value, HeaderSerde)
            else None
        )
        self.extract: TimestampExtractor = extract
        self.keeps_valid: bool = isinstance(extract, RecordTimestamp)
        self._handlers = handlers

    def undecodable(self, raw: RawRecord, error: Exception) -> None:
        """Ask the deserialization handler."""
        self._handlers.deserialization(self.name, raw, error)

    def unstampable(self, raw: RawRecord, error: Exception) -> Exception:
        """Return the extractor's error with the record's position."""
        if isinstance(error, TimestampInvalid) and error.topic is not None:
            return error
        kind = TimestampInvalid if isinstance(error, TimestampInvalid) else StreamsError
        failure = kind(
            f"the timestamp extractor of source {self.name} failed: {error}",
            task=self._handlers.task_id,
            node=self.name,
            topic=raw.partition.topic,
            partition=raw.partition.partition,
            offset=raw.offset if raw.offset >= 0 else None,
        )
        failure.__cause__ = error
        return failure

    def untimely(self, raw: RawRecord, timestamp: int) -> None:
        """Leave out a record that has a negative timestamp."""
        _log.warning(
            "%s offset %d is skipped: its timestamp is %d",
            raw.partition,
            raw.offset,
            timestamp,
            extra={"offset": raw.offset, "task": str(self._handlers.task_id)},
        )
        self._handlers.dropped(1)
