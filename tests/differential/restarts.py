"""What happens to a task between two records: its state goes to disk, or it ends and begins again from disk and changelogs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._batch import Batch
from ks_actors.runtime._offsets import decode_position

if TYPE_CHECKING:
    from ks_actors.testing import TopologyTestDriver


def write_to_disk(driver: TopologyTestDriver) -> None:
    """Write all that is committed, and keep nothing of it in memory: the stores have to look it up from now on."""
    task = driver._task
    assert task is not None
    if task.stores is not None:
        for name in task.stores.names:
            task.stores.store(name).resident_records = 0
        for _ in task.stores.flush_steps():
            pass


def restart(driver: TopologyTestDriver) -> None:
    """End the task after its last commit and start it again: stores from disk where they are there, else from their changelogs."""
    task, setup = driver._task, driver._setup
    assert task is not None
    positions = {partition: decode_position(committed) for partition, committed in task.positions().items()}
    stores = task.stores
    if stores is not None:
        changelogs = {name: driver._records.get(setup.changelog(name), ()) for name in stores.logged}
        stores.keep(stores.freeze(), {name: len(records) for name, records in changelogs.items()})
        stores.close(clean=True)
        stores.open()
        for name, records in changelogs.items():
            begin = stores.next_offset(name) or 0
            rest = list(records)[begin:]
            keys, values, timestamps = ([record[column] for record in rest] for column in range(3))
            stores.restore(name, Batch(keys, values, timestamps, None, range(begin, len(records))), len(records))
    task.rewind(positions)
    for partition, position in positions.items():
        task.add(partition, Batch([], [], [], None, ()), position.offset, position.offset)
