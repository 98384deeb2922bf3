"""Segments in message formats before Kafka 0.11, on a real Kafka."""

from __future__ import annotations

import struct

import pytest
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder  # type: ignore[import-untyped]

from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.kafka.wire import _batch_reader
from ks_actors.log.kafka.wire._legacy_messages import legacy_messages
from tests.kafka.broker import Broker
from tests.kafka.helpers import connect
from tests.ks_actors.log.helpers import read_all

GZIP = 1
FORMATS = {"old-0": (0, 0), "old-1": (1, 0), "old-1-gzip": (1, GZIP)}


def segment(magic: int, codec: int) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, codec, 1 << 20)
    for index in range(3):
        builder.append(index, 1_000 + index, b"key", b"%d" % index)
    raw = bytearray(builder.build())
    if codec:
        # A broker gives a compressed set the offset of its last message.
        struct.pack_into(">q", raw, 0, 2)
    return bytes(raw)


async def test_a_broker_sends_old_segments_unchanged_and_they_are_read(fresh_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka 4 neither converts nor refuses segments in formats 0 and 1: docs/design/018-old-message-formats.md."""
    log = await connect(fresh_broker)
    await log.create_topics([NewTopic(name, 1) for name in FORMATS])
    await log.close()
    fresh_broker.stop()
    for name, (magic, codec) in FORMATS.items():
        (directory,) = (path for path in fresh_broker.directory.rglob(f"{name}-0") if path.is_dir())
        for path in directory.glob("0*"):
            path.unlink()
        (directory / f"{0:020}.log").write_bytes(segment(magic, codec))
    # Without the mark of a clean shutdown, the broker looks at all segments, and makes their indexes.
    for mark in fresh_broker.directory.rglob(".kafka_cleanshutdown"):
        mark.unlink()
    fresh_broker.start()
    sent: set[int] = set()

    def noted(stored: memoryview, limit: int) -> object:
        sent.add(stored[16])
        return legacy_messages(stored, limit)

    monkeypatch.setattr(_batch_reader, "legacy_messages", noted)
    log = await connect(fresh_broker)
    for name in FORMATS:
        assert await read_all(log, TopicPartition(name, 0)) == [(index, b"key", b"%d" % index) for index in range(3)]
    assert sent == {0, 1}
    await log.close()
