"""Parents and children. The tree of actors is data; their tasks all live in one flat group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from actors._checks import valid_name
from actors._errors import NameTaken, StartFailed
from actors.events import Failed
from actors.loop import Cancellations

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.actor import Cell, Spec
    from actors.messages import Ref
    from actors.system import SystemCore

M = TypeVar("M")


class Parent(Protocol):
    """An actor or the system, seen by a child."""

    @property
    def path(self) -> str:
        """The parent's path."""
        ...

    def child_ended(self, child: Cell, cause: Exception | None, /) -> None:
        """Handle the end of a child, normal or by failure."""
        ...


class Family:
    """The living children of one parent, in start order."""

    __slots__ = ("_cell", "_members", "_parent")

    def __init__(self, parent: Parent, cell: type[Cell]) -> None:
        self._parent = parent
        # Passed in, as Cell imports this module.
        self._cell = cell
        self._members: dict[str, Cell] = {}

    def __iter__(self) -> Iterator[Cell]:
        return iter(tuple(self._members.values()))

    async def spawn(self, core: SystemCore, spec: Spec[M], name: str) -> Ref[M]:
        """Start a child, and wait until it has handled Started; a failed start leaves nothing."""
        cell = self.begin(core, spec, name)
        await cell.started()
        return cell.ref

    def begin(self, core: SystemCore, spec: Spec[Any], name: str) -> Cell:
        """Create a child and its task.

        Raise StartFailed when the factory raised, NameTaken, or ValueError for an invalid name.
        """
        if not valid_name(name):
            raise ValueError(f"an actor's name must be a non-empty string without '/', is {name!r}")
        if name in self._members:
            raise NameTaken(f"{self._parent.path}/{name}")
        cell = self._cell(core, spec, self._parent, name)
        try:
            life = cell.create(0)
        except Exception as error:
            core.publish(Failed(cell.path, error, 0, None, "start"))
            raise StartFailed(cell.path) from error
        self._members[name] = cell
        cell.launch(life)
        return cell

    def remove(self, child: Cell) -> None:
        """Remove a child."""
        del self._members[child.name]

    async def stop_all(self, cancellations: Cancellations | None = None) -> None:
        """Stop the children one by one, the youngest first; each has its own deadline.

        If this is cancelled, all children are killed at once and their end is still awaited; then
        CancelledError is raised. `cancellations` has the earlier cancellations: repetitions of
        those by a cancel scope do not count.
        """
        cancellations = Cancellations() if cancellations is None else cancellations
        interrupted = False
        while self._members:
            youngest = next(reversed(self._members.values()))
            youngest.request_stop("shutdown")
            try:
                await youngest.ended()
            except asyncio.CancelledError as error:
                interrupted = True
                if cancellations.is_new(error):
                    for child in self:
                        child.kill("shutdown")
        if interrupted:
            raise asyncio.CancelledError
