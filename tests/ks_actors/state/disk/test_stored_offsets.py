"""The offsets of closed tasks, which tell the group where state is."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors.serdes import LONG
from ks_actors.state import SharedResources, offset_sum, stored_offsets
from ks_actors.state.disk import _stored_offsets
from ks_actors.testing._disk import copy_as_is
from tests.ks_actors.state.helpers import Task, key_value
from tests.layouts import OWN


@OWN
def test_no_database_is_opened_for_the_offsets_of_a_task_that_was_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checkpoint file has them; after a crash it is older than the database, which tells then."""
    shared = SharedResources()
    task = Task([key_value(value=LONG)], tmp_path / "app", shared=shared)
    assert task.directory is not None
    for number in range(3):
        task.store.put("a", number)
        task.commit()
    task.flush()
    task.end_background_work()
    task.store.put("a", 9)
    task.commit()
    copy_as_is(tmp_path / "app", tmp_path / "crashed")
    assert offset_sum(tmp_path / "crashed" / "0_3", shared) == sum(stored_offsets(tmp_path / "crashed" / "0_3", shared).values()) == 3
    task.stores.close(clean=True)
    monkeypatch.setattr(_stored_offsets, "rocksdict", None)
    assert offset_sum(task.directory, shared) == 4
    assert offset_sum(tmp_path / "none", shared) is None
    (task.directory / ".checkpoint").write_text("nonsense")
    assert offset_sum(task.directory, shared) is None
