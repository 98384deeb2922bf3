"""The workers of an instance: their names, their states and their budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import msgspec

from ks_actors.lifecycle import component_log
from ks_actors.runtime.shared import WORKER_TRANSITIONS, WorkerState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors import Ref
    from ks_actors.lifecycle import Cycle
    from ks_actors.runtime.messages import WorkerMessage
    from ks_actors.runtime.processing import Worker, WorkerFigures

_log = component_log(__name__)


class WorkerMetadata(msgspec.Struct, frozen=True):
    """A snapshot of one worker: its state, task and budget (as ThreadMetadata of Kafka Streams).

    `task` is None while the worker is idle. `uncommitted_bytes` is its share of
    `statestore_uncommitted_max_bytes`, -1 without a limit.
    """

    name: str
    state: WorkerState
    task: str | None
    uncommitted_bytes: int


@final
class _Entry:
    """A worker with its life."""

    def __init__(self, name: str, ref: Ref[WorkerMessage], worker: Worker) -> None:
        self.name: str = name
        self.ref: Ref[WorkerMessage] = ref
        self.worker: Worker = worker
        self.life: Cycle[WorkerState] = WORKER_TRANSITIONS.start(
            WorkerState.CREATED, name=f"worker {name}", on_change=self._tell
        )

    def _tell(self, old: WorkerState, new: WorkerState) -> None:
        _log.debug("worker %s: %s, was %s", self.name, new.name, old.name)


class Workers:
    """The workers by name, `<client id>-Worker-<n>` with the smallest free number (KIP-663).

    All living workers share the tasks of the instance, so they follow its rebalances together. A
    worker that is to end is PENDING_SHUTDOWN until its slice is over. Each worker that has not
    ended has an equal share of the budget of uncommitted bytes.
    """

    def __init__(self, client_id: str, *, uncommitted_bytes: int) -> None:
        self._client_id: str = client_id
        self._uncommitted: int = uncommitted_bytes
        self._workers: dict[str, _Entry] = {}
        self._ending: dict[str, _Entry] = {}
        # Dead workers whose replacement is not decided yet.
        self._dead: set[str] = set()
        self._stage: WorkerState = WorkerState.STARTING

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def refs(self) -> tuple[Ref[WorkerMessage], ...]:
        """The living workers, oldest first."""
        return tuple(entry.ref for entry in self._workers.values())

    def next_name(self) -> str:
        """Return the first free name; the name of a worker that is ending is not free."""
        number = 1
        while (
            name := f"{self._client_id}-Worker-{number}"
        ) in self._workers or name in self._ending.keys() | self._dead:
            number += 1
        return name

    def add(self, name: str, ref: Ref[WorkerMessage], worker: Worker) -> None:
        """Add a started worker, in the state of the others, and recompute the shares."""
        entry = self._workers[name] = _Entry(name, ref, worker)
        entry.life.to(WorkerState.STARTING)
        if self._stage is WorkerState.RUNNING:
            entry.life.to(WorkerState.PARTITIONS_ASSIGNED)
        if self._stage is not WorkerState.STARTING:
            entry.life.to(self._stage)
        self._share()

    def follow(self, stage: WorkerState) -> None:
        """Take all living workers to a state of a rebalance, or to RUNNING after the rebalance."""
        self._stage = stage
        for entry in self._workers.values():
            entry.life.to(stage)

    def name_of(self, ref: Ref[object]) -> str | None:
        """Return the name of a living worker, or None."""
        return next((name for name, entry in self._workers.items() if entry.ref == ref), None)

    def last(self) -> str | None:
        """Return the name of the newest living worker, or None."""
        return next(reversed(self._workers), None)

    def retire(self, name: str) -> Ref[WorkerMessage]:
        """Begin the end of a living worker; `ended` is its end."""
        entry = self._ending[name] = self._workers.pop(name)
        entry.life.to(WorkerState.PENDING_SHUTDOWN)
        return entry.ref

    def ended(self, name: str) -> None:
        """Note the end of a retired worker: its name is free."""
        if (entry := self._ending.pop(name, None)) is not None:
            entry.life.to(WorkerState.DEAD)
            self._share()

    def died(self, name: str) -> None:
        """Note the death of a living worker; its name is free after `forget`."""
        self.retire(name)
        self.ended(name)
        self._dead.add(name)

    def forget(self, name: str) -> None:
        """Free the name of a worker that has died."""
        self._dead.discard(name)

    def shut_down(self) -> None:
        """Begin the end of all living workers: the app ends."""
        for entry in self._workers.values():
            entry.life.to(WorkerState.PENDING_SHUTDOWN)

    def dismiss(self) -> None:
        """Forget all workers, which have ended with the app. `shut_down` comes first."""
        for entry in self._all():
            entry.life.to(WorkerState.DEAD)
        self._workers.clear()
        self._ending.clear()
        self._dead.clear()

    def metadata(self) -> tuple[WorkerMetadata, ...]:
        """Return the metadata of each worker that has not ended."""
        return tuple(
            WorkerMetadata(
                entry.name,
                entry.life.state,
                None if entry.worker.at is None else str(entry.worker.at.id),
                entry.worker.uncommitted_bytes,
            )
            for entry in self._all()
        )

    def figures(self) -> Iterator[tuple[str, WorkerState, WorkerFigures]]:
        """Iterate over the workers that have not ended, with their states and figures."""
        for entry in self._all():
            yield entry.name, entry.life.state, entry.worker.figures

    def _all(self) -> Iterator[_Entry]:
        yield from self._workers.values()
        yield from self._ending.values()

    def _share(self) -> None:
        entries = [*self._all()]
        for entry in entries:
            entry.worker.uncommitted_bytes = (
                self._uncommitted // len(entries) if self._uncommitted >= 0 else -1
            )
