"""Changes that the kernel writes as the records of a changelog are those that would be made of columns."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ks_actors import Batch
from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.log import Outgoing, TopicPartition, WritesBytes
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.wire._batch_writer import Encoder
from ks_actors.records._encoded_batch import EncodedBatch
from ks_actors.records._lazy_batch import WORTHWHILE
from ks_actors.records._packed_batch import PackedBatch
from ks_actors.runtime.output._coalesce import merged
from ks_actors.runtime.output._pending_bytes import PendingBytes
from ks_actors.serdes import BYTES, INTEGER, LONG, STRING, Serde
from ks_actors.state.core._transactional import SLICE, Transactional
from tests.ks_actors.state.helpers import PLACES, VALUES, Task, key_value, memory_grown, put, store_of, versioned

pytestmark = pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")

MANY = WORTHWHILE + 60
UNFAITHFUL = Serde.of(lambda text: text.lower().encode(), bytes.decode)
KEYS: dict[Any, Callable[[int], Any]] = {STRING: lambda n: "kö"[: 1 + n % 2] + str(n), BYTES: lambda n: b"k%d" % n, UNFAITHFUL: lambda n: f"K{n}"}


def frozen(task: Task, token: Any, *, written: bool) -> list[Batch]:
    return [batch for _, batch in task.stores.changelog(token, batch_bytes=1 << 20 if written else 0)]


def columns(batches: list[Batch]) -> list[Any]:
    return [(list(batch.keys), list(batch.values), list(batch.timestamps), batch.headers) for batch in batches]


def rows_of(batches: Iterable[Batch]) -> list[Any]:
    return [
        row for keys, values, times, headers in columns(list(batches)) for row in zip(keys, values, times, headers or [()] * len(keys), strict=True)
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", ["key-value", "tracks", "panes"])
def test_written_bytes_equal_those_of_columns(kind: str, key: Any, value: Any, place: str, tmp_path: Path) -> None:
    """For each kind of store and its content; while the next transaction changes some of it, too."""
    random = Random(7)
    task = Task([store_of(kind, key, value)], tmp_path, place)
    for number in range(MANY):
        put(task.store, kind, KEYS[key](number), number, (VALUES[value](number), random.randrange(-5, 1 << 42)))
    for number in range(0, MANY, 5):
        task.now = number + 7
        put(task.store, kind, KEYS[key](number), number, None)
    token = task.stores.freeze()
    for number in range(0, MANY, 3):
        put(task.store, kind, KEYS[key](number), number, None if number % 4 else (VALUES[value](number + 1), 8))
    written, plain = frozen(task, token, written=True), frozen(task, token, written=False)
    assert [type(batch) for batch in written] == [EncodedBatch]
    assert columns(written) == columns(plain)
    task.stores.publish(token, {"s": MANY})
    task.close()


@pytest.mark.parametrize("kind", ["key-value", "tracks", "panes"])
@pytest.mark.parametrize("what", ["few", "another serde", "bytes that were restored", "much"])
def test_serdes_unknown_to_the_kernel_write_columns(what: str, kind: str, tmp_path: Path) -> None:
    """A small batch is written so too, to join the output of others, and a large one, to share columns with the store."""
    task = Task([store_of(kind, STRING, INTEGER if what == "another serde" else STRING if what == "much" else LONG)], tmp_path)
    count = WORTHWHILE - 1 if what == "few" else MANY
    for number in range(count):
        put(task.store, kind, f"k{number}", number, ("much" * 1_000 if what == "much" else number, number))
    if what == "bytes that were restored":
        task.commit()
        task.reopen(clean=False)
        for number in range(count):
            put(task.store, kind, f"k{number}", number, (number, number))
        task.stores.drop()
        put(task.store, kind, "k5", 5, (1, 1))
    token = task.stores.freeze()
    written = frozen(task, token, written=True)
    assert EncodedBatch not in {type(batch) for batch in written}
    assert columns(written) == columns(frozen(task, token, written=False))
    task.close()


def test_versions_are_written_by_columns(tmp_path: Path) -> None:
    """Their records have a form of their own."""
    task = Task([versioned(history_retention_ms=1 << 40)], tmp_path)
    for number in range(MANY):
        task.store.put(f"k{number}", "x", number)
    token = task.stores.freeze()
    assert isinstance(task.store, Transactional)
    written = frozen(task, token, written=True)
    assert EncodedBatch not in {type(batch) for batch in written}
    assert columns(written) == columns(frozen(task, token, written=False))
    task.close()


def written_batch(count: int) -> EncodedBatch:
    view = {f"k{number}": (number, 1_000 - number) for number in range(count)}
    found = kernel.write_changes((view, {}, {}), list(view), (0, 1, 2), 1 << 20)
    assert found is not None
    return EncodedBatch(found[0], count, *found[1:])


def test_a_written_batch_is_like_others() -> None:
    """It is written as its columns would be, whole or in parts; they are there when they are looked for."""
    batch, plain = written_batch(300), written_batch(300)
    assert (len(batch), batch.own_bytes) == (300, len(batch.write(0, 1 << 20, 0)[0]))
    for start, limit in ((0, 1 << 20), (0, 61 + batch.own_bytes), (0, 60 + batch.own_bytes), (0, 900), (7, 1 << 20), (299, 1)):
        assert written_batch(300).write(start, limit, 61) == kernel.write_records(plain.keys, plain.values, plain.timestamps, None, start, limit, 61)
    first, second = batch.write(0, 1 << 20, 61), batch.write(0, 1 << 20, 61)
    assert first[0] is not second[0]  # each is stamped for itself
    assert (batch.headers, batch.offsets, batch.slice(3, 5).keys, batch.select([1] + [0] * 299).timestamps) == (None, (), [b"k3", b"k4"], [1_000])
    assert not hasattr(batch, "others")


@pytest.mark.parametrize("count", [MANY, SLICE + MANY])
def test_the_last_slice_has_columns_when_its_last_record_is_marked(count: int, tmp_path: Path) -> None:
    """Only that one: to be marked it has to be looked at."""
    task = Task([key_value(timestamped=True)], tmp_path)
    for number in range(count):
        task.store.put(f"k{number}", (number, number))
    token = task.stores.freeze({("in", 3): 7})
    store = task.store
    marked = list(store.changelog(batch_bytes=1 << 20, marked=True))
    assert [type(batch) is EncodedBatch for batch in marked] == [True] * (count // SLICE) + [False]
    assert columns(marked) == columns(list(store.changelog()))
    task.stores.publish(token, {"s": count})
    task.close()


def test_a_written_batch_goes_to_brokers_as_others_do() -> None:
    """In as many record batches as fit, with the same bytes."""
    batch, plain = written_batch(300), written_batch(300)
    other = Batch(plain.keys, plain.values, plain.timestamps)
    for batch_bytes in (1 << 20, 900):
        encoder = Encoder(KafkaOptions(batch_bytes=batch_bytes, compression="lz4"), transactional=True)
        made = [[part.stamped(1, 2, 3) for part in encoder.encode(each, 1 << 20)] for each in (batch, other)]
        assert made[0] == made[1]
        assert encoder.too_large(batch, 70) == encoder.too_large(other, 70)


@pytest.mark.parametrize("seed", range(3))
def test_written_batches_are_put_together_with_others(seed: int) -> None:
    """In their order, as long as one record batch holds them; records with headers stay apart, the given ones as they are, and all are counted."""
    random, partition = Random(seed), TopicPartition("log", 0)
    rows = kernel.Rows(0, True, False)
    rows.add_all(["k"] * 300, list(range(300)), list(range(300)), [b"v"] * 300)
    for _ in range(30):
        made: list[Batch] = []
        for number in range(random.randrange(2, 9)):
            first = random.randrange(3)
            plain = Batch([b"k%d" % number] * (first + 1), [None, b"v", b"w"][: first + 1], [number - 5] * (first + 1))
            headed = Batch([b"h"], [b"v"], [number], [(("h", b""),)])
            large = Batch([b"l"], [b"v" * 400_000], [number])
            encoded = EncodedBatch.of(random.choice((plain, plain, large)))
            assert encoded is not None
            made.append(random.choice((plain, headed, encoded, encoded, encoded, written_batch(300), PackedBatch(rows, 0, random.choice((9, 250))))))
        before, batches = [len(each) for each in made], [Outgoing(partition, each) for each in made]
        waiting = PendingBytes()
        waiting.come(batches)
        for outgoing in batches:
            waiting.set_out(outgoing.batch)
        found = merged(batches, 1_000)
        waiting.replaced(batches, found)
        assert [len(each) for each in made] == before
        assert rows_of(each.batch for each in found) == rows_of(made)
        assert all(len(each.batch) <= 1_000 for each in found)
        pairs = pairwise(each.batch for each in found if len(each.batch) < 400)
        assert all(
            one.own_bytes + other.own_bytes > 500_000 for one, other in pairs if isinstance(one, EncodedBatch) and isinstance(other, EncodedBatch)
        )
        waiting.gone(found)
        assert waiting.bytes == 0


def test_waiting_output_is_counted_in_any_form() -> None:
    """Bytes are exact, records are taken for as large as the last ones; written or dropped output waits no more."""
    partition, rows, many = TopicPartition("log", 0), kernel.Rows(0, True, False), written_batch(300)
    rows.add_all(["k"] * 9, list(range(9)), list(range(9)), [b"v"] * 9)
    plain, written, packed = (Outgoing(partition, batch) for batch in (Batch([b"k"], [b"v" * 799], [1]), many, PackedBatch(rows, 0, 9)))
    waiting = PendingBytes()
    waiting.come([plain])
    one = waiting.bytes
    assert one == waiting.bytes_of(plain.batch) == 220
    waiting.come([plain, written, packed])
    assert waiting.bytes == 2 * one + waiting.bytes_of(written.batch)
    waiting.set_out(packed.batch)
    assert waiting.bytes == 11 * one + waiting.bytes_of(written.batch)
    waiting.gone([written, packed, plain])
    assert waiting.bytes == one
    waiting.come_again([written])
    waiting.change(-1)
    assert waiting.bytes == waiting.bytes_of(written.batch) == many.own_bytes
    waiting.clear()
    assert waiting.bytes == 0


def test_kafka_is_the_log_that_writes_bytes() -> None:
    """The embedded log takes columns."""
    kafka = KafkaLog("localhost:1", options=KafkaOptions(batch_bytes=5_000))
    assert isinstance(kafka, WritesBytes)
    assert kafka.batch_bytes == 5_000 - 61
    assert not isinstance(EmbeddedLog(), WritesBytes)


def test_to_write_changes_does_not_leak() -> None:
    """Neither memory, nor the arguments, also where an error ends it."""
    view = {f"ké{number}": (f"é{number}" * 5, 10_000 + number) for number in range(100)}
    handles = list(view)
    odd: dict[Any, Any] = {**view, "odd": None}

    def once() -> None:
        assert kernel.write_changes((view, {}, {}), handles, (0, 1, 1), 1 << 20) is not None
        assert kernel.write_changes((odd, {}, {}), [*handles, "odd"], (0, 1, 1), 1 << 20) is None
        assert kernel.write_changes((odd, {}, {"odd": 5}), [*handles, "odd"], (0, 1, 1), 1 << 20) is not None
        assert kernel.write_changes((view, {}, {}), handles, (0, 1, 1), 1_000) is None
        assert kernel.write_changes(({0: view}, {}, {}), [(key, 0) for key in handles], (2, 1, 1), 1 << 20) is not None
        with suppress(TypeError):
            kernel.write_changes((view, {}, {}), [*handles, []], (0, 1, 1), 1 << 20)

    once()
    counts = sys.getrefcount(handles[7]), sys.getrefcount(view[handles[7]][0])
    assert memory_grown(once) < 10_000
    assert (sys.getrefcount(handles[7]), sys.getrefcount(view[handles[7]][0])) == counts
