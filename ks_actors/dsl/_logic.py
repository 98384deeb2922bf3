"""The logic of tables: decisions that stay open until the topology is built.

The decisions are whether a table is stored, and whether it sends old values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from ks_actors.dsl._materialize import history_ms
from ks_actors.processors.tables import (
    FilterView,
    JoinView,
    MapView,
    StoreView,
    TableFilter,
    TableMapValues,
    TablePassThrough,
    TableSource,
    TableTransformValues,
    TransformView,
)
from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ks_actors.dsl._table import Table
    from ks_actors.dsl.graph import GraphBuilder, GraphNode
    from ks_actors.processors.api import Operator
    from ks_actors.processors.tables import ValueTransformer, View
    from ks_actors.topology import StoreSpec, Topology


if TYPE_CHECKING:
    from ks_actors.processors import aggregates, joins
else:
    aggregates = Later("ks_actors.processors.aggregates")
    joins = Later("ks_actors.processors.joins")


class Logic(Protocol):
    """The logic of one table."""

    def operator(self) -> Operator:
        """Make the operator; called once, when all decisions are made."""
        ...

    def stores(self) -> Sequence[StoreSpec]:
        """Return the operator's own stores; called once, when all decisions are made."""
        ...

    def view(self) -> View:
        """Return the view for readers of the table. A source table is stored from this call on."""
        ...

    @property
    def history_ms(self) -> int | None:
        """How long (ms) old rows of the table can be read, None if they cannot."""
        ...

    def send_old(self, *, force: bool) -> bool:
        """Send old values from now on; return whether the table sends them.

        Unless `force` is set, do so only if no additional store is necessary.
        """
        ...


def add_logic(
    graph: GraphBuilder, name: str, logic: Logic, *parents: GraphNode, connected: Sequence[str] = ()
) -> GraphNode:
    """Add the node of a table."""

    def write(topology: Topology, above: tuple[str, ...]) -> None:
        # Not earlier: operations downstream decide about the store and about old values.
        stores = [
            msgspec.structs.replace(spec, as_written=True)
            if spec.name in graph.as_written
            else spec
            for spec in logic.stores()
        ]
        topology.add_operator(name, logic.operator(), *above, stores=stores, connected=connected)

    return graph.add_node(name, write, *parents)


class SourceLogic:
    """A topic, or a stream, as a table.

    It is stored if the user named the store or an operation needs it.
    """

    def __init__(self, spec: StoreSpec, *, stored: bool) -> None:
        self.spec: StoreSpec = spec
        self.stored: bool = stored
        self._send_old: bool = False

    def operator(self) -> Operator:
        """Make the operator."""
        return TableSource(store=self.spec.name if self.stored else None, send_old=self._send_old)

    def stores(self) -> Sequence[StoreSpec]:
        """Return the store, if the table is stored."""
        return (self.spec,) if self.stored else ()

    def view(self) -> View:
        """Store the table and return the store's view."""
        # A reader needs rows by key, and a topic has them in the order of their changes.
        self.stored = True
        return StoreView(self.spec.name)

    @property
    def history_ms(self) -> int | None:
        """The history of the store."""
        return history_ms(self.spec)

    def send_old(self, *, force: bool) -> bool:
        """Store the table, as the source of old values."""
        if not (force or self.stored):
            return False
        self.stored = self._send_old = True
        return True


class AggregateLogic:
    """An aggregation: always stored. `make` gets the flag for sending old values."""

    def __init__(self, spec: StoreSpec, make: Callable[[bool], Operator], view: View) -> None:
        self.spec: StoreSpec = spec
        self._make: Callable[[bool], Operator] = make
        self._view: View = view
        self._send_old: bool = False

    def operator(self) -> Operator:
        """Make the operator."""
        return self._make(self._send_old)

    def stores(self) -> Sequence[StoreSpec]:
        """Return the store."""
        return (self.spec,)

    def view(self) -> View:
        """Return the store's view."""
        return self._view

    @property
    def history_ms(self) -> int | None:
        """The history of the store."""
        return history_ms(self.spec)

    def send_old(self, *, force: bool) -> bool:  # noqa: ARG002 - there is a store anyway
        """Send old values."""
        self._send_old = True
        return True


def table_aggregate(
    spec: StoreSpec,
    initializer: Callable[[], Any],
    adder: Callable[[Any, Any, Any], Any],
    subtractor: Callable[[Any, Any, Any], Any],
) -> AggregateLogic:
    """Return the logic of an aggregated grouped table."""

    def make(send_old: bool) -> Operator:
        return aggregates.TableAggregate(
            store=spec.name,
            initializer=initializer,
            adder=adder,
            subtractor=subtractor,
            send_old=send_old,
        )

    return AggregateLogic(spec, make, StoreView(spec.name))


def table_reduce(
    spec: StoreSpec, adder: Callable[[Any, Any], Any], subtractor: Callable[[Any, Any], Any]
) -> AggregateLogic:
    """Return the logic of a reduced grouped table."""

    def make(send_old: bool) -> Operator:
        return aggregates.TableReduce(
            store=spec.name, adder=adder, subtractor=subtractor, send_old=send_old
        )

    return AggregateLogic(spec, make, StoreView(spec.name))


class _DerivedLogic(ABC):
    """A table computed from another table, stored if the user asks for it."""

    def __init__(self, parent: Table[Any, Any], spec: StoreSpec | None) -> None:
        self.parent: Table[Any, Any] = parent
        self.spec: StoreSpec | None = spec
        self._send_old: bool = False

    def stores(self) -> Sequence[StoreSpec]:
        """Return the store, if there is one."""
        return () if self.spec is None else (self.spec,)

    def view(self) -> View:
        """Return the store's view, or a view that computes rows from the parent's view."""
        return self._compute(self.parent.view()) if self.spec is None else StoreView(self.spec.name)

    @property
    def history_ms(self) -> int | None:
        """The history of the store, or of the parent."""
        # Without a store its rows are computed from the parent's rows, also past rows.
        return self.parent.history_ms if self.spec is None else history_ms(self.spec)

    def send_old(self, *, force: bool) -> bool:
        """Send old values, which come from the table's own store or from upstream."""
        # With a store of its own, the table knows the old value; without a store, the parent must
        # send old values.
        if self.spec is not None or self.parent.send_old(force=force):
            self._send_old = True
        return self._send_old

    @property
    def _of_versions(self) -> bool:
        """Whether changes from upstream may be out of order."""
        return self.parent.history_ms is not None

    @abstractmethod
    def _compute(self, parent: View) -> View:
        """Return the view that computes rows from the parent's view."""


class FilterLogic(_DerivedLogic):
    """A filtered table.

    It takes old values if they are available, so that it need not forward changes from no value to
    no value.
    """

    def __init__(
        self,
        parent: Table[Any, Any],
        spec: StoreSpec | None,
        predicate: Callable[[Any, Any], object],
        *,
        negated: bool,
    ) -> None:
        super().__init__(parent, spec)
        self._predicate: Callable[[Any, Any], object] = predicate
        self._negated: bool = negated
        # Without force: a filter alone is no reason to store its parent.
        self._send_old = parent.send_old(force=False)

    def operator(self) -> Operator:
        """Make the operator."""
        store = None if self.spec is None else self.spec.name
        return TableFilter(
            predicate=self._predicate,
            negated=self._negated,
            store=store,
            send_old=self._send_old,
            versioned=self._of_versions,
        )

    def _compute(self, parent: View) -> View:
        return FilterView(parent, self._predicate, self._negated)


class MapLogic(_DerivedLogic):
    """A table with mapped values."""

    def __init__(
        self,
        parent: Table[Any, Any],
        spec: StoreSpec | None,
        mapper: Callable[..., Any],
        *,
        keyed: bool,
    ) -> None:
        super().__init__(parent, spec)
        self._mapper: Callable[..., Any] = mapper
        self._keyed: bool = keyed

    def operator(self) -> Operator:
        """Make the operator."""
        store = None if self.spec is None else self.spec.name
        return TableMapValues(
            mapper=self._mapper,
            keyed=self._keyed,
            store=store,
            send_old=self._send_old,
            versioned=self._of_versions,
        )

    def _compute(self, parent: View) -> View:
        return MapView(parent, self._mapper, self._keyed)


class JoinSideLogic:
    """One side of a join of two tables; `joiner` takes this side's value first.

    It forces both tables to send old values.
    """

    def __init__(
        self,
        this: Table[Any, Any],
        other: Table[Any, Any],
        joiner: Callable[..., Any],
        *,
        this_optional: bool,
        other_optional: bool,
        keyed: bool = False,
    ) -> None:
        self.shared: bool = not this.sources.isdisjoint(other.sources)
        self._tables: tuple[Table[Any, Any], Table[Any, Any]] = (this, other)
        self._this: View = this.view()
        self._other: View = other.view()
        self._joiner: Callable[..., Any] = joiner
        self._keyed: bool = keyed
        self._this_optional: bool = this_optional
        self._other_optional: bool = other_optional
        self._send_old: bool = False

    def operator(self) -> Operator:
        """Make the operator."""
        return joins.TableJoinSide(
            other=self._other,
            joiner=self._joiner,
            this_optional=self._this_optional,
            other_optional=self._other_optional,
            send_old=self._send_old,
            versioned=self._tables[0].history_ms is not None,
            shared=self.shared,
            keyed=self._keyed,
        )

    def stores(self) -> Sequence[StoreSpec]:
        """Return no stores: the tables have their own."""
        return ()

    def view(self) -> View:
        """Return the join of both views."""
        return JoinView(
            self._this,
            self._other,
            self._joiner,
            left_optional=self._this_optional,
            right_optional=self._other_optional,
            keyed=self._keyed,
        )

    @property
    def history_ms(self) -> int | None:
        """None: a join reads both tables as they are."""
        return None

    def send_old(self, *, force: bool) -> bool:  # noqa: ARG002 - a join always forces it
        """Send old values."""
        for table in self._tables:
            table.send_old(force=True)
        self._send_old = True
        return True


class JoinLogic:
    """A join of two tables."""

    def __init__(self, this: JoinSideLogic, other: JoinSideLogic, spec: StoreSpec | None) -> None:
        self._sides: tuple[JoinSideLogic, JoinSideLogic] = (this, other)
        self.spec: StoreSpec | None = spec
        self._send_old: bool = False

    def operator(self) -> Operator:
        """Make the operator."""
        return joins.TableJoinMerge(
            store=None if self.spec is None else self.spec.name,
            send_old=self._send_old,
            shared=self._sides[0].shared,
        )

    def stores(self) -> Sequence[StoreSpec]:
        """Return the store, if there is one."""
        return () if self.spec is None else (self.spec,)

    def view(self) -> View:
        """Return the store's view, or the join of both views."""
        return self._sides[0].view() if self.spec is None else StoreView(self.spec.name)

    @property
    def history_ms(self) -> int | None:
        """The history of the store."""
        return None if self.spec is None else history_ms(self.spec)

    def send_old(self, *, force: bool) -> bool:  # noqa: ARG002 - a join always forces it
        """Send old values."""
        # Both sides: a record of either may change the joined row.
        for side in self._sides:
            side.send_old(force=True)
        self._send_old = True
        return True


class PassLogic:
    """The merge node of a cogroup's aggregations."""

    def __init__(self, parents: Sequence[Logic], view: View) -> None:
        self._parents: Sequence[Logic] = parents
        self._view: View = view

    def operator(self) -> Operator:
        """Make the operator."""
        return TablePassThrough()

    def stores(self) -> Sequence[StoreSpec]:
        """Return no stores: the aggregations have the store."""
        return ()

    def view(self) -> View:
        """Return the view of the shared store."""
        return self._view

    @property
    def history_ms(self) -> int | None:
        """The history of the shared store."""
        return self._parents[0].history_ms

    def send_old(self, *, force: bool) -> bool:
        """Send old values."""
        for parent in self._parents:
            parent.send_old(force=force)
        return True


class TransformLogic(_DerivedLogic):
    """A table with values that a user's object computes."""

    def __init__(
        self,
        parent: Table[Any, Any],
        spec: StoreSpec | None,
        supplier: Callable[[], ValueTransformer[Any, Any, Any]],
        transformer: type[ValueTransformer[Any, Any, Any]],
        connected: tuple[str, ...],
    ) -> None:
        super().__init__(parent, spec)
        self._supplier: Callable[[], ValueTransformer[Any, Any, Any]] = supplier
        self._transformer: type[ValueTransformer[Any, Any, Any]] = transformer
        self._connected: tuple[str, ...] = connected

    def operator(self) -> Operator:
        """Make the operator."""
        return TableTransformValues(
            supplier=self._supplier,
            transformer=self._transformer,
            store=None if self.spec is None else self.spec.name,
            send_old=self._send_old,
        )

    def _compute(self, parent: View) -> View:
        return TransformView(parent, self._supplier, self._connected)
