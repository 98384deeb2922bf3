"""Measure the kernel's work per record beside equivalent Python code.

The last line of stdout is one JSON object.

    python benchmarks/kernel.py [--rounds 300]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from ks_actors import Batch
from ks_actors.kernel import _native as native
from ks_actors.log import TopicPartition
from ks_actors.log.kafka.client._options import KafkaOptions
from ks_actors.log.kafka.wire import _batch_header, _batch_writer, _record_reader
from ks_actors.log.kafka.wire._batch_reader import Chunk, Columns
from ks_actors.log.kafka.wire._batch_writer import Encoder
from ks_actors.records import _partitioner
from ks_actors.serdes import LONG, STRING, _columns
from ks_actors.state import TaskStores
from ks_actors.state.key_value import _restored_rows, _table
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS, KEYS, ROUNDS, PARTITIONS = 1000, 100_000, 300, 4
WHERE = TopicPartition("topic", 0)


def main() -> None:
    """Measure all cases, alternating the two ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"batches of each (default {ROUNDS}; at least 2)")
    rounds = parser.parse_args().rounds
    source = random.Random(1)  # noqa: S311 - no secrets here
    keys: list[Any] = [b"k%07d" % source.randrange(KEYS) for _ in range(RECORDS)]
    values: list[Any] = [source.randbytes(100) for _ in keys]
    batch = Batch(keys, values, list(range(RECORDS)))
    encoder = Encoder(KafkaOptions(batch_bytes=1 << 20), transactional=False)
    (stored,) = encoder.encode(batch, 1 << 20)
    raw = bytes(stored.stamped(1, 0, 0))
    texts = [key.decode() for key in keys]
    partitioner = _partitioner.Partitioner(PARTITIONS)
    work: dict[str, Callable[[], object]] = {
        "a record batch to columns": lambda: _read(raw),
        "columns to a record batch": lambda: encoder.encode(batch, 1 << 20)[0].stamped(1, 0, 0),
        "partitions of keys": lambda: partitioner(keys),
        "text encoded": lambda: _columns.for_column(str.encode)(texts),
        "text decoded": lambda: _columns.for_column(bytes.decode)(keys),
        "rows restored": Restored(source).step,
        "counts in a store, committed": Counts(source).step,
    }
    figures = {name: (_without_kernel(each, rounds), _nanoseconds(each, rounds)) for name, each in work.items()}
    title = f"median (of ten batches the second fastest-the second slowest) of {rounds} batches of {RECORDS}, values of 100 bytes, {KEYS:,} keys"
    table = Table("ns per record", ">Python", ">kernel", title=title)
    for name, pair in figures.items():
        table.add_row(name, *(_spread(spent) for spent in pair))
    Console().print(table)
    print(json.dumps({name: {"python_ns": round(median(python)), "kernel_ns": round(median(kernel))} for name, (python, kernel) in figures.items()}))


class Restored:
    """Changelog rows applied over existing ones, with other keys each time."""

    def __init__(self, source: random.Random) -> None:
        self._rows: dict[bool, Any] = {True: _restored_rows.PlainRestoredRows(), False: _restored_rows.RestoredRows()}
        self._batches = [[f"k{source.randrange(KEYS):07}".encode() for _ in range(RECORDS)] for _ in range(ROUNDS)]
        self._values: list[bytes | None] = [source.randbytes(100) for _ in range(RECORDS)]
        self._next = 0

    def step(self) -> None:
        """Apply a batch."""
        keys = self._batches[self._next % ROUNDS]
        self._next += 1
        self._rows[not vars(_restored_rows)["HAS_KERNEL"]].put(keys, self._values, [self._next] * RECORDS)


class Counts:
    """Counts per key in an in-memory store that already has all keys.

    Each batch has other keys, and is a commit with its changelog.
    """

    def __init__(self, source: random.Random) -> None:
        spec = StoreSpec(name="counts", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key=STRING, value=LONG, type="in_memory")
        self._stores = TaskStores("0_0", [spec], directory=None, shared=None, record_time=int, expired=print)
        self._stores.open()
        self._store = self._stores.store("counts")
        for number in range(KEYS):
            self._store.put_entry(f"k{number:07}", (0, 0))
        self._commit()
        self._batches = [[f"k{source.randrange(KEYS):07}" for _ in range(RECORDS)] for _ in range(ROUNDS)]
        self._next = 0

    def step(self) -> None:
        """Count a batch, and commit."""
        keys = self._batches[self._next % ROUNDS]
        self._next += 1
        times = [self._next] * len(keys)
        if not vars(_table)["HAS_KERNEL"]:
            get, put, changes = self._store.get_entry, self._store.put_entry, []
            for key, timestamp in zip(keys, times, strict=True):
                before, seen = get(key)
                put(key, (before + 1, max(seen, timestamp)))
                changes.append((before + 1, None))
        else:
            self._store.count_up(keys, keys, times, 0, [], [], with_old=False)
        self._commit()

    def _commit(self) -> None:
        token = self._stores.freeze()
        for _ in self._stores.changelog(token):
            pass
        self._stores.publish(token, {})


def _read(raw: bytes) -> list[Any]:
    """Read a record batch to columns."""
    columns = Columns()
    Chunk(WHERE, raw, RECORDS, None).read(0, RECORDS, columns)
    return columns.batch().keys


def _spread(spent: list[float]) -> str:
    deciles = quantiles(spent, n=10)
    return f"{median(spent):.0f} ({deciles[0]:.0f}-{deciles[-1]:.0f})"


def _nanoseconds(work: Callable[[], object], rounds: int) -> list[float]:
    """Return the nanoseconds per record of many batches."""
    spent = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        work()
        spent.append((time.perf_counter_ns() - began) / RECORDS)
    return spent


def _without_kernel(work: Callable[[], object], rounds: int) -> list[float]:
    modules: tuple[Any, ...] = (_partitioner, _record_reader, _batch_writer, _batch_header, _columns, _restored_rows, _table)
    forms = list(_columns._FORMS)  # noqa: SLF001 - what is measured
    try:
        for module in modules:
            module.HAS_KERNEL = False
        _columns._FORMS.clear()  # noqa: SLF001 - likewise
        return _nanoseconds(work, rounds)
    finally:
        for module in modules:
            module.HAS_KERNEL = native.HAS_KERNEL
        _columns._FORMS.extend(forms)  # noqa: SLF001 - likewise


if __name__ == "__main__":
    main()
