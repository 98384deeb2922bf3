"""The loop does not wait for RocksDB's background work."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

from ks_actors.serdes import LONG
from ks_actors.state import SharedResources
from tests.ks_actors.state.helpers import Task, key_value
from tests.layouts import OWN
from tests.waiting import PATIENCE_S


@OWN
def test_a_flush_is_put_off_while_another_one_waits(tmp_path: Path) -> None:
    """RocksDB would have the caller wait; it is made up for as soon as there is room, by the next caller that asks for work to do."""
    task = Task([key_value(value=LONG)], tmp_path, shared=SharedResources(memtable_bytes=64 << 10, write_buffer_bytes=4 << 20))
    engine: Any = task.stores._engine
    assert not task.stores.wants_flush(idle=False)
    until, written = perf_counter() + PATIENCE_S, 0
    while not engine._owed:
        engine.write([(b"\x01%09d" % number, bytes(50)) for number in range(written, written + 400)])
        written += 400
        engine.flush(wait=False)
        assert perf_counter() < until, "no flush was ever put off"
    while not task.stores.wants_flush(idle=False):
        assert perf_counter() < until, "what was put off is never to be done"
    task.flush()
    assert not engine._owed
    assert int(engine._data.property_int_value("rocksdb.num-entries-active-mem-table")) == 0
    assert not task.stores.wants_flush(idle=False)
    assert sum(1 for _ in engine.scan(b"\x01", b"\x02")) == written
    task.close()


@OWN
def test_an_urgent_flush_is_not_put_off(tmp_path: Path) -> None:
    """A flush that is waited for makes up for those that were put off."""
    task = Task([key_value(value=LONG)], tmp_path, shared=SharedResources(memtable_bytes=64 << 10, write_buffer_bytes=4 << 20))
    engine: Any = task.stores._engine
    for part in range(50):
        engine.write([(b"\x01%09d" % (400 * part + number), bytes(50)) for number in range(400)])
        engine.flush(wait=False)
    engine.flush(wait=True)
    assert not engine._owed
    assert not engine.owes
    assert int(engine._data.property_int_value("rocksdb.num-entries-active-mem-table")) == 0
    task.close()
