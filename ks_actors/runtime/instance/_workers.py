"""The workers of an instance: their names and their budgets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from actors import Ref
    from ks_actors.runtime.messages import WorkerMessage
    from ks_actors.runtime.processing import Worker


class WorkerMetadata(msgspec.Struct, frozen=True):
    """A snapshot of one worker: its state, task and budgets.

    `task` is None while the worker is idle. The budgets are its share of the instance's, in bytes.
    """

    name: str
    state: str
    task: str | None
    input_buffer_bytes: int
    uncommitted_bytes: int


class Workers:
    """The live workers by name, `<client id>-Worker-<n>` with the smallest free number (KIP-663).

    The budgets belong to the instance. Each worker has an equal share, which changes with the
    number of workers.
    """

    def __init__(self, client_id: str, *, input_buffer_bytes: int, uncommitted_bytes: int) -> None:
        self._client_id: str = client_id
        self._input: int = input_buffer_bytes
        self._uncommitted: int = uncommitted_bytes
        self._workers: dict[str, tuple[Ref[WorkerMessage], Worker]] = {}
        self._dying: set[str] = set()

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def refs(self) -> tuple[Ref[WorkerMessage], ...]:
        """The workers, oldest first."""
        return tuple(ref for ref, _ in self._workers.values())

    def next_name(self) -> str:
        """Return the first free name; the name of a dying worker is not free."""
        number = 1
        while (
            name := f"{self._client_id}-Worker-{number}"
        ) in self._workers or name in self._dying:
            number += 1
        return name

    def add(self, name: str, ref: Ref[WorkerMessage], worker: Worker) -> None:
        """Add a worker and recompute the shares."""
        self._workers[name] = (ref, worker)
        self._share()

    def name_of(self, ref: Ref[object]) -> str | None:
        """Return the name of a live worker, or None."""
        return next((name for name, (own, _) in self._workers.items() if own == ref), None)

    def worker(self, name: str) -> Ref[WorkerMessage]:
        """Return the live worker of this name."""
        return self._workers[name][0]

    def last(self) -> str | None:
        """Return the name of the newest worker that is not dying, or None."""
        return next(reversed(self._workers), None)

    def remove(self, name: str, *, dying: bool = False) -> None:
        """Remove a worker; its name is free at once, or after `buried` when it is `dying`."""
        del self._workers[name]
        if dying:
            self._dying.add(name)
        self._share()

    def dismiss(self) -> None:
        """Forget all workers: the app has ended."""
        self._workers.clear()
        self._dying.clear()

    def buried(self, name: str) -> None:
        """Free the name of a dead worker."""
        self._dying.discard(name)

    def metadata(self) -> tuple[WorkerMetadata, ...]:
        """Return the metadata of each live worker."""
        return tuple(
            WorkerMetadata(
                name,
                worker.life.state.name,
                None if worker.at is None else str(worker.at.id),
                worker.input_bytes,
                worker.uncommitted_bytes,
            )
            for name, (_, worker) in self._workers.items()
        )

    def _share(self) -> None:
        count = len(self._workers)
        for _, worker in self._workers.values():
            worker.input_bytes = self._input // count if self._input >= 0 else -1
            worker.uncommitted_bytes = self._uncommitted // count if self._uncommitted >= 0 else -1
