"""A stream split by predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors._errors import TopologyError
from ks_actors.dsl import _stream
from ks_actors.processors.api import check_function, check_names
from ks_actors.processors.stateless import Branch, PassThrough
from ks_actors.topology import valid_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._stream import Stream

K = TypeVar("K")
V = TypeVar("V")


class BranchedStream(Generic[K, V]):
    """The result of `Stream.split`: a record goes only to the first branch whose predicate holds.

    End it with `default_branch` or `no_default_branch`. They return the branches by name: the
    split's name and the branch's, or its number from 1 (0 is the default branch's).
    """

    def __init__(self, source: Stream[K, V], name: str | None) -> None:
        graph = source.graph
        self._source: Stream[K, V] = source
        self._name: str = graph.name_or(name, "KSTREAM-BRANCH-")
        self._operator: Branch = Branch()
        self._branches: dict[str, Stream[K, V]] = {}
        self._ended: bool = False
        self._node: Any = graph.add_processor(self._name, self._operator, source.node)

    def branch(
        self, predicate: Callable[[K, V], object], name: str | None = None
    ) -> BranchedStream[K, V]:
        """Add a branch for records for which predicate(key, value) holds and no earlier one did."""
        check_function(predicate, 2, role="predicate", of=f"split {self._name}")
        number = len(self._operator.branches) + 1
        self._operator.branches.append((predicate, self._add(number, name)))
        return self

    def default_branch(self, name: str | None = None) -> dict[str, Stream[K, V]]:
        """Send all other records to a branch of their own, and return all branches by name."""
        self._operator.default = self._add(0, name)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, Stream[K, V]]:
        """Drop all other records, and return the branches by name."""
        self._ended = True
        return self._branches

    def _add(self, number: int, name: str | None) -> str:
        if name is not None:
            check_names((name,), role="the name of a branch", of=f"split {self._name}")
        source = self._source
        graph = source.graph
        child = valid_name(f"{self._name}{number if name is None else name}")
        if self._ended:
            raise TopologyError(
                f"split {self._name} has ended, branch {child} comes too late: add it before the "
                "default branch"
            )
        if child in self._branches:
            raise TopologyError(
                f"split {self._name} already has a branch {child}: give every branch its own name"
            )
        graph.new_processor_name(child)  # Use up the number, as any other node does.
        node = graph.add_processor(child, PassThrough(), self._node)
        self._branches[child] = _stream.Stream(
            graph,
            node,
            source.sources,
            key=source.key,
            value=source.value,
            repartition_required=source.repartition_required,
        )
        return child
