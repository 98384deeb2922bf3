"""A process that dies at any moment, and one with a full disk: in processes of their own."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest

from ks_actors.records._batch import Batch
from ks_actors.serdes import LONG, STRING
from ks_actors.state import SharedResources, TaskStores, attach
from ks_actors.topology._stores import StoreKind, StoreSpec
from tests.killed import killed
from tests.layouts import LAYOUT
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.unmeasured

SPECS = [
    StoreSpec(name="s", kind=StoreKind.TIMESTAMPED_KEY_VALUE, key=STRING, value=LONG, type="rocksdb"),
    StoreSpec(name="w", kind=StoreKind.WINDOW, key=STRING, value=LONG, type="rocksdb", retention_ms=1 << 40, window_size_ms=1),
    StoreSpec(name="u", kind=StoreKind.KEY_VALUE, key=STRING, value=LONG, type="rocksdb", logging=False),
]
COMMITS, PER_COMMIT, KEYS = 3000, 20, 500


def open_stores(directory: Path, layout: str = LAYOUT) -> TaskStores:
    shared = SharedResources(memtable_bytes=16 << 10, write_buffer_bytes=64 << 10, tail_records=100, resident_bytes=100_000)
    attach(shared, directory, SPECS, layout=layout)
    stores = TaskStores("0_0", SPECS, directory=directory / "0_0", shared=shared, record_time=lambda: 0, expired=print)
    stores.open()
    return stores


def puts(commit: int) -> Iterable[tuple[str, int]]:
    """The puts of a commit, the same in every life: a count that only grows, of random keys."""
    numbers = random.Random(commit)
    for place in range(PER_COMMIT):
        yield f"k{numbers.randrange(KEYS)}", commit * PER_COMMIT + place


def say(*words: object) -> None:
    print(*words, flush=True)  # noqa: T201 - the parent reads it


def worker(directory: Path, layout: str) -> None:
    """Put and commit without end, and say after each commit how far it has come. Its changelog is a function of the number of the commit."""
    stores = open_stores(directory, layout)
    table, windows, unlogged = stores.store("s"), stores.store("w"), stores.store("u")
    for commit in range(COMMITS):
        for key, value in puts(commit):
            table.put_entry(key, (value, value))
            windows.put_entry(key, value, (value, value))
            unlogged.put_entry(key, (value, value))
        token = stores.freeze({("in", 0): commit})
        ends = {name: (commit + 1) * PER_COMMIT for name, _ in stores.changelog(token)}
        stores.persist_unlogged(token)
        say(commit)
        stores.publish(token, ends)
        if stores.wants_flush(False):
            for _ in stores.flush_steps():
                pass


def fill(directory: Path) -> None:
    """Write until a file may grow no more."""
    import resource  # noqa: PLC0415 - not there on all platforms

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    stores = open_stores(directory)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    unlogged = stores.store("u")
    try:
        for commit in range(COMMITS):
            for number in range(100):
                unlogged.put(f"{number}-{commit * 7919 % 10007}", number)
            token = stores.freeze()
            stores.persist_unlogged(token)
            stores.publish(token, {})
    except Exception as error:  # noqa: BLE001 - the parent looks at it
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        say(type(error).__name__, error)


def calling(name: str, directory: Path, *more: str) -> str:
    return f"from pathlib import Path; from tests.ks_actors.state.disk.test_crash import {name}; {name}(Path({str(directory)!r}), *{more!r})"


@pytest.mark.parametrize("layout", ["task", "shared"])
@pytest.mark.parametrize("lines", [3, 40, 150, 400])
async def test_killed_at_any_moment(tmp_path: Path, lines: int, layout: str) -> None:
    """The disk holds at least all that its offsets say; with the changelog's tail behind them it is the committed state.

    A store without changelog has every commit that was written to it.
    """
    last = int((await killed("-c", calling("worker", tmp_path, layout), when=lines))[-1])
    stores = open_stores(tmp_path, layout)
    try:
        for name in ("s", "w"):
            offset = stores.next_offset(name) or 0
            assert offset % PER_COMMIT == 0
            done = offset // PER_COMMIT
            assert done <= last + 1
            assert stores.positions.of(name) == ({("in", 0): done - 1} if done else {})  # in one write with the offset
            expected = {key: value for commit in range(done) for key, value in puts(commit)}
            if name == "s":
                assert all((stores.store(name).get_entry(key) or (-1, 0))[0] >= value for key, value in expected.items())
            else:
                assert all(stores.store(name).get_entry(key, value) for commit in range(done) for key, value in puts(commit))
            for commit in range(done, last + 1):
                records = list(puts(commit))
                keys = [key.encode() + (value.to_bytes(8, "big") + bytes(4) if name == "w" else b"") for key, value in records]
                values = [value for _, value in records]
                stores.restore(name, Batch(keys, [value.to_bytes(8, "big") for value in values], values), (commit + 1) * PER_COMMIT)
        everything = [pair for commit in range(last + 1) for pair in puts(commit)]
        assert {key: value[0] for key, value in stores.store("s").all()} == dict(everything)
        assert [(key, value) for (key, _), value in stores.store("w").all()] == sorted(
            everything, key=lambda pair: (pair[1] // (1 << 39), pair[0], pair[1])
        )
        unlogged = dict(stores.store("u").all())
        assert unlogged in (dict(everything), dict(everything + list(puts(last + 1))))
        assert stores.positions.of("u") == {("in", 0): last + (unlogged != dict(everything))}  # in one write with the rows
    finally:
        stores.close(clean=False)


async def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """With the task, the directory and the remedy; no other error comes out."""
    said = (await killed("-c", calling("fill", tmp_path), when=1, seconds=PATIENCE_S, may_end=True))[0]
    assert said.startswith("StateFull task 0_0: the state in ")
    assert f"{tmp_path}" in said
    assert "free space" in said
