"""Helpers of tests of standbys, and their listeners."""

from __future__ import annotations

from typing import Any

from ks_actors import TaskId
from ks_actors.log import TopicPartition
from ks_actors.runtime import RestoreListener, StandbyUpdateListener, SuspendReason
from ks_actors.runtime.stores._state_manager import StateManager
from ks_actors.state import TaskStores
from ks_actors.testing import AppHarness
from ks_actors.testing._app_kit import AppKit


class Heard(RestoreListener, StandbyUpdateListener):
    """Keep the calls to one instance's listener, in order."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.told.append(("restore", partition.partition, start))

    def on_batch_restored(self, partition: TopicPartition, store: str, end: int, count: int) -> None:
        self.told.append(("restored", partition.partition, count))

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.told.append(("running", partition.partition, total))

    def on_restore_suspended(self, partition: TopicPartition, store: str, total: int) -> None:
        self.told.append(("restore suspended", partition.partition, total))

    def on_update_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.told.append(("follow", partition.partition, start))

    def on_batch_loaded(self, partition: TopicPartition, store: str, task: TaskId, end: int, count: int, current_end: int) -> None:
        assert task.partition == partition.partition
        assert end <= current_end
        self.told.append(("loaded", partition.partition, count))

    def on_update_suspended(self, partition: TopicPartition, store: str, offset: int, current_end: int, reason: SuspendReason) -> None:
        assert offset <= current_end
        self.told.append((reason.value, partition.partition, offset))

    def take(self, what: str) -> dict[int, Any]:
        """Return the last call of that kind, by partition."""
        return {partition: value for kind, partition, value in self.told if kind == what}

    def count(self, what: str) -> int:
        """Return the sum of the calls of that kind."""
        return sum(value for kind, _, value in self.told if kind == what)


def other(harness: AppHarness, heard: Heard | None = None, **config: Any) -> AppHarness:
    """Return one more instance, not yet entered, that tells a listener of its own."""
    another = harness.another(**config)
    another._options = {**another._options, "restore_listener": heard, "standby_listener": heard}
    return another


def keeper(harness: AppHarness) -> StateManager:
    """Return the owner of the stores."""
    instance = harness.app._instance
    assert instance is not None
    found = instance._wiring._state_manager
    assert found is not None
    return found


def active(harness: AppHarness) -> set[str]:
    """Return the tasks that an instance processes."""
    return {str(task) for task in harness.app._metrics.tasks}


def standing(harness: AppHarness) -> set[str]:
    """Return the tasks that are standbys of an instance."""
    return {str(task) for task in keeper(harness).standby_stores()}


def stores_of(harness: AppHarness) -> dict[str, TaskStores]:
    """Return the open stores of an instance, by task."""
    return {str(task): stores for task, stores in keeper(harness)._stores.items()}


def engines_of(harness: AppHarness) -> dict[str, object]:
    """Return the databases of an instance, by task."""
    return {task: stores._engine for task, stores in stores_of(harness).items()}


def contents(stores: TaskStores, store: str = "counts") -> dict[Any, Any]:
    """Return all that a store shows."""
    return {key: value.value for key, value in stores.store(store).all()}


def check_places(*harnesses: AppHarness) -> None:
    """Check that each task is in one place at most: processed once, and nowhere both processed and a standby."""
    seen: set[str] = set()
    for harness in harnesses:
        if harness._app is None or harness.app._instance is None or harness.app._instance._wiring._state_manager is None:
            continue
        mine = active(harness)
        assert not mine & standing(harness)
        lent = {str(task) for task, held in keeper(harness)._entries.items() if held.lent}
        assert mine <= lent
        assert not mine & seen
        seen |= mine


async def settled(kit: AppKit) -> None:
    """Let standbys come to the ends of their changelogs."""
    await kit.clock.advance(1)


async def all_caught_up(harness: AppHarness) -> None:
    """Let tasks and standbys come to the ends of what there is."""
    await harness.caught_up()
    await settled(harness.kit)


async def restart_empty(harness: AppHarness, heard: Any) -> None:
    """Start anew without local state; the listener is told of that alone."""
    await harness.close()
    harness.wipe_state()
    heard.told.clear()
    await harness.restart()
