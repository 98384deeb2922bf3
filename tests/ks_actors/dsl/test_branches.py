"""Branches that go through functions, as Kafka Streams' `Branched`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import TopologyError, serdes
from ks_actors.dsl import Consumed, JoinWindows, Produced, Stream, StreamsBuilder, TimeWindows, UnlimitedWindows, Window
from ks_actors.testing import AppHarness, TestRecord, TopologyTestDriver
from tests.ks_actors.runtime.helpers import feed_all, in_virtual_time

TEXT = Produced(serdes.STRING, serdes.STRING)


def source() -> tuple[StreamsBuilder, Stream[str, str]]:
    builder = StreamsBuilder()
    return builder, builder.stream("in", Consumed(serdes.STRING, serdes.STRING))


def test_functions_and_consumers_get_the_stream_of_their_branch() -> None:
    """The branches have a function's result; of None and of a consumer there is none."""
    builder, stream = source()
    branches = (
        stream.split("s-")
        .branch(lambda _, value: value == "1", "plain")
        .branch(lambda _, value: value == "2", "mapped", function=lambda branch: branch.map_values(lambda value: value * 2))
        .branch(lambda _, value: value == "3", "gone", function=lambda branch: branch.to("three", TEXT))
        .default_branch("rest", consumer=lambda branch: branch.to("others", TEXT))
    )
    assert list(branches) == ["s-plain", "s-mapped"]
    for name, branch in branches.items():
        branch.to(name, TEXT)
    with TopologyTestDriver(builder.build()) as driver:
        topic = driver.create_input_topic("in", serdes.STRING, serdes.STRING)
        for value in "1234":
            topic.pipe_input("k", value)
        outs = {name: driver.create_output_topic(name, serdes.STRING, serdes.STRING) for name in (*branches, "three", "others")}
        read = {name: [value for _, value in out.read_key_values_to_list()] for name, out in outs.items()}
    assert read == {"s-plain": ["1"], "s-mapped": ["22"], "three": ["3"], "others": ["4"]}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"function": str, "consumer": str}, "has both a function and a consumer"),
        ({"function": lambda: None}, "function of split"),
        ({"consumer": 5}, "consumer of split"),
        ({"function": lambda _: "no stream"}, "the result of function for branch"),
    ],
)
def test_wrong_functions_of_branches_are_told(options: dict[str, Any], text: str) -> None:
    """Where the branch is added."""
    with pytest.raises(TopologyError, match=text):
        source()[1].split().branch(lambda _, __: True, **options)


@in_virtual_time
async def test_branches_that_merge_again_keep_the_order_of_records() -> None:
    """Also where many records are processed at a time."""
    builder, stream = source()
    seen: list[str] = []
    odd, even = stream.split().branch(lambda _, value: int(value) % 2 == 1).default_branch().values()
    odd.merge(even).foreach(lambda _, value: seen.append(value))
    values = [str(number) for number in range(8)]
    async with AppHarness(builder.build(), topics={"in": 1}) as harness:
        await feed_all(harness, "in", [TestRecord("k", value, 0) for value in values])
    assert seen == values


def test_a_name_is_taken_by_a_branch_that_is_not_returned_too() -> None:
    """Its node has it."""
    split = source()[1].split().branch(lambda _, __: True, "a", consumer=lambda _: None)
    with pytest.raises(TopologyError, match="already has a branch"):
        split.branch(lambda _, __: True, "a")


@given(st.integers(0, 1_000), st.integers(1, 60), st.integers(1, 60))
def test_windows_tell_which_of_them_have_a_timestamp(timestamp: int, size: int, advance: int) -> None:
    """Those that begin at multiples of the advance, no more than the size before it; by start, from the epoch on."""
    windows = TimeWindows.of_size_with_no_grace(size).advance_by(min(advance, size))
    starts = [start for start in range(0, timestamp + 1, windows.advance_ms) if start > timestamp - size]
    assert windows.windows_for(timestamp) == [Window(start, start + size) for start in starts]


def test_an_unlimited_window_has_all_later_timestamps() -> None:
    """From its start on; windows of joins tell of none, as in Kafka Streams."""
    windows = UnlimitedWindows.of().start_on(5)
    assert (windows.windows_for(4), windows.windows_for(5)) == ([], [Window(5, 2**63 - 1)])
    assert not hasattr(JoinWindows.of_time_difference_with_no_grace(5), "windows_for")


def test_the_serde_of_windowed_keys_takes_the_windows_of_the_stream() -> None:
    """The check takes all kinds of them: it reads what a size would give."""
    by_windows = serdes.windowed(serdes.STRING, TimeWindows.of_size_with_no_grace(10).advance_by(5))
    data = by_windows.serializer("t")(by_windows.deserializer("t")(b"k" + (15).to_bytes(8, "big")))
    assert by_windows.deserializer("t")(data) == serdes.windowed(serdes.STRING, 10).deserializer("t")(data)


def test_a_branch_that_is_not_there_is_a_key_error_that_names_those_that_are() -> None:
    """The prefix is easily forgotten; the result is a dict all the same."""
    branches = StreamsBuilder().stream("in").split("s-").branch(lambda key, value: True, "a").default_branch("b")
    with pytest.raises(KeyError, match="split s- returns no branch 'a': there are s-a, s-b; a name begins with the split's"):
        branches["a"]
    assert branches.get("a") is None
    assert isinstance(branches, dict)
