"""A stream split by predicates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.dsl import _stream
from ks_actors.processors.api import check_function, check_kind, check_names
from ks_actors.processors.stateless import Branch, PassThrough
from ks_actors.topology import valid_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.dsl._stream import Stream

K = TypeVar("K")
V = TypeVar("V")


class _Branches(dict[str, "Stream[K, V]"], Generic[K, V]):
    """The branches of a split by name. The error for an unknown name lists them."""

    def __init__(self, split: str) -> None:
        super().__init__()
        self._split: str = split

    def __missing__(self, name: object) -> Stream[K, V]:
        there = ", ".join(self) or "none"
        raise KeyError(
            f"split {self._split} returns no branch {name!r}: there are {there}; a name begins "
            "with the split's, and a branch with a consumer is not returned"
        )


class BranchedStream(Generic[K, V], metaclass=Hinted):
    """The result of `Stream.split`: a record goes only to the first branch whose predicate holds.

    End it with `default_branch` or `no_default_branch`, which return the branches by name: the
    split's name, then the branch's name or its number from 1 (the default branch has 0).
    """

    def __init__(self, source: Stream[K, V], name: str | None) -> None:
        graph = source.graph
        self._source: Stream[K, V] = source
        self._name: str = graph.name_or(name, "KSTREAM-BRANCH-")
        self._operator: Branch = Branch()
        self._branches: _Branches[K, V] = _Branches(self._name)
        self._names: set[str] = set()
        self._ended: bool = False
        self._node: Any = graph.add_processor(self._name, self._operator, source.node)

    def branch(
        self,
        predicate: Callable[[K, V], object],
        name: str | None = None,
        *,
        function: Callable[[Stream[K, V]], Stream[K, V] | None] | None = None,
        consumer: Callable[[Stream[K, V]], object] | None = None,
    ) -> BranchedStream[K, V]:
        """Add a branch for records that match predicate(key, value), but no earlier branch.

        A `function` is called with the branch's stream. Its result takes the stream's place among
        the returned branches; for None the branch is left out. A `consumer` is called with the
        stream, and the branch is left out.
        """
        check_function(predicate, 2, role="predicate", of=f"split {self._name}")
        number = len(self._operator.branches) + 1
        self._operator.branches.append((predicate, self._add(number, name, function, consumer)))
        return self

    def default_branch(
        self,
        name: str | None = None,
        *,
        function: Callable[[Stream[K, V]], Stream[K, V] | None] | None = None,
        consumer: Callable[[Stream[K, V]], object] | None = None,
    ) -> dict[str, Stream[K, V]]:
        """Send all other records to a branch of their own, and return all branches by name.

        `function` and `consumer` are as in `branch`.
        """
        self._operator.default = self._add(0, name, function, consumer)
        return self.no_default_branch()

    def no_default_branch(self) -> dict[str, Stream[K, V]]:
        """Drop all other records, and return the branches by name."""
        self._ended = True
        return self._branches

    def _add(
        self,
        number: int,
        name: str | None,
        function: Callable[[Stream[K, V]], Stream[K, V] | None] | None,
        consumer: Callable[[Stream[K, V]], object] | None,
    ) -> str:
        of = f"split {self._name}"
        if function is not None and consumer is not None:
            raise TopologyError(f"a branch of {of} has both a function and a consumer: give one")
        for role, given in (("function", function), ("consumer", consumer)):
            if given is not None:
                check_function(given, 1, role=role, of=of)
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
        if child in self._names:
            raise TopologyError(
                f"split {self._name} already has a branch {child}: give every branch its own name"
            )
        graph.new_processor_name(child)  # Use up the number, as any other node does.
        node = graph.add_processor(child, PassThrough(), self._node)
        self._names.add(child)
        stream = _stream.Stream[K, V](
            graph,
            node,
            source.sources,
            key=source.key,
            value=source.value,
            repartition_required=source.repartition_required,
        )
        if consumer is not None:
            consumer(stream)
            return child
        result = stream if function is None else function(stream)
        if result is not None:
            check_kind(
                result,
                _stream.Stream,
                role=f"the result of function for branch {child}",
                of=of,
                remedy="return a Stream, or None",
            )
            self._branches[child] = result
        return child
