"""Interruptions of a task between two records: its state goes to disk, or it ends and begins again from disk and changelogs."""

from __future__ import annotations

from pathlib import Path

from ks_actors.records._batch import Batch
from ks_actors.task._offset_metadata import decode_position
from ks_actors.task._task_runner import make_stores
from ks_actors.testing import TopologyTestDriver


def write_to_disk(driver: TopologyTestDriver) -> None:
    """Write all that is committed, and keep nothing of it in memory: the stores have to look it up from now on."""
    task = driver._task
    assert task is not None
    if task.stores is not None:
        for store in map(task.stores.store, task.stores.names):
            if store.engine is not None:
                store.resident_records = 0
        for _ in task.stores.flush_steps():
            pass


def restart(driver: TopologyTestDriver) -> None:
    """End the task after its last commit and start it again: stores from disk where they are there, else from their changelogs."""
    task, topics = driver._task, driver._topics
    assert task is not None
    assert driver._directory is not None
    positions = {partition: decode_position(committed) for partition, committed in task.positions().items()}
    old = task.stores
    if old is not None:
        changelogs = {name: driver._written._records.get(topics.changelog(name), ()) for name in old.logged}
        old.publish(old.freeze(), {name: len(records) for name, records in changelogs.items()})
        old.close(clean=True)
        new = make_stores(
            old.task,
            driver._parts.stores.complete(topics.topology.stores),
            directory=Path(driver._directory.name),
            shared=None,
            current=task._current,
            expired=driver._runners[-1].expired,
            topics={name: topics.changelog(name) for name in old.names},
        )
        assert new is not None
        new.open()
        driver._runners[-1].stores = new
        for name, records in changelogs.items():
            begin = new.next_offset(name) or 0
            rest = list(records)[begin:]
            batch = Batch([r[0] for r in rest], [r[1] for r in rest], [r[2] for r in rest], None, range(begin, len(records)))
            new.restore(name, batch, len(records))
        task.stores = new
    task.rewind(positions)
    for partition, position in positions.items():
        task.add(partition, Batch([], [], [], None, ()), position.offset, position.offset)
