"""Topologies built by hand: their content, and the refused ones."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ks_actors._errors import TopologyError
from ks_actors.processors import AsyncOptions, Processor, Record
from ks_actors.processors.api._adapter import ProcessorOperator
from ks_actors.processors.stateless._stateless import PassThrough
from ks_actors.serdes import LONG, STRING
from ks_actors.topology import GlobalStore, InternalTopic, ProcessorNode, SinkNode, SourceNode, StoreKind, Topology, stores

COUNTS = stores.key_value("counts", STRING, LONG)


class Nothing(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        """Do nothing."""


class Async(Processor[Any, Any, Any, Any]):
    async def process(self, record: Record[Any, Any]) -> None:
        """Do nothing, later."""


def base() -> Topology:
    topology = Topology()
    topology.add_source("in", "a", key=STRING, value=STRING)
    topology.add_operator("work", PassThrough(), "in")
    topology.add_sink("out", "b", "work")
    return topology


def test_nodes_are_in_the_order_added_and_know_each_other() -> None:
    """Children are in the order in which they were added: that of forwarding."""
    topology = base()
    topology.add_processor("late", Nothing, "in", "work")
    assert list(topology.nodes) == ["in", "work", "out", "late"]
    source, work, out = (topology.nodes[name] for name in ("in", "work", "out"))
    assert isinstance(source, SourceNode)
    assert (source.topics, source.key, source.children) == (("a",), STRING, ("work", "late"))
    assert isinstance(work, ProcessorNode)
    assert (work.parents, work.children) == (("in",), ("out", "late"))
    assert isinstance(out, SinkNode)
    assert (out.topic, out.parents) == ("b", ("work",))


def test_a_suppliers_stores_are_added_and_connected() -> None:
    """They need not be named again."""

    class Counting(Nothing):
        stores = (COUNTS,)

    topology = base().add_processor("count", Counting, "in")
    node = topology.nodes["count"]
    assert isinstance(node, ProcessorNode)
    assert node.stores == ("counts",)
    assert isinstance(node.operator, ProcessorOperator)
    assert topology.stores == {"counts": COUNTS}


def test_async_options_reach_the_operator() -> None:
    """Given ones, or those by default, for an async process; a plain one has none."""
    options = AsyncOptions(max_in_flight=3)
    topology = base()
    topology.add_processor("one", Async, "in", options=options)
    topology.add_processor("two", Async, "in")
    topology.add_processor("three", Nothing, "in")
    found = [
        node.operator.asynchronous
        for node in topology.nodes.values()
        if isinstance(node, ProcessorNode) and isinstance(node.operator, ProcessorOperator)
    ]
    assert found == [options, AsyncOptions(), None]


def test_a_store_can_be_added_twice_if_it_is_the_same() -> None:
    """The same object, so that two processors may bring one store along; an equal one may come from code that does not know of the first."""
    topology = base().add_state_store(COUNTS).add_state_store(COUNTS, "work")
    with pytest.raises(TopologyError, match="a different store counts has already been added, and is used by work: give"):
        topology.add_state_store(stores.key_value("counts", STRING, LONG))
    assert list(topology.stores) == ["counts"]
    topology.connect_processor_and_state_stores("work", "counts")
    node = topology.nodes["work"]
    assert isinstance(node, ProcessorNode)
    assert node.stores == ("counts",)


def test_a_global_store_is_kept_by_its_own_nodes() -> None:
    """It has no changelog of its own, and its nodes are in no subtopology."""
    topology = base().add_global_store(COUNTS, "names", "topic", "keeper", Nothing, key=STRING)
    assert topology.global_topics == {"topic": GlobalStore("names", "topic", "counts", "keeper")}
    assert topology.global_stores["counts"].logging is False
    assert topology.stores == {}
    assert [part.nodes for part in topology.subtopologies()] == [("in", "work", "out")]
    keeper = topology.nodes["keeper"]
    assert isinstance(keeper, ProcessorNode)
    assert isinstance(keeper.operator, ProcessorOperator)
    assert keeper.stores == ("counts",)


def test_internal_topics_are_remembered_by_bare_name() -> None:
    """With partitions and configs, if given."""
    topology = base().add_internal_topic("x-repartition", partitions=3, configs={"cleanup.policy": "delete"}).add_internal_topic("y")
    assert topology.internal_topics == {
        "x-repartition": InternalTopic("x-repartition", 3, {"cleanup.policy": "delete"}),
        "y": InternalTopic("y"),
    }


def same() -> Processor[Any, Any, Any, Any]:
    return SAME


SAME = Nothing()


class NotAProcessor:
    def process(self, record: object) -> None:
        """Look like one."""


class AsyncInit(Nothing):
    async def init(self, context: Any) -> None:  # type: ignore[override]
        """Get ready, some time."""


WITH_GLOBAL = ("names", "topic", "keeper", Nothing)

REFUSED: dict[str, tuple[Any, str]] = {
    "duplicate source": (lambda t: t.add_source("work", "c"), "node work has already been added"),
    "duplicate processor": (lambda t: t.add_processor("in", Nothing, "in"), "node in has already been added"),
    "duplicate sink": (lambda t: t.add_sink("out", "c", "in"), "node out has already been added"),
    "source without topic": (lambda t: t.add_source("x", []), "source x reads no topic"),
    "source with a topic twice": (lambda t: t.add_source("x", ["c", "c"]), "source x reads a topic twice"),
    "topic of another source": (lambda t: t.add_source("x", "a"), "topic a of source x is already read by source in"),
    "topic of another pattern": (
        lambda t: t.add_source("x", re.compile("c+")).add_source("y", "cc"),
        "topic cc of source y matches the pattern c[+] of source x",
    ),
    "pattern that matches a topic": (lambda t: t.add_source("x", re.compile("[abc]")), r"pattern \[abc\] of source x matches topic a of source in"),
    "topic of a global store": (
        lambda t: t.add_global_store(COUNTS, *WITH_GLOBAL).add_source("x", "topic"),
        "topic topic of source x fills global store counts",
    ),
    "unknown parent": (lambda t: t.add_processor("x", Nothing, "y"), "parent y of node x is unknown: add parents before"),
    "own parent": (lambda t: t.add_processor("x", Nothing, "x"), "parent x of node x is unknown: a node cannot be its own parent"),
    "no parent": (lambda t: t.add_processor("x", Nothing), "node x has no parent"),
    "parent twice": (lambda t: t.add_sink("x", "c", "in", "in"), "node x has a parent twice"),
    "sink as parent": (lambda t: t.add_sink("x", "c", "out"), "parent out of node x is a sink"),
    "global node as parent": (
        lambda t: t.add_global_store(COUNTS, *WITH_GLOBAL).add_sink("x", "c", "keeper"),
        "parent keeper of node x belongs to a global store",
    ),
    "unknown store": (lambda t: t.connect_processor_and_state_stores("work", "counts"), "store counts of processor work is unknown"),
    "unknown store of a new node": (lambda t: t.add_operator("x", PassThrough(), "in", connected=["y"]), "store y of processor x is unknown"),
    "no store": (lambda t: t.connect_processor_and_state_stores("work"), "processor work is connected to no store"),
    "different store": (
        lambda t: t.add_state_store(COUNTS).add_state_store(stores.key_value("counts")),
        "a different store counts has already been added",
    ),
    "store of a source": (lambda t: t.add_state_store(COUNTS, "in"), "node in is not a processor"),
    "store of a sink": (lambda t: t.add_state_store(COUNTS).connect_processor_and_state_stores("out", "counts"), "node out is not a processor"),
    "store of an unknown processor": (lambda t: t.add_state_store(COUNTS, "x"), "processor x, to be connected to store counts, is unknown"),
    "global store connected": (
        lambda t: t.add_global_store(COUNTS, *WITH_GLOBAL).connect_processor_and_state_stores("work", "counts"),
        "store counts is global: processor work can read it without",
    ),
    "store as global and local": (
        lambda t: t.add_global_store(COUNTS, *WITH_GLOBAL).add_state_store(COUNTS),
        "counts has already been added as a global",
    ),
    "store as local and global": (
        lambda t: t.add_state_store(COUNTS).add_global_store(COUNTS, *WITH_GLOBAL),
        "store counts has already been added",
    ),
    "global with one name": (lambda t: t.add_global_store(COUNTS, "x", "topic", "x", Nothing), "global store counts are both named x"),
    "internal topic twice": (lambda t: t.add_internal_topic("x").add_internal_topic("x"), "internal topic x has already been added: give"),
    "no partitions": (lambda t: t.add_internal_topic("x", partitions=0), "internal topic x cannot have 0 partitions"),
    "supplier of one object": (lambda t: t.add_processor("x", same, "in"), "of node x supplied the same processor twice"),
    "supplier of something else": (lambda t: t.add_processor("x", NotAProcessor, "in"), "which is neither a Processor"),
    "not a supplier": (lambda t: t.add_processor("x", SAME, "in"), "of node x is a processor, not a supplier: give its class"),
    "async init": (lambda t: t.add_processor("x", AsyncInit, "in"), "at node x is 'async def', which only process may be"),
    "options of a plain processor": (
        lambda t: t.add_processor("x", Nothing, "in", options=AsyncOptions()),
        "processor x has options for asynchronous calls",
    ),
    "store name": (lambda t: stores.key_value("no/good"), "'no/good' is not a valid name"),
    "empty store name": (lambda t: stores.key_value(""), "'' is not a valid name"),
    "dots as a name": (lambda t: stores.key_value(".."), "'..' is not a valid name"),
    "long name": (lambda t: stores.key_value("x" * 250), "is not a valid name"),
    "short retention": (lambda t: stores.window("w", retention_ms=9, window_size_ms=10), "window store w cannot keep windows of 10 ms for 9 ms"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_mistakes_are_refused_with_names(what: str) -> None:
    """Each names its place; the earlier content stays as it was."""
    mistake, message = REFUSED[what]
    topology = base()
    with pytest.raises(TopologyError, match=message):
        mistake(topology)
    assert list(topology.nodes)[:3] == list(base().nodes)
    assert next(iter(topology.nodes.values())) == base().nodes["in"]


def test_a_window_store_has_its_given_parameters() -> None:
    """Kind, times and duplicates."""
    spec = stores.window(
        "w", STRING, LONG, retention_ms=100, window_size_ms=10, retain_duplicates=True, type="in_memory", changelog_configs={"a": "b"}
    )
    assert (spec.kind, spec.retention_ms, spec.window_size_ms, spec.retain_duplicates) == (StoreKind.WINDOW, 100, 10, True)
    assert (spec.type, spec.logging, spec.changelog_configs) == ("in_memory", True, {"a": "b"})
    assert stores.window("w", retention_ms=1, window_size_ms=1, timestamped=True).kind is StoreKind.TIMESTAMPED_WINDOW
    assert stores.key_value("k", timestamped=True).kind is StoreKind.TIMESTAMPED_KEY_VALUE
    assert stores.key_value("k", logging=False).logging is False
