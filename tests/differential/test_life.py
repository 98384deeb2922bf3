"""The order of life: processors are initialized, called, punctuated and closed when Kafka Streams does so."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from ks_actors import Processor, ProcessorContext, Record, StreamsError, Topology
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver
from tests.differential.life import events_of, read_cases

CASES = list(read_cases())


def test_everything_happens_in_kafka_streams_order() -> None:
    """Random topologies of one or more subtopologies, with punctuators that are due at one time, and some that cancel themselves or others."""
    assert len(CASES) == 200
    for case in CASES:
        assert events_of(case) == case["events"], case["id"]


def test_the_cases_have_what_the_order_is_about() -> None:
    """Punctuators of several nodes at one time, and nodes that are added in another order than their children's."""
    ties = [case for case in CASES if len({event.rpartition(" ")[2] for event in case["events"] if "punctuate" in event}) > 1]
    assert len(ties) > 50
    assert any(len({*node["parents"]}) > 1 for case in CASES for node in case["nodes"])


class TooEarly(Processor[str, str, str, str]):
    """Forward while it is initialized."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        context.forward(Record("k", "v", 0))

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


class Quiet(Processor[str, str, str, str]):
    """Take records."""

    def process(self, record: Record[str, str]) -> None:
        """Do nothing."""


def test_a_record_for_a_processor_that_is_not_initialized_is_an_error() -> None:
    """Children come later than their parents, so nothing is to be forwarded in init; the error names the child and the remedy."""
    topology = Topology().add_source("in", "in", key=STRING, value=STRING)
    topology.add_processor("early", TooEarly, "in").add_processor("late", Quiet, "early")
    with pytest.raises(StreamsError, match=r"before it is initialized: forward in process .* \(node late\)"), TopologyTestDriver(topology):
        pass


def test_a_driver_that_does_not_start_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its directory is deleted, and its loop closed, though it was never entered."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    topology = Topology().add_source("in", "in", key=STRING, value=STRING)
    topology.add_processor("early", TooEarly, "in").add_processor("late", Quiet, "early")
    driver = TopologyTestDriver(topology)
    with pytest.raises(StreamsError), driver:
        pass
    assert list(tmp_path.iterdir()) == []
    driver.close()
