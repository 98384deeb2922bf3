"""Tables that were written with partitioners of their own, joined by a foreign key."""

from __future__ import annotations

from typing import Any

from ks_actors import StreamsError, TableJoined
from ks_actors.dsl import StreamsBuilder
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, in_app

TOPICS = {"left": 3, "right": 2, "out": 1}


def by_last(_: str, key: str, __: Any, count: int) -> int:
    """Return the partition of a key by its last digit."""
    return int(key[-1]) % count


def topology(joined: TableJoined[str, str]) -> Topology:
    builder = StreamsBuilder()
    left, right = builder.table("left", STRINGS), builder.table("right", STRINGS)
    rows = left.join(right, lambda one, other: f"{one}+{other}", foreign_key=lambda value: value, joined=joined)
    rows.to_stream().to("out", STRINGS_OUT)
    return builder.build()


def test_messages_go_where_the_rows_are() -> None:
    """Subscriptions go by the partitioner of the right table, responses by that of the left one; both get keys, and no values."""
    asked: set[tuple[str, Any, int]] = set()

    def noted(topic: str, key: str, value: Any, count: int) -> int:
        asked.add((topic, value, count))
        return by_last(topic, key, value, count)

    async def test(harness: AppHarness) -> None:
        for number in range(9):
            await harness.produce("left", f"l{number}", f"r{number % 5}", partition=number % 3)
        for number in range(5):
            await harness.produce("right", f"r{number}", "v", partition=number % 2)
        await harness.caught_up()
        rows = {record.key: record.value for record in await harness.read("out")}
        assert rows == {f"l{number}": f"r{number % 5}+v" for number in range(9)}

    run_app(test, topology(TableJoined("j", partitioner=noted, other_partitioner=noted)), topics=TOPICS)
    assert asked == {("app-j-subscription-registration-topic", None, 2), ("app-j-subscription-response-topic", None, 3)}


@in_app(topology(TableJoined("j")), topics=TOPICS)
async def test_responses_find_the_left_row_without_a_partitioner(harness: AppHarness) -> None:
    """A subscription tells the partition of the left row, whatever partitioner its topic was written with."""
    for number in range(9):
        await harness.produce("left", f"l{number}", f"r{number % 5}", partition=number % 3)
    for number in range(5):
        await harness.produce("right", f"r{number}", "v")
    await harness.caught_up()
    assert len({record.key for record in await harness.read("out")}) == 9


@in_app(topology(TableJoined("j", other_partitioner=lambda _topic, _key, _value, count: count)), topics=TOPICS)
async def test_a_partition_that_is_not_there_is_an_error(harness: AppHarness) -> None:
    """It names the topic, and the number of its partitions."""
    await harness.produce("left", "l0", "r0")
    error = await harness.ended()
    assert isinstance(error, StreamsError)
    assert "returned partition 2 of topic app-j-subscription-registration-topic, which has 2" in str(error)
