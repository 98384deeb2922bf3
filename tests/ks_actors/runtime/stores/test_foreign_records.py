"""Records that something else has written to the app's internal topics: each is named by topic, partition and offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ks_actors import ErrorContext, FailedRecord, HandlerResponse, Response, StreamsError, serdes
from ks_actors.dsl import JoinWindows, Materialized, StreamJoined, StreamsBuilder
from ks_actors.serdes import STRING
from ks_actors.testing import AppHarness
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, feed, in_virtual_time
from tests.ks_actors.task.test_record_origins import CLOSING, GROUPED

FOREIGN: list[tuple[bytes | None, bytes | None]] = [(b"", b"v"), (b"k", b""), (b"short", bytes(7)), (b"kk", None), (b"\xff" * 40, bytes(8))]


def counting(kind: str) -> Topology:
    builder = StreamsBuilder()
    counts = CLOSING[kind](builder.stream("in", STRINGS).group_by_key(GROUPED)).count(Materialized("rows", STRING, serdes.LONG))
    counts.to_stream().select_key(lambda key, _: key.key).map_values(str).to("out", STRINGS_OUT)
    return builder.build()


def joining(_: str) -> Topology:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(5)
    options = StreamJoined(STRING, STRING, STRING, store_name="rows")
    builder.stream("in", STRINGS).join(builder.stream("other", STRINGS), lambda left, right: left + right, windows, options).to("out", STRINGS_OUT)
    return builder.build()


STORES: dict[str, tuple[Callable[[str], Topology], str]] = {
    **dict.fromkeys(CLOSING, (counting, "app-rows-changelog")),
    "a join": (joining, "app-rows-this-join-store-changelog"),
}


@pytest.mark.parametrize("standby", [False, True])
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("foreign", FOREIGN)
@in_virtual_time
async def test_a_record_that_is_none_of_a_store_is_named(kind: str, foreign: tuple[bytes | None, bytes | None], standby: bool) -> None:
    """The error of the restore, or of the standby, names the offset and the remedy; the records before it are not at fault."""
    build, changelog = STORES[kind]

    config: dict[str, Any] = {"num_standby_replicas": 1} if standby else {}
    async with AppHarness(build(kind), topics=dict.fromkeys(["in", "other", "out"], 1), processing_guarantee="at_least_once", **config) as harness:
        await harness.produce("in", "a", "v", 0)
        await feed(harness, "in", "b", "v", 0)
        if standby:
            other = harness.another()
            async with other:
                await harness.caught_up()
                await harness.produce(changelog, *foreign)
                error: Any = await other.ended()
        else:
            await harness.close()
            harness.wipe_state()
            await harness.produce(changelog, *foreign)
            with pytest.raises(StreamsError) as raised:
                await harness.start()
            error = raised.value
        assert (error.topic, error.partition, error.offset) == (changelog, 0, 2)
        assert "does not fit this store" in str(error)
        assert "reset the application" in str(error)


@pytest.mark.parametrize(
    "foreign", [*FOREIGN, (None, b"v"), (None, None), (b"k", b"v"), (b"k", b"\0\0\0\1x\1"), (b"k", b"\0\0\0\1x\2"), (None, b"\0\0\0\1x\1")]
)
@in_virtual_time
async def test_no_record_of_a_repartition_topic_stops_it(foreign: tuple[bytes | None, bytes | None], guarantee: str) -> None:
    """The handlers are asked about records that are no change of the table, with topic and offset; later ones are processed."""
    builder = StreamsBuilder()
    table = builder.table("in", STRINGS, Materialized("rows", STRING, STRING))
    counts = table.group_by(lambda _, value: (value, value), GROUPED).count(Materialized("counts", STRING, serdes.LONG))
    counts.to_stream().map_values(str).to("out", STRINGS_OUT)
    asked: list[tuple[str | None, int]] = []

    def handler(context: ErrorContext, _: FailedRecord | None, error: Exception) -> Response:
        asked.append((context.topic, context.offset))
        return Response(HandlerResponse.RESUME, context.dead_letters(error))

    async with AppHarness(
        builder.build(),
        topics=dict.fromkeys(["in", "out", "letters"], 1),
        processing_guarantee=guarantee,
        deserialization_exception_handler=handler,
        processing_exception_handler=handler,
        errors_dead_letter_queue_topic_name="letters",
    ) as harness:
        await feed(harness, "in", "a", "x", 0)
        await harness.produce("app-counts-repartition", *foreign)
        await feed(harness, "in", "b", "x", 1)
        out = [(record.key, record.value) for record in await harness.read("out", key=STRING, value=STRING)]
        assert [row for row in out if row[0] == "x"] == [("x", "1"), ("x", "2")]
        offset = 1 if guarantee == "at_least_once" else 2  # behind the marker of a transaction
        assert set(asked) <= {("app-counts-repartition", offset)}
        assert asked or len(out) > 2 or foreign[1] is not None
