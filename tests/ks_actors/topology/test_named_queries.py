"""Named queries: parts of a topology by name."""

from __future__ import annotations

import pytest

from ks_actors import Consumed, Grouped, Joined, Produced, Repartitioned, StreamsBuilder, StreamsConfig, Topology, TopologyError, serdes

TEXT = Consumed(serdes.STRING, serdes.STRING)
TEXT_OUT = Produced(serdes.STRING, serdes.STRING)


def two_queries() -> StreamsBuilder:
    """Return a builder with query fraud, of one part, query stats, of two, and one part outside."""
    builder = StreamsBuilder()
    with builder.query("fraud", weight=3):
        builder.stream("payments", TEXT).filter(lambda _, value: value == "bad").to("alerts", TEXT_OUT)
    builder.stream("plain", TEXT).to("copy", TEXT_OUT)
    with builder.query("stats"):
        clicks = builder.stream("clicks", TEXT).map(lambda key, value: (value, key))
        clicks.repartition(Repartitioned(serdes.STRING, serdes.STRING)).to("pages", TEXT_OUT)
    return builder


def test_a_query_is_a_set_of_whole_subtopologies() -> None:
    """All parts made in the block belong to the query, and the parts outside belong to rest."""
    topology = two_queries().build()
    assert dict(topology.queries()) == {"fraud": (0,), "rest": (1,), "stats": (2, 3)}
    assert dict(topology.weights) == {"fraud": 3, "stats": 1}


@pytest.mark.parametrize("optimized", ["none", "all"])
def test_only_keeps_numbers_and_names(optimized: str) -> None:
    """Tasks, stores and topics of a part are those of the whole topology."""
    whole = two_queries().build(StreamsConfig(application_id="a", topology_optimization=optimized))
    part = whole.only("stats")
    assert part.subtopologies() == tuple(each for each in whole.subtopologies() if each.id in {2, 3})
    assert whole.only("fraud", "rest", "stats").subtopologies() == whole.subtopologies()
    assert part.internal_topics == whole.internal_topics
    assert whole.only("fraud", "rest").internal_topics == {}
    assert dict(part.queries()) == {"stats": (2, 3)}


def test_a_part_of_two_queries_is_refused_with_both_nodes() -> None:
    """Two queries that read one topic are one part: the error names a node of each, and the remedy."""
    builder = two_queries()
    with builder.query("other"):
        builder.stream("payments", TEXT).to("more", TEXT_OUT)
    with pytest.raises(TopologyError, match=r"queries fraud \(node .*\) and other \(node .*topic of its own"):
        builder.build()


def test_nodes_below_a_query_belong_to_it() -> None:
    """A stream made in the block may be used after it."""
    builder = StreamsBuilder()
    with builder.query("fraud"):
        payments = builder.stream("payments", TEXT)
    payments.to("copy", TEXT_OUT)
    assert dict(builder.build().queries()) == {"fraud": (0,)}


def test_an_internal_topic_between_queries_is_refused() -> None:
    """A repartition behind the block would be written by one query and read by another: the build says so."""
    for name in ("stream", "count", "join"):
        builder = StreamsBuilder()
        with builder.query("fraud"):
            moved = builder.stream("payments", TEXT).map(lambda key, value: (value, key))
        if name == "stream":
            moved.repartition(Repartitioned(serdes.STRING, serdes.STRING)).to("copy", TEXT_OUT)
        elif name == "count":
            moved.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count()
        else:
            joined = Joined(serdes.STRING, serdes.STRING, serdes.STRING)
            moved.join(builder.table("names", TEXT), lambda left, right: left + right, joined).to("copy", TEXT_OUT)
        with pytest.raises(TopologyError, match=r"query fraud writes the internal topic .* and query rest reads it"):
            builder.build()


def test_a_topology_made_by_hand_has_queries_too() -> None:
    """The low-level topology takes the same block."""
    topology = Topology()
    with topology.query("fraud"):
        topology.add_source("in", "payments", key=str, value=str)
    topology.add_source("other", "clicks", key=str, value=str)
    assert dict(topology.queries()) == {"fraud": (0,), "rest": (1,)}
    assert [*topology.only("rest").nodes] == ["other"]


@pytest.mark.parametrize("name", ["rest", "", "two words", 7, None])
def test_names_that_no_query_can_have_are_refused(name: object) -> None:
    """`rest` is taken, and a name must be fit for a command line."""
    with pytest.raises(TopologyError, match="quer"), StreamsBuilder().query(name):  # type: ignore[arg-type]
        pass


@pytest.mark.parametrize("weight", [0, -1, 1.5, True, "2"])
def test_weights_are_whole_numbers_from_one(weight: object) -> None:
    """Anything else is refused."""
    with pytest.raises(TopologyError, match="weight"), Topology().query("fraud", weight=weight):  # type: ignore[arg-type]
        pass


def test_a_query_has_one_weight_and_ends_before_the_next() -> None:
    """A second weight is refused, and so is a query in a query; naming a query again adds to it."""
    builder = two_queries()
    with pytest.raises(TopologyError, match="weights 3 and 2"), builder.query("fraud", weight=2):
        pass
    with builder.query("fraud", weight=3), pytest.raises(TopologyError, match="end that one first"), builder.query("stats"):
        pass
    with builder.query("fraud", weight=3):
        builder.stream("transfers", TEXT).to("alerts", TEXT_OUT)
    assert builder.build().queries()["fraud"] == (0, 4)


def test_a_query_has_one_commit_interval() -> None:
    """A second one and a negative one are refused; a query named again without one keeps its own."""
    builder = two_queries()
    with builder.query("fraud", weight=3, commit_interval_ms=50):
        pass
    with builder.query("fraud", weight=3):
        builder.stream("transfers", TEXT).to("alerts", TEXT_OUT)
    assert dict(builder.build().commit_intervals) == {"fraud": 50}
    with pytest.raises(TopologyError, match="commit_interval_ms 50 and 60"), builder.query("fraud", weight=3, commit_interval_ms=60):
        pass
    with pytest.raises(TopologyError, match="commit_interval_ms -1"), builder.query("late", commit_interval_ms=-1):
        pass


@pytest.mark.parametrize("wanted", [(), ("nobody",), ("fraud", "nobody")])
def test_unknown_queries_are_refused_with_the_known_ones(wanted: tuple[str, ...]) -> None:
    """The error lists the names to choose from."""
    with pytest.raises(TopologyError, match="choose among fraud, rest, stats"):
        two_queries().build().only(*wanted)
