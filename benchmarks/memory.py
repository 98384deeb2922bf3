"""Measure the memory of many stores: random updates over several tasks with one budget.

Each of 200 stores gets 50,000 updates of 50,000 keys by default, 10^7 in all: several times the
budget. The cycle is an app's: a slice of 5 ms for puts, then a turn for writes, and commits. With
`--counted` time advances by work done, and RocksDB's threads are awaited, so that the figures do
not depend on the machine or its load. Progress lines go to stderr; the last line of stdout is one
JSON object. Linux only.

Run: python benchmarks/memory.py --updates 10000000 --stores 200 --tasks 8 --budget 268435456
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ks_actors import TaskId, tune_gc
from ks_actors.runtime.stores._flusher import Flusher
from ks_actors.serdes import LONG, STRING
from ks_actors.state import SharedResources, TaskStores
from ks_actors.topology import StoreKind, StoreSpec

if TYPE_CHECKING:
    from collections.abc import Callable

_SLICE_S = 0.005
_COMMIT_S = 0.1
_TOLD_S = 5.0
_BURST = 100
_COUNTED_S = 0.0005  # for a burst of updates, or a step of writing
_PAGE = 4096


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--stores", type=int, default=200, help="of all tasks together (default 200)")
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--keys", type=int, default=50_000, help="of each store (default 50,000)")
    parser.add_argument("--budget", type=int, default=256 << 20, help="statestore_memory_max_bytes (default 256 MiB)")
    parser.add_argument("--counted", action="store_true", help="take 0.5 ms for each 100 updates and each step of writing")
    options = parser.parse_args()
    tune_gc()
    directory = Path(tempfile.mkdtemp(prefix="ks-bench-"))
    try:
        print(json.dumps(measure(directory, options)), flush=True)
    finally:
        shutil.rmtree(directory)


def measure(directory: Path, options: argparse.Namespace) -> dict[str, int]:
    """Update, and return the figures; sizes are above the process's initial memory."""
    baseline = _rss()
    shared = SharedResources.within(options.budget)
    run = _Run(directory, shared, options)
    opened = peak = _rss()
    began = told = time.perf_counter()
    while run.updates < options.updates:
        run.slice()
        peak = max(peak, _rss())
        if time.perf_counter() - told > _TOLD_S:
            told = time.perf_counter()
            print(f"{run.updates:,} updates, {_rss() - baseline:,} bytes, {shared.memory.used:,} in stores", file=sys.stderr, flush=True)
    seconds = time.perf_counter() - began
    stores = run.close()
    shared.close()
    return {
        "updates": run.updates,
        "stores": stores,
        "tasks": options.tasks,
        "updates_per_s": round(run.updates / seconds),
        "budget_bytes": options.budget,
        "open_bytes": opened - baseline,
        "uncommitted_bytes": run.uncommitted,
        "peak_bytes": peak - baseline,
    }


class _Run:
    """Stores of tasks, updated task by task.

    `uncommitted` is the maximum of uncommitted bytes, which have their own budget.
    """

    def __init__(self, directory: Path, shared: SharedResources, options: argparse.Namespace) -> None:
        self.updates: int = 0
        self.uncommitted: int = 0
        self._random = random.Random(7)  # noqa: S311 - no secrets here
        self._keys: int = options.keys
        self._offsets: dict[TaskId, int] = {}
        self._tasks: dict[TaskId, TaskStores] = {}
        each = max(1, options.stores // options.tasks)
        for number in range(options.tasks):
            task = TaskId(0, number)
            specs = [
                StoreSpec(name=f"store-{store}", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key=STRING, value=LONG, type="rocksdb")
                for store in range(each)
            ]
            self._tasks[task] = TaskStores(
                str(task), specs, directory=directory / str(task), shared=shared, record_time=lambda: 0, expired=lambda _: None
            )
            self._tasks[task].open()
        self._turns = list(self._tasks.values())
        self._flusher = Flusher(self._tasks)
        self._counted: bool = options.counted
        self._clock: Callable[[], float] = map(_COUNTED_S.__mul__, count()).__next__ if self._counted else time.perf_counter
        self._committed: float = self._clock()

    def slice(self) -> None:
        """Put for a worker's slice, then write for the state manager's turn; commit when due."""
        until = self._clock() + _SLICE_S
        stores = self._turns[0]
        self._turns.append(self._turns.pop(0))
        while self._clock() < until:
            store = stores.store(self._random.choice(stores.names))
            for number in self._random.choices(range(self._keys), k=_BURST):
                key = f"key-{number:07d}"
                entry = store.get_entry(key)
                store.put_entry(key, (1 if entry is None else entry[0] + 1, self.updates))
            self.updates += _BURST
        if until - self._committed > _COMMIT_S:
            self._commit()
        self._write()

    def _write(self) -> None:
        task = self._flusher.task
        self._flusher.turn(self._clock)
        if self._counted and task is not None and not self._flusher.busy:
            engine = self._tasks[task]._engine  # noqa: SLF001 - nobody else waits for it
            if engine is not None:
                engine.flush(wait=True)
        self._flusher.begin()

    def _commit(self) -> None:
        self._committed = self._clock()
        self.uncommitted = max(self.uncommitted, sum(stores.uncommitted_bytes for stores in self._tasks.values()))
        for stores in self._tasks.values():
            token = stores.freeze()
            offsets = {name: stores.next_offset(name) or 0 for name in stores.names}
            for name, batch in stores.changelog(token):
                offsets[name] += len(batch)
            stores.publish(token, offsets)

    def close(self) -> int:
        """Close, and return the number of stores."""
        for stores in self._tasks.values():
            stores.close(clean=False)
        return sum(len(stores.names) for stores in self._tasks.values())


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


if __name__ == "__main__":
    main()
