"""The use of the test drivers and of the harness: patterns, misuse, errors."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Self

import pytest

from ks_actors import App, Consumed, NotRunning, ProcessingFailed, Produced, StreamsBuilder, StreamsConfig, UnknownTopicOrPartition
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import echo, feed_all, in_app


def of_patterns() -> Topology:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*"), Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
    builder.stream("more", Consumed(STRING, STRING)).to("orders-more", Produced(STRING, STRING))
    return builder.build()


def test_a_driver_reads_each_topic_that_a_pattern_matches() -> None:
    """As Kafka Streams' driver; in the order of time, as topics that are named."""
    with TopologyTestDriver(of_patterns()) as driver:
        out = driver.create_output_topic("out", STRING, STRING)
        for name in ("orders-eu", "orders-us", "orders-eu"):
            driver.create_input_topic(name, STRING, STRING).pipe_input("a", name)
        assert out.read_values_to_list() == ["orders-eu", "orders-us", "orders-eu"]
        driver.create_input_topic("more", STRING, STRING).pipe_input("a", "through")
        assert out.read_values_to_list() == ["through"]


def test_a_topic_that_no_pattern_matches_is_refused_by_an_error_with_the_patterns() -> None:
    """Otherwise the error would say that the topology reads nothing."""
    with TopologyTestDriver(of_patterns()) as driver, pytest.raises(UnknownTopicOrPartition, match=r"it reads more, topics that match 'orders-\.\*'"):
        driver.create_input_topic("other", STRING, STRING).pipe_input("a", "x")


def fails(_key: Any, value: Any) -> None:
    if value == "bad":
        raise ValueError(value)


def test_a_driver_refuses_to_go_on_behind_an_error() -> None:
    """Its stores have what the failed record has put so far, which an app rolls back. It can be read and closed."""
    with TopologyTestDriver(echo(fails)) as driver:
        topic = driver.create_input_topic("in", STRING, STRING)
        topic.pipe_input("a", "good")
        with pytest.raises(ProcessingFailed):
            topic.pipe_input("a", "bad")
        with pytest.raises(NotRunning, match="make a new driver") as refused:
            topic.pipe_input("a", "good")
        assert isinstance(refused.value.__cause__, ProcessingFailed)
        with pytest.raises(NotRunning, match="make a new driver"):
            driver.advance_wall_clock_time(1)
        assert driver.create_output_topic("out", STRING, STRING).read_values_to_list() == ["good"]


@pytest.mark.parametrize(("ms", "kind"), [(-5, ValueError), (1.5, TypeError), (True, TypeError)])
def test_the_wall_clock_of_a_driver_goes_on_by_whole_milliseconds(ms: Any, kind: type[Exception]) -> None:
    """A clock that goes back, or has fractions, exists in no app."""
    with TopologyTestDriver(echo()) as driver, pytest.raises(kind, match="advance the clock"):
        driver.advance_wall_clock_time(ms)


@pytest.mark.parametrize("headers", [{"h": b"1"}, "abc", (("h",),), ((b"h", b"1"),)])
def test_headers_that_are_no_pairs_are_refused(headers: Any) -> None:
    """A processor would get what no log has."""
    with TopologyTestDriver(echo()) as driver, pytest.raises(TypeError, match="give pairs"):
        driver.create_input_topic("in", STRING, STRING).pipe_input("a", "x", headers=headers)


class Service:
    """Counts how often it was entered and exited."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def __aenter__(self) -> Self:
        self.steps.append("in")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.steps.append("out")


def test_the_apps_of_a_harness_enter_its_services() -> None:
    """An app whose functions use a service can be tested whole, through a restart."""
    service = Service()

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("a", "x", 0)])
        assert service.steps == ["in"]
        await harness.restart()
        assert service.steps == ["in", "out", "in"]

    run_app(test, echo(), topics={"in": 1, "out": 1}, services=[service])
    assert service.steps == ["in", "out", "in", "out"]


@in_app(echo(), topics={"in": 1, "out": 1})
async def test_a_misspelt_fault_is_refused(harness: AppHarness) -> None:
    """It would never happen, and the test would prove nothing."""
    wrong: Any = "sned"
    with pytest.raises(ValueError, match=r"no operation 'sned': give one of abort, .*, send"):
        harness.fail(wrong, OSError())
    with pytest.raises(ValueError, match="no operation 'sned'"):
        harness.log.hold(wrong)
    text: Any = "no room"
    with pytest.raises(TypeError, match="give an exception"):
        harness.fail("send", text)


async def test_main_in_a_thread_is_refused_with_the_remedy() -> None:
    """Only the main thread may handle signals."""
    app = App(echo(), StreamsConfig(application_id="a"))
    with pytest.raises(RuntimeError, match=r"in a thread, use asyncio\.run\(app\.run\(\)\)"):
        await asyncio.to_thread(app.main)
