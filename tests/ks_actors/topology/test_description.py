"""Descriptions of a topology: Kafka's text, JSON, Mermaid."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ks_actors.processors.stateless._stateless import PassThrough
from ks_actors.topology import Topology, stores
from ks_actors.topology._java_order import TreeSet, hash_order, string_hash

GRAPHS = (Path(__file__).parent / "described.txt").read_text().split("=====\n")[1:]


def built(commands: str) -> Topology:
    topology = Topology()
    for command in commands.splitlines():
        match command.split():
            case ["source", name, topics]:
                topology.add_source(name, topics.split(","))
            case ["proc", name, parents]:
                topology.add_operator(name, PassThrough(), *parents.split(","))
            case ["sink", name, topic, parents]:
                topology.add_sink(name, topic, *parents.split(","))
            case ["store", name, processors]:
                topology.add_state_store(stores.key_value(name), *processors.split(","))
            case ["global", name, source, topic, processor]:
                topology.add_global_store(stores.key_value(name), source, topic, processor, PassThrough())
            case _:
                raise AssertionError(command)
    return topology


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_text_is_kafkas(graph: str) -> None:
    """Text for text, also where the order comes from Java's collections."""
    commands, text = graph.split("-----\n")
    assert str(built(commands).describe()) == text


def test_nothing_is_described_as_kafka_does() -> None:
    """An empty topology has a heading only."""
    assert str(Topology().describe()) == "Topologies:\n "


def small() -> Topology:
    topology = Topology()
    topology.add_source("in", ["a", "b"])
    topology.add_source("more", re.compile("x.*"))
    topology.add_operator("work", PassThrough(), "in", "more", stores=[stores.key_value("counts")])
    topology.add_sink("out", "results", "work")
    topology.add_sink("else", topic_of, "work")
    topology.add_global_store(stores.key_value("names"), "names-source", "names-topic", "names-keeper", PassThrough())
    return topology


def topic_of(key: object, value: object, context: object) -> str:
    return "results"


def test_patterns_and_extractors_are_described() -> None:
    """A pattern stands for the topics, an extractor is named by where it comes from."""
    text = str(small().describe())
    assert "Source: more (topics: x.*)" in text
    assert f"Sink: else (extractor class: {__name__}.topic_of)" in text


class Extractor:
    def __call__(self, key: object, value: object, context: object) -> str:
        return "results"


def test_an_extractor_object_is_described_by_its_class() -> None:
    """The text is the same in every run."""
    topology = Topology().add_source("in", "a").add_sink("out", Extractor(), "in")
    assert f"(extractor class: {__name__}.Extractor)" in str(topology.describe())


def test_json_tells_all_nodes_by_subtopology() -> None:
    """Global stores are marked; children are in the order of forwarding."""
    told = json.loads(small().describe().to_json())["subtopologies"]
    assert [(group["id"], group["global"]) for group in told] == [(0, False), (1, True)]
    nodes = {node["name"]: node for group in told for node in group["nodes"]}
    assert nodes["in"] == {"type": "source", "name": "in", "topics": ["a", "b"], "children": ["work"]}
    assert nodes["more"]["pattern"] == "x.*"
    assert nodes["work"] == {"type": "processor", "name": "work", "stores": ["counts"], "parents": ["in", "more"], "children": ["out", "else"]}
    assert nodes["out"] == {"type": "sink", "name": "out", "topic": "results", "parents": ["work"]}
    assert nodes["else"]["extractor"].endswith("topic_of")


def test_mermaid_draws_boxes_topics_and_stores() -> None:
    """Topics lie outside of the boxes, stores inside; every edge is there."""
    drawn = small().describe().mermaid()
    assert drawn.startswith("flowchart TD\n")
    assert 'subgraph sub0["Sub-topology 0"]' in drawn
    assert 'subgraph sub1["Sub-topology 1: global store"]' in drawn
    ids = {name: key for key, name in re.findall(r'^ +(\w+)[\[(]+"([^"]+)"', drawn, re.MULTILINE)}
    for first, arrow, second in [
        ("a", "-->", "in"),
        ("x.*", "-->", "more"),
        ("in", "-->", "work"),
        ("work", "---", "counts"),
        ("work", "-->", "out"),
        ("out", "-->", "results"),
        ("else", "-->", "a topic chosen by a function"),
        ("names-source", "-->", "names-keeper"),
        ("names-keeper", "---", "names"),
    ]:
        assert f"    {ids[first]} {arrow} {ids[second]}\n" in drawn
    box = drawn[drawn.index("subgraph sub0") : drawn.index("end")]
    assert '"counts"' in box
    assert '"results"' not in box


def test_mermaid_escapes_markup() -> None:
    """A name may hold quotes and brackets."""
    drawn = Topology().add_source('a"<b>&', "t").describe().mermaid()
    assert 'node0(["a&quot;&lt;b&gt;&amp;"])' in drawn


def test_string_hash_is_javas() -> None:
    """Over UTF-16 units, and cut to 32 bits."""
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("polygenelubricants") == 0x80000000
    assert string_hash("\N{GRINNING FACE}") == (31 * 0xD83D + 0xDE00) & 0xFFFFFFFF


def test_hash_order_forgets_duplicates() -> None:
    """As a set does."""
    assert hash_order(["b", "a", "b"]) == ["a", "b"]


def test_a_tree_that_nothing_disturbs_is_sorted() -> None:
    """For any order of adding, ascending and descending too."""
    for numbers in ([5, 3, 8, 1, 4, 7, 9, 2, 6, 0], list(range(40)), list(range(40, 0, -1)), [2, 1, 3, 0, 7, 4, 6, 5, 9, 8]):
        tree: TreeSet[int] = TreeSet(int.__lt__)
        for number in numbers:
            tree.add(number)
        assert list(tree) == sorted(numbers)
