"""The formats of topics: the serdes of their keys and values, and their partitioners."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, final

from ks_actors._errors import DeserializationFailed, SerializationError, StreamsError, TopologyError
from ks_actors.dsl import default_partitioner
from ks_actors.processors.api import takes_headers
from ks_actors.records import Batch, Partitioner, TopicPartition, partition
from ks_actors.serdes import (
    HeaderSerde,
    checked_serializer,
    for_column,
    needs_to_write,
    reader,
    serde_of,
    with_default,
    wraps_key,
)
from ks_actors.task import is_internal
from ks_actors.topology import SinkNode, SourceNode, Topic, valid_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ks_actors.config import StreamsConfig
    from ks_actors.records import Headers
    from ks_actors.serdes import MutableHeaders, Serde
    from ks_actors.topology import Topology

Skip: TypeAlias = "Callable[[DeserializationFailed], None]"
"""A function that gets the error of each record that is left out."""

_KEPT: Final = 1_000
"""The number of formats that are kept for later calls."""


def serdes_in(
    topology: Topology | None, config: StreamsConfig, topic: str
) -> tuple[Serde[Any] | None, Serde[Any] | None]:
    """Return the serdes with which a topology reads or writes a topic, or the config's defaults.

    There are none for changelogs and dead letters.
    """
    keys, values = config.default_key_serde, config.default_value_serde
    for node in () if topology is None else topology.nodes.values():
        if (isinstance(node, SourceNode) and _reads(node, topic)) or (
            isinstance(node, SinkNode) and node.topic == topic
        ):
            return with_default(node.key, keys), with_default(
                node.value, keys if wraps_key(node.value) else values
            )
    if is_internal(topic, config.application_id) or (
        topic == config.errors_dead_letter_queue_topic_name
    ):
        return None, None
    return keys, values


def _reads(node: SourceNode, topic: str) -> bool:
    return topic in node.topics or (
        node.pattern is not None and node.pattern.fullmatch(topic) is not None
    )


def _partitioner_in(topology: Topology | None, topic: str) -> Callable[..., Any] | None:
    """Return the partitioner with which a topology writes a topic."""
    for node in () if topology is None else topology.nodes.values():
        if isinstance(node, SinkNode) and node.topic == topic and node.partitioner is not None:
            return node.partitioner
    return None


@final
class TopicFormat:
    """The serdes of a topic, None where unknown, and its partitioner, None for the default.

    `ready` tells whether the serdes may write; before that, their async jobs must be awaited.
    """

    __slots__ = (
        "_adds_headers",
        "_decoders",
        "_encoders",
        "_headers",
        "_partitioner",
        "_partitions_by_headers",
        "_readers",
        "name",
        "ready",
        "serdes",
    )

    def __init__(
        self,
        name: str,
        key: Serde[Any] | None,
        value: Serde[Any] | None,
        partitioner: Callable[..., Any] | None,
    ) -> None:
        self.name: str = name
        self.serdes: tuple[Serde[Any] | None, Serde[Any] | None] = (key, value)
        self.ready: bool = needs_to_write(name, key, value).touched == 0
        self._partitioner = partitioner
        self._partitions_by_headers: bool = not hasattr(partitioner, "part") and takes_headers(
            partitioner, f"topic {name}"
        )
        headed = [serde for serde in (key, value) if isinstance(serde, HeaderSerde)]
        # The headers of the record that is being encoded, if a serde takes them.
        headers: MutableHeaders = []
        self._headers: MutableHeaders | None = headers if headed else None
        self._adds_headers: bool = any(serde.adds_headers for serde in headed)
        self._encoders = tuple(
            None
            if serde is None
            else checked_serializer(serde, name, is_key=serde_is_key, null=True, headers=headers)
            for serde, serde_is_key in ((key, True), (value, False))
        )
        self._decoders = tuple(
            None if serde is None else serde.deserializer(name, is_key=serde_is_key)
            for serde, serde_is_key in ((key, True), (value, False))
        )
        # For records with headers, if a serde takes them.
        self._readers = (
            (reader(key, name, is_key=True), reader(value, name))
            if headed and key is not None and value is not None
            else None
        )

    def _unknown(self, is_value: int, example: str) -> NoReturn:
        part = "value" if is_value else "key"
        raise TopologyError(
            f"the serde of {part}s of topic {self.name} is not known: give {part}_serde={example}, "
            f"or Topic({self.name!r}, key, value) with the types or serdes of both in place of the "
            f"name, or set default_{part}_serde"
        )

    # --- write ------------------------------------------------------------------------------------

    def encode(
        self, key: Any, value: Any, headers: Headers
    ) -> tuple[bytes | None, bytes | None, Headers]:
        """Return the bytes of a key and a value, and the headers that the serdes leave.

        Raises SerializationError, and TopologyError for an unknown serde.
        """
        written = self._headers
        if written is None:
            return self._encoded(0, key), self._encoded(1, value), headers
        written[:] = headers
        return self._encoded(0, key), self._encoded(1, value), tuple(written)

    def _encoded(self, is_value: int, given: Any) -> bytes | None:
        if given is None:
            return None
        encode = self._encoders[is_value]
        if encode is None:
            self._unknown(is_value, type(given).__name__)
        try:
            encoded: bytes | None = encode(given)
        except Exception as error:
            # Do not show the object itself, which may be a secret.
            part = "value" if is_value else "key"
            raise SerializationError(
                f"a record for topic {self.name} was not sent: its {part}, of type "
                f"{type(given).__name__}, does not fit {self.serdes[is_value]!r}: {error}"
            ) from error
        return encoded

    def encode_columns(
        self, keys: list[Any], values: list[Any], headers: list[Headers]
    ) -> tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[Headers]]:
        """Return the bytes of keys and of values, and the headers. Raises as `encode` does."""
        written = self._headers
        if written is not None:
            if self._adds_headers or any(headers):
                keys_values_headers = zip(*map(self.encode, keys, values, headers), strict=True)
                encoded_keys, encoded_values, left = keys_values_headers
                return encoded_keys, encoded_values, left
            written.clear()
        return self._encoded_column(0, keys), self._encoded_column(1, values), headers

    def _encoded_column(self, is_value: int, column: list[Any]) -> list[bytes | None]:
        encode = self._encoders[is_value]
        if encode is not None:
            # The first object that fails is named below.
            with suppress(Exception):
                return for_column(encode)(column)
        return [self._encoded(is_value, each) for each in column]

    def places(
        self,
        keys: list[Any],
        values: list[Any],
        encoded_keys: Sequence[bytes | None],
        headers: Sequence[Headers],
        partitions: Partitioner,
        spread: Iterator[int],
    ) -> list[int]:
        """Return the partition of each record.

        Records without a key go to all partitions in turn. Raises StreamsError for a wrong answer
        of a user's partitioner.
        """
        size, custom = partitions.partitions, self._partitioner
        part: Callable[[bytes], bytes] | None = getattr(custom, "part", None)
        if custom is not None and part is None:
            chosen = (
                self._chosen(custom, key, value, own, size)
                for key, value, own in zip(keys, values, headers, strict=True)
            )
            return [
                number if number is not None else _default(encoded, size, spread)
                for number, encoded in zip(chosen, encoded_keys, strict=True)
            ]
        if part is not None:
            encoded_keys = [None if key is None else part(key) for key in encoded_keys]
        if None in encoded_keys:
            return [_default(key, size, spread) for key in encoded_keys]
        return partitions(encoded_keys)  # type: ignore[arg-type] # the line above

    def _chosen(
        self, custom: Callable[..., Any], key: Any, value: Any, headers: Headers, size: int
    ) -> int | None:
        where = f"the partitioner of topic {self.name}"
        try:
            if self._partitions_by_headers:
                answer = custom(self.name, key, value, headers, size)
            else:
                answer = custom(self.name, key, value, size)
        except Exception as error:
            raise StreamsError(f"{where} raised {type(error).__name__}: {error}") from error
        # A list stands for several records, or none, in a topology (KIP-837).
        chosen = tuple(answer) if isinstance(answer, Iterable) else (answer,)
        if len(chosen) != 1:
            raise StreamsError(
                f"{where} returned {answer!r}, but a record that is sent has one place: give "
                "partition="
            )
        number = chosen[0]
        if number is not None and not (isinstance(number, int) and 0 <= number < size):
            raise StreamsError(f"{where} returned {number!r}, and the topic has {size} partitions")
        return number

    # --- read -------------------------------------------------------------------------------------

    def check_readable(self) -> None:
        """Raise TopologyError unless both serdes are known."""
        for is_value, decode in enumerate(self._decoders):
            if decode is None:
                self._unknown(is_value, "bytes")

    def decode(
        self,
        batch: Batch,
        place: TopicPartition,
        skip: Callable[[DeserializationFailed], None] | None,
    ) -> tuple[Batch, list[Any], list[Any]]:
        """Return the records that can be read, with their keys and their values.

        The records have the headers that the serdes leave. Calls `skip` for each unreadable record,
        or, if `skip` is None, raises DeserializationFailed for the first.
        """
        if self._readers is not None and batch.headers is not None:
            return self._decode_each(batch, place, skip)
        decode_key, decode_value = self._decoders
        assert decode_key is not None
        assert decode_value is not None
        try:
            return (
                batch,
                for_column(decode_key)(batch.keys),
                for_column(decode_value)(batch.values),
            )
        except Exception:  # noqa: BLE001 - found out record by record
            return self._decode_each(batch, place, skip)

    def _decode_each(
        self,
        batch: Batch,
        place: TopicPartition,
        skip: Callable[[DeserializationFailed], None] | None,
    ) -> tuple[Batch, list[Any], list[Any]]:
        keys: list[Any] = []
        values: list[Any] = []
        readable: list[bool] = []
        left: list[MutableHeaders] | None = None
        if self._readers is not None and batch.headers is not None:
            left = list(map(list, batch.headers))
        own: Iterable[MutableHeaders | None] = repeat(None) if left is None else left
        for key, value, offset, headers in zip(
            batch.keys, batch.values, batch.offsets, own, strict=False
        ):
            part = 0
            try:
                decoded_key = self._decoded(0, key, headers)
                part = 1
                decoded_value = self._decoded(1, value, headers)
            except Exception as error:
                failed = DeserializationFailed(
                    f"the {'value' if part else 'key'} of a record does not fit "
                    f"{self.serdes[part]!r}: {error}",
                    topic=place.topic,
                    partition=place.partition,
                    offset=offset,
                )
                failed.__cause__ = error
                if skip is None:
                    raise failed from error
                skip(failed)
                readable.append(False)
            else:
                keys.append(decoded_key)
                values.append(decoded_value)
                readable.append(True)
        if left is not None:
            batch = Batch(
                batch.keys, batch.values, batch.timestamps, list(map(tuple, left)), batch.offsets
            )
        return batch.select(readable), keys, values

    def _decoded(self, is_value: int, data: bytes | None, headers: MutableHeaders | None) -> Any:
        if data is None:
            return None
        if headers is not None:
            assert self._readers is not None
            return self._readers[is_value](data, headers)
        decode = self._decoders[is_value]
        assert decode is not None
        return decode(data)


def _default(key: bytes | None, size: int, spread: Iterator[int]) -> int:
    return next(spread) % size if key is None else partition(key, size)


@final
class TopicFormats:
    """The formats of topics by the arguments of calls.

    Serdes are those of a Topic, else those with which the topology reads or writes the topic, else
    the config's defaults.
    """

    def __init__(self, config: StreamsConfig, topology: Topology | None) -> None:
        self._config = config
        self._topology = topology
        # Keep the objects, so that no other object gets one of the ids in these keys.
        self._known: dict[tuple[Any, ...], tuple[TopicFormat, Any]] = {}

    def of(
        self, topic: Topic[Any, Any] | str, key_serde: Any, value_serde: Any, *, of: str
    ) -> TopicFormat:
        """Return the format of a topic; `of` names the call.

        Raises TopologyError for an invalid name, and for an argument that is no serde.
        """
        by = (topic if isinstance(topic, str) else id(topic), id(key_serde), id(value_serde))
        known = self._known.get(by)
        if known is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            made = self._made(topic, key_serde, value_serde, of)
            known = self._known[by] = made, (topic, key_serde, value_serde)
        return known[0]

    def _made(self, topic: Any, key_serde: Any, value_serde: Any, of: str) -> TopicFormat:
        if not isinstance(topic, Topic | str):
            raise TopologyError(
                f"argument 'topic' of {of} is {topic!r}: give a Topic, or the name of a topic"
            )
        name = topic if isinstance(topic, str) else topic.name
        valid_topic(name, of)
        key = serde_of(key_serde, role="argument 'key_serde'", of=of)
        value = serde_of(value_serde, role="argument 'value_serde'", of=of)
        partitioner = None
        if isinstance(topic, Topic):
            key, value = topic.key if key is None else key, topic.value if value is None else value
            partitioner = topic.partitioner
        if partitioner is None:
            partitioner = _partitioner_in(self._topology, name)
        known_key, known_value = serdes_in(self._topology, self._config, name)
        keys, values = self._config.default_key_serde, self._config.default_value_serde
        if key is not None:
            known_key = with_default(key, keys)
        if value is not None:
            known_value = with_default(value, keys if wraps_key(value) else values)
        return TopicFormat(
            name, known_key, known_value, partitioner or default_partitioner(known_key)
        )
