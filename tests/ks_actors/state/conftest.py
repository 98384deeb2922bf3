"""Tasks that are closed when the test is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.ks_actors.state.helpers import PLACES, Task

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ks_actors.state import SharedResources
    from ks_actors.topology._stores import StoreSpec


class MakeTask(Protocol):
    def __call__(self, *specs: StoreSpec, shared: SharedResources | None = None) -> Task: ...


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(tmp_path: Path, place: str) -> Iterator[MakeTask]:
    """Make tasks with the given stores, wherever stores live."""
    yield from _tasks(tmp_path, place)


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[MakeTask]:
    """Make tasks with the given stores in RocksDB."""
    yield from _tasks(tmp_path, "rocksdb")


def _tasks(tmp_path: Path, place: str) -> Iterator[MakeTask]:
    tasks: list[Task] = []

    def make(*specs: StoreSpec, shared: SharedResources | None = None) -> Task:
        task = Task(specs, tmp_path / str(len(tasks)), place, shared)
        tasks.append(task)
        return task

    yield make
    for task in tasks:
        task.close()
