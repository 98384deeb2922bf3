"""Compile a part of a topology into plain functions.

A node takes records one at a time, depth first, as in Kafka Streams. It takes whole batches where
the result is the same:

- downstream of a source without a path to an asynchronous node, or to a node that reads the
  record's context (a user's processor or transformer, or any node in a user's wrapper);
- through a node with a store only when no node further down uses that store, unless all of them
  just read it: a row must be read before the next record changes it;
- through a node with several children only when these never meet again: they share no node, no
  store and no output topic.

A node without a batch form takes a batch record by record.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, final

from ks_actors.lifecycle import as_exception
from ks_actors.processors.api import WrappedOperator, checked, wrapped_node
from ks_actors.processors.stateless import Batched
from ks_actors.system import Later, is_loaded
from ks_actors.task._join_pairs import find_pair
from ks_actors.task._node import NodeWork, entered, entered_batch, guarded, one_by_one
from ks_actors.task.calls import Emptied, needs_thread
from ks_actors.topology import ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from ks_actors.processors.api import Operator, Process, ProcessBatch, ProcessorWrapper
    from ks_actors.records import Batch, Headers
    from ks_actors.task._join_pairs import Pair
    from ks_actors.task._node import TaskServices
    from ks_actors.task._record_context import RecordContextHolder
    from ks_actors.task._sink import Sink
    from ks_actors.task._update_cache import UpdateCache
    from ks_actors.task.calls import Holder, InFlight
    from ks_actors.topology import Topology

    Node = SourceNode | ProcessorNode | SinkNode

if TYPE_CHECKING:
    from ks_actors.processors import foreign_keys, joins
    from ks_actors.task import turns
else:
    foreign_keys = Later("ks_actors.processors.foreign_keys")
    joins = Later("ks_actors.processors.joins")
    turns = Later("ks_actors.task.turns")

_ANY = "*"


class Entrance(NamedTuple):
    """The entry point of a source's records; if `batch` is None, records enter one at a time."""

    process: Process
    batch: ProcessBatch | None


class _Made(NamedTuple):
    """The functions of a node; `work` is that of a processor whose errors a handler decides about.

    Without a batch form, a batch is taken record by record.
    """

    process: Process
    batch: ProcessBatch | None
    work: NodeWork | None


class Plan(NamedTuple):
    """A part of a topology as functions.

    The plan has the entrances by source node, the close functions in order, and the asynchronous
    nodes. `blocking` tells whether a function blocks. `caches` are in the order in which they must
    be flushed. `pair` takes batches of both streams of a join, by its left and right source.
    `tables` are the sources of tables whose records may go ahead of a stream's.
    `holders` are the parts that hold records back, upstream first, each with the nodes that its
    records may reach.
    """

    entrances: Mapping[str, Entrance]
    closers: Mapping[str, Callable[[], None]]
    asynchronous: tuple[InFlight, ...]
    blocking: bool
    caches: tuple[UpdateCache, ...]
    pair: Pair | None
    tables: frozenset[str]
    holders: tuple[tuple[Holder, frozenset[str]], ...]

    def close(self) -> list[tuple[str, Exception]]:
        """Close all processors, even when some raise; return the errors with their nodes."""
        errors: list[tuple[str, Exception]] = []
        # Cancel calls first: they may use the processors and stores that are closed next.
        for node in self.asynchronous:
            node.cancel()
        for name, close in self.closers.items():
            try:
                close()
            except BaseException as error:  # noqa: BLE001 - a user's close; others close, too
                errors.append((name, as_exception(error)))
        return errors


class NodeFacts(NamedTuple):
    """The facts about a node and the nodes `below` it that decide how it takes records.

    `disjoint`: no node, store or topic is below two of its children. `exact`: a node below takes
    records one at a time. `joined`: one joins tables. `feeds_back`: one shares a store with this
    node that either of them changes.
    """

    below: frozenset[str]
    disjoint: bool = True
    exact: bool = False
    joined: bool = False
    feeds_back: bool = False


@final
class NodeGraph:
    """The nodes of a subtopology, with everything about them that is the same in all tasks.

    Making a task must be cheap, because an instance may begin a thousand of them at once.
    """

    def __init__(
        self, topology: Topology, names: Iterable[str], wrapper: ProcessorWrapper | None
    ) -> None:
        self.nodes: dict[str, Node] = {name: topology.nodes[name] for name in names}
        self._wrapper = wrapper
        self._reach: dict[str, frozenset[str]] = {}
        self.facts: Mapping[str, NodeFacts] = {
            name: self._facts(node) for name, node in self.nodes.items()
        }
        self.blocking: bool = any(map(needs_thread, self.nodes.values()))

    def _facts(self, node: Node) -> NodeFacts:
        if isinstance(node, SinkNode):
            return NodeFacts(frozenset())
        below = self._reached(node.name)
        return NodeFacts(
            below,
            disjoint=self._disjoint(node.children),
            exact=any(map(self._one_at_a_time, below)),
            joined=any(map(self._joins_tables, below)),
            feeds_back=isinstance(node, ProcessorNode) and self._feeds_back(node),
        )

    def _joins_tables(self, name: str) -> bool:
        node = self.nodes[name]
        return isinstance(node, ProcessorNode) and (
            (is_loaded(joins) and isinstance(node.operator, joins.TableJoinSide))
            or (
                is_loaded(foreign_keys) and isinstance(node.operator, foreign_keys.ForeignTableJoin)
            )
        )

    def _one_at_a_time(self, name: str) -> bool:
        node = self.nodes[name]
        return isinstance(node, ProcessorNode) and (
            self._wrapper is not None
            or node.operator.record_context
            or node.operator.asynchronous is not None
        )

    def _feeds_back(self, node: ProcessorNode) -> bool:
        """Return whether a node downstream uses a store of this node, and either node changes it.

        In a batch the node downstream would see the store as the last record leaves it.
        """
        own, changed = set(node.stores), set(_changed_stores(node))
        for name in self._reached(node.name):
            below = self.nodes[name]
            if isinstance(below, ProcessorNode) and not (
                changed.isdisjoint(below.stores) and own.isdisjoint(_changed_stores(below))
            ):
                return True
        return False

    def _disjoint(self, children: Iterable[str]) -> bool:
        """Return whether no node, store or topic is reachable from two of the children."""
        seen: set[Any] = set()
        topics: set[str] = set()
        for child in children:
            own: set[Any] = set()
            own_topics: set[str] = set()
            for name in self._reached(child) | {child}:
                node = self.nodes[name]
                own.add(name)
                if isinstance(node, ProcessorNode):
                    own.update(("store", store) for store in node.stores)
                elif isinstance(node, SinkNode):
                    own_topics.add(_ANY if callable(node.topic) else node.topic)
            # Also two sinks of one topic: a batch per branch would change the order of records in
            # the topic. A function may return any topic.
            if seen & own or _meet(topics, own_topics):
                return False
            seen |= own
            topics |= own_topics
        return True

    def _reached(self, name: str) -> frozenset[str]:
        found = self._reach.get(name)
        if found is None:
            node = self.nodes[name]
            children = () if isinstance(node, SinkNode) else node.children
            found = self._reach[name] = frozenset(children).union(
                *(self._reached(child) for child in children)
            )
        return found


class Compiler:
    """Compile the nodes of one task, from the sinks up, every node once.

    User processors are created, initialized and closed in the topology's order, as in Kafka
    Streams.
    """

    def __init__(
        self,
        graph: NodeGraph,
        services: TaskServices,
        *,
        sink: Callable[[SinkNode], Sink],
        make_async: Callable[[Operator, NodeWork], InFlight],
        wrapper: ProcessorWrapper | None = None,
    ) -> None:
        self._graph = graph
        self._nodes = graph.nodes
        self._services = services
        self._sink = sink
        self._make_async = make_async
        self._wrapper = wrapper
        self._made: dict[str, _Made] = {}
        self._closers: dict[str, Callable[[], None]] = {}
        self._asynchronous: list[InFlight] = []
        self._works: dict[str, NodeWork] = {}

    def compile(self) -> Plan:
        """Compile the nodes and initialize the processors."""
        graph = self._graph
        entrances: dict[str, Entrance] = {}
        for name, node in self._nodes.items():
            if isinstance(node, SourceNode):
                work = self._work(node)
                entrances[name] = Entrance(
                    work.forward, None if graph.facts[name].exact else work.forward_batch
                )
        sampled = partial(_sampled_entrance, current=self._services.current)
        self._services.taps.enter(entrances, sampled)
        works = [self._works[name] for name in self._nodes if name in self._works]
        for work in works:
            # All processors are created before any `init` is called, because an `init` may forward
            # to nodes downstream.
            for make, _ in work.beginnings:
                make()
        for work in works:
            for _, init in work.beginnings:
                init()
        # Every node is reachable from a source: the topology refuses other nodes.
        in_batches = all(entrance.batch is not None for entrance in entrances.values())
        pair = find_pair(self._nodes, self._works) if in_batches else None
        joined = in_batches and len(entrances) > 1 and is_loaded(joins)
        caches = self._services.caches
        cached = () if caches is None else caches.in_order()
        closers = {name: self._closers[name] for name in self._nodes if name in self._closers}
        return Plan(
            entrances,
            closers,
            tuple(self._asynchronous),
            graph.blocking,
            cached,
            pair,
            turns.find_tables(self._nodes, self._works) if joined else frozenset(),
            self._holders(works),
        )

    def _holders(self, works: Iterable[NodeWork]) -> tuple[tuple[Holder, frozenset[str]], ...]:
        """Return the parts that hold records back, upstream first, and their nodes downstream."""
        facts = self._graph.facts
        found: list[tuple[Holder, frozenset[str]]] = [
            (node.turnover, facts[node.node].below) for node in self._asynchronous
        ]
        found += [
            (Emptied(cache), facts[work.node].below) for work in works for cache in work.caches
        ]
        # A node leads to more nodes than any node downstream of it.
        return tuple(sorted(found, key=lambda one: -len(one[1])))

    def _lead(self, parent: str, child: str) -> tuple[Process, ProcessBatch]:
        """Return the functions that lead from a node to its child: each edge has its own.

        Samples of records exchange the functions behind them. So records cost nothing while there
        are no samples: the guard of errors is there anyway, and a batch costs one more call.
        """
        made = self._make(child)
        taps, current = self._services.taps, self._services.current
        if isinstance(self._nodes[child], SinkNode):
            # The output itself is sampled.
            return made.process, made.batch or one_by_one(made.process, current)
        process, exchange = (
            entered(made.process) if made.work is None else guarded(made.process, made.work)
        )
        taps.tap(parent, child, made.process, exchange)
        if made.batch is None:
            return process, one_by_one(process, current)
        batch, exchange_batch = entered_batch(made.batch)
        taps.tap_batch(parent, child, made.batch, exchange_batch)
        return process, batch

    def _make(self, name: str) -> _Made:
        made = self._made.get(name)
        if made is None:
            made = self._made[name] = (
                self._make_sink(name)
                if isinstance(self._nodes[name], SinkNode)
                else self._make_processor(name)
            )
        return made

    def _make_sink(self, name: str) -> _Made:
        node = self._nodes[name]
        assert isinstance(node, SinkNode)
        sink = self._sink(node)
        self._services.taps.write(name, sink.serdes)
        return _Made(*sink.bind(), None)

    def _make_processor(self, name: str) -> _Made:
        node = self._nodes[name]
        assert isinstance(node, ProcessorNode)
        work = self._work(node)
        operator = self._operator(node, work)
        if operator.asynchronous is not None:
            asynchronous = self._make_async(operator, work)
            self._asynchronous.append(asynchronous)
            self._closers[name] = asynchronous.close
            return _Made(asynchronous.process, None, None)
        bound = operator.bind(work)
        self._closers[name] = bound.close
        facts = self._graph.facts[name]
        if not facts.disjoint or facts.feeds_back:
            return _Made(bound.process, None, work)
        return _Made(bound.process, bound.batch, work)

    def _operator(self, node: ProcessorNode, work: NodeWork) -> Operator:
        """Return a node's operator, in the app's wrapper if it has one."""
        operator, wrapper = node.operator, self._wrapper
        if wrapper is None:
            return operator
        if isinstance(operator, Batched):
            call = wrapper.wrap_batch(wrapped_node(work), operator.call)
            return operator.with_call(checked(call, "wrap_batch", node.name))
        return WrappedOperator(operator, wrapper)

    def _work(self, node: SourceNode | ProcessorNode) -> NodeWork:
        stores = node.stores if isinstance(node, ProcessorNode) else ()
        work = self._works[node.name] = NodeWork(self._services, node.name, stores)
        facts = self._graph.facts[node.name]
        # Compile from the sinks up: a node's functions call the functions of its children.
        made = {child: self._lead(node.name, child) for child in node.children}
        work.lead_to(
            {child: process for child, (process, _) in made.items()},
            {child: batch for child, (_, batch) in made.items()},
            disjoint=facts.disjoint,
            exact=facts.exact,
            joined=facts.joined,
        )
        if isinstance(node, ProcessorNode):
            work.count_emissions(node.operator)
        return work


def _sampled_entrance(
    offer: Callable[[str, Any, Any, int], None], entrance: Entrance, current: RecordContextHolder
) -> Entrance:
    """Return an entrance that offers its records, with their topic, before it takes them."""

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if (place := current.metadata()) is not None:
            offer(place.topic, key, value, timestamp)
        entrance.process(key, value, timestamp, headers)

    def batch(records: Batch) -> None:
        if len(records) and (place := current.metadata()) is not None:
            offer(place.topic, records.keys[-1], records.values[-1], records.timestamps[-1])
        assert entrance.batch is not None
        entrance.batch(records)

    return Entrance(process, None if entrance.batch is None else batch)


def _changed_stores(node: ProcessorNode) -> tuple[str, ...]:
    return () if _only_reads(node.operator) else node.stores


def _only_reads(operator: Operator) -> bool:
    """Return whether an operator changes none of its stores."""
    if is_loaded(joins) and isinstance(operator, joins.StreamTableJoin | joins.TableJoinSide):
        return True
    return is_loaded(foreign_keys) and isinstance(
        operator, foreign_keys.ResponseJoin | foreign_keys.SubscriptionJoin
    )


def _meet(topics: set[str], others: set[str]) -> bool:
    """Return whether a topic may be in both collections."""
    return bool(topics and others) and (
        _ANY in topics or _ANY in others or not topics.isdisjoint(others)
    )
