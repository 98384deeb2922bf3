"""Measure the kernel's functions on Python dicts and lists, beside equivalent Python code.

With `--apps ROUNDS`, run whole applications on the in-memory log, each in its own process: with all
of the kernel, without the part for dicts and lists, and without the kernel.
`KS_ACTORS_WITHOUT_AHEAD=1 pip install --editable .` builds one without look-ahead. The last line of
stdout is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import struct
import subprocess
import sys
import time
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rich.console import Console
from rich.table import Table

from benchmarks import _peer_apps, _runtime_cases
from benchmarks._runtime_load import IN, OUT
from ks_actors import Window, Windowed
from ks_actors.kernel._native import WITHOUT, kernel
from ks_actors.processors.aggregates import _tumbling_batches
from ks_actors.state.core import _transactional
from ks_actors.state.join_window import _segment
from ks_actors.state.join_window._segment import Segment
from ks_actors.state.key_value import _store, _table
from ks_actors.state.timed import _expiry, _timed_store
from ks_actors.state.timed._expiry import take_out
from ks_actors.state.window import _by_start

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDS, KEYS, ROUNDS, SIZE, APP_RECORDS = 1000, 100_000, 200, 10_000, 1_000_000
ENTRY = struct.Struct(">q")
SUFFIX = struct.Struct(">qi")


class Counts:
    """A table of counts, a batch of other keys each time, and the results of its changes."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self.view: dict[Any, Any] = {f"k{number:07}": (number, 5) for number in range(KEYS)}
        self._columns = [list(map(_key, source.choices(range(KEYS), k=RECORDS))) for _ in range(ROUNDS)]
        self._next = 0

    def keys(self) -> list[str]:
        """Return the keys of the next batch."""
        self._next += 1
        return self._columns[self._next % ROUNDS]

    def count(self) -> None:
        keys = self.keys()
        kernel.count_up(self.view, {}, keys, keys, [self._next] * RECORDS, 0, [], [], False)

    def count_in_python(self) -> None:
        view, dirty, changes, times = self.view, dict[Any, Any](), list[Any](), list[int]()
        for key, timestamp in zip(self.keys(), repeat(self._next), strict=False):
            entry = view[key]
            dirty.setdefault(key, entry)
            count, seen = entry
            latest = max(seen, timestamp)
            view[key] = (count + 1, latest)
            changes.append((count + 1, None))
            times.append(latest)

    def changelog(self) -> None:
        kernel.write_changes((self.view, {}, {}), self.keys(), (0, 1, 2), 1 << 20)

    def changelog_in_python(self) -> None:
        keys = self.keys()
        entries = list(map(self.view.__getitem__, keys))
        values: list[bytes | None] = list(map(ENTRY.pack, map(itemgetter(0), entries)))
        encoded: list[bytes | None] = list(map(str.encode, keys))
        kernel.write_records(encoded, values, list(map(itemgetter(1), entries)), None, 0, 1 << 20, 0)

    def columns(self) -> None:
        kernel.entry_columns(self.view, {}, self.keys())

    def columns_in_python(self) -> None:
        entries = list(map(self.view.__getitem__, self.keys()))
        _ = list(map(itemgetter(0), entries)), list(map(itemgetter(1), entries))

    def rows(self) -> None:
        kernel.engine_rows((self.view, {}, {}), self.keys(), (0, 1, 2, True, 0), b"p")

    def rows_in_python(self) -> None:
        keys, pack = self.keys(), ENTRY.pack
        rows = [(b"p" + key.encode(), pack(stamp) + pack(count)) for key, (count, stamp) in zip(keys, map(self.view.__getitem__, keys), strict=True)]
        rows.sort()


class Windows:
    """Counts in windows, each batch with other keys, and their results."""

    def __init__(self, source: random.Random) -> None:
        self._panes: dict[int, dict[Any, Any]] = {
            start * SIZE: {_key(number): (number, start * SIZE) for number in range(KEYS)} for start in range(2)
        }
        self._windows = {start: Window(start, start + SIZE) for start in self._panes}
        self._columns = [list(map(_key, source.choices(range(KEYS), k=RECORDS))) for _ in range(ROUNDS)]
        self._handles = [[(key, SIZE) for key in keys] for keys in self._columns]
        self._next = 0

    def keys(self) -> list[str]:
        self._next += 1
        return self._columns[self._next % ROUNDS]

    def count(self) -> None:
        store: Any = self._panes, {}, self._windows, None
        kernel.count_windows(store, self.keys(), [SIZE + 7] * RECORDS, 0, ([], [], [], False), (SIZE, 0, SIZE, SIZE, 1 << 40, 0))

    def count_in_python(self) -> None:
        panes, dirty, windows = self._panes, dict[Any, Any](), self._windows
        found, changes, times = list[Any](), list[Any](), list[int]()
        now, observed = SIZE, SIZE
        for key, timestamp in zip(self.keys(), repeat(SIZE + 7), strict=False):
            now = max(now, timestamp)
            start = timestamp - timestamp % SIZE
            observed = max(observed, start)
            if start + SIZE <= now or start <= observed - (1 << 40):
                continue
            pane = panes[start]
            entry = pane.get(key)
            dirty.setdefault((key, start), entry)
            count, seen = entry or (0, -1)
            latest = max(seen, timestamp)
            pane[key] = (count + 1, latest)
            changes.append((count + 1, None))
            times.append(latest)
            found.append(windows[start])

    def pairs(self) -> None:
        kernel.windowed(Windowed, self.keys(), [self._windows[SIZE]] * RECORDS)

    def pairs_in_python(self) -> None:
        _ = list(map(tuple.__new__, repeat(Windowed), zip(self.keys(), [self._windows[SIZE]] * RECORDS, strict=True)))

    def values(self) -> None:
        kernel.window_values(self._panes, {}, self._handles[self._next % ROUNDS], True)
        self._next += 1

    def values_in_python(self) -> None:
        panes, dirty = self._panes, dict[Any, Any]()
        _ = [dirty[handle] if handle in dirty else panes[handle[1]][handle[0]] for handle in self._handles[self._next % ROUNDS]]
        self._next += 1

    def names(self) -> None:
        kernel.window_keys(self.keys(), [SIZE] * RECORDS, None)

    def names_in_python(self) -> None:
        _ = [key.encode() + SUFFIX.pack(start, 0) for key, start in zip(self.keys(), [SIZE] * RECORDS, strict=True)]


class Tracks:
    """Windows by key; one in ten expires."""

    def __init__(self) -> None:
        self._keys = list(map(_key, range(RECORDS)))
        self._time = 10
        self._tracks: dict[Any, dict[int, Any]] = {key: dict.fromkeys(range(10), 1) for key in self._keys}

    def _add(self) -> None:
        for track in self._tracks.values():
            track[self._time] = 1
        self._time += 1

    def expire(self) -> None:
        kernel.expire_windows(self._tracks, self._keys, self._time - 10)
        self._add()

    def expire_in_python(self) -> None:
        take_out(self._tracks, self._keys, self._time - 10)
        self._add()


class Rows:
    """Rows of a join that are kept as objects: few rows per key."""

    def __init__(self, source: random.Random) -> None:
        self._batches = [list(map(_key, source.choices(range(KEYS), k=RECORDS))) for _ in range(50)]
        self._full, self._next = Segment(0), 0
        for keys in self._batches:
            self._full.add_all(keys, [5] * RECORDS, range(RECORDS), keys)

    def add(self) -> None:
        segment = Segment(0)
        for keys in self._batches[:10]:
            segment.add_all(keys, [5] * RECORDS, range(RECORDS), keys)

    def add_in_python(self) -> None:
        with patch.object(_segment, "HAS_KERNEL", new=False):
            self.add()

    def meet(self) -> None:
        segment, keys = self._full, self._batches[self._next % 50]
        self._next += 1
        met: list[Any] = []
        kernel.meet(segment.index, segment.starts, segment.values, keys, [6] * RECORDS, 3, 3, met)

    def meet_in_python(self) -> None:
        segment, keys, times = self._full, self._batches[self._next % 50], [6] * RECORDS
        self._next += 1
        met: list[Any] = []
        starts, values = segment.starts, segment.values
        for at, places in enumerate(map(segment.index.get, keys)):
            if places is None:
                continue
            low, high = max(0, times[at] - 3), max(0, times[at] + 3)
            if type(places) is int:
                found: Any = (places,) if low <= starts[places] <= high else ()
            else:
                found = segment.places(keys[at], low, high)
            met.extend((at, starts[place], values[place]) for place in found if values[place] is not None)


PARTS = {"all": {}, "wire and rows": {}, "none": {WITHOUT: "1"}}
APPS = ("count", "window")


def _run_app(app: str, part: str) -> None:
    """Run an application with that part of the kernel; print its CPU time per record (µs)."""
    if part == "wire and rows":
        for module in (_transactional, _expiry, _by_start, _segment, _store, _table, _timed_store, _tumbling_batches):
            vars(module)["HAS_KERNEL"] = False
    topology = _peer_apps.topology(app, [IN], OUT, _peer_apps.Tally())
    print(asyncio.run(_runtime_cases.throughput(topology, "at_least_once", APP_RECORDS, KEYS, tuned=True))["cpu_us"])


def _measure_apps(rounds: int) -> None:
    """Run each application with each part, in turn."""
    spent: dict[str, dict[str, list[float]]] = {app: {part: [] for part in PARTS} for app in APPS}
    for _ in range(rounds):
        for app in APPS:
            for part, environment in PARTS.items():
                command = [sys.executable, __file__, "--app", app, part]
                run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)  # noqa: S603 - this file
                spent[app][part].append(float(run.stdout))
    table = Table("CPU µs per record", *(f">{part}" for part in PARTS), title=f"median (least-most) of {rounds} runs, {APP_RECORDS:,} records")
    for app, parts in spent.items():
        table.add_row(app, *(f"{median(each):.2f} ({min(each):.2f}-{max(each):.2f})" for each in parts.values()))
    Console().print(table)
    print(json.dumps({app: {part: median(each) for part, each in parts.items()} for app, parts in spent.items()}))


def _key(number: int) -> str:
    return f"k{number:07}"


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--apps", type=int, metavar="ROUNDS", help="run whole applications, so often")
    parser.add_argument("--app", nargs=2, metavar=("NAME", "PART"), help="run one of them in this process")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"batches of each function (default {ROUNDS}; at least 2)")
    options = parser.parse_args()
    if options.app:
        _run_app(*options.app)
    elif options.apps:
        _measure_apps(options.apps)
    else:
        _measure_functions(options.rounds)


def _measure_functions(rounds: int) -> None:
    """Measure all functions, alternating the two ways."""
    source = random.Random(1)  # noqa: S311 - no secrets here
    counts, windows, tracks, rows = Counts(source), Windows(source), Tracks(), Rows(source)
    work: dict[str, tuple[Callable[[], object], Callable[[], object], int]] = {
        "counts of a table": (counts.count_in_python, counts.count, 1),
        "records of its changelog": (counts.changelog_in_python, counts.changelog, 1),
        "its entries as columns": (counts.columns_in_python, counts.columns, 1),
        "its rows for the engine": (counts.rows_in_python, counts.rows, 1),
        "counts in windows": (windows.count_in_python, windows.count, 1),
        "windowed keys": (windows.pairs_in_python, windows.pairs, 1),
        "values of windows": (windows.values_in_python, windows.values, 1),
        "windowed keys as bytes": (windows.names_in_python, windows.names, 1),
        "windows that expire, one of ten": (tracks.expire_in_python, tracks.expire, 1),
        "rows of objects that are added": (rows.add_in_python, rows.add, 10),
        "rows of objects that are met": (rows.meet_in_python, rows.meet, 1),
    }
    figures = {name: [_nanoseconds(each, rounds, RECORDS * times) for each in ways] for name, (*ways, times) in work.items()}
    ahead = "looks ahead" if kernel.LOOKS_AHEAD else "does not look ahead"
    table = Table(
        "ns per record", ">Python", ">kernel", title=f"median (deciles) of {rounds} batches of {RECORDS}, {KEYS:,} keys; the kernel {ahead}"
    )
    for name, ways in figures.items():
        table.add_row(name, *map(_spread, ways))
    Console().print(table)
    print(json.dumps({name: {"python_ns": round(median(one)), "kernel_ns": round(median(other))} for name, (one, other) in figures.items()}))


def _spread(spent: list[float]) -> str:
    deciles = quantiles(spent, n=10)
    return f"{median(spent):.0f} ({deciles[0]:.0f}-{deciles[-1]:.0f})"


def _nanoseconds(work: Callable[[], object], rounds: int, records: int) -> list[float]:
    """Return the nanoseconds per record of many batches."""
    spent = []
    for _ in range(rounds):
        began = time.perf_counter_ns()
        work()
        spent.append((time.perf_counter_ns() - began) / records)
    return spent


if __name__ == "__main__":
    main()
