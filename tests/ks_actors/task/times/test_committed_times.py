"""Stream times that are committed with offsets: they outlive upgrades, and never keep a commit from being made."""

from __future__ import annotations

import base64
import struct

import pytest

from ks_actors import BufferConfig, Consumed, EmitStrategy, Materialized, Produced, StreamsBuilder, Suppressed, TimeWindows, serdes
from ks_actors.log import OffsetAndMetadata, TopicPartition
from ks_actors.testing import AppHarness, run_app
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import feed

TEXT = Consumed(serdes.STRING, serdes.STRING)
TEXTS = Produced(serdes.STRING, serdes.STRING)
LIMIT = 4096


def counts(version: int, *, number: int = 1, final: bool = False) -> Topology:
    """Count in windows, in named stores, behind as many other steps as the version says."""
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    for _ in range(version):
        stream = stream.peek(lambda _key, _value: None)
    for at in range(number):
        table = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(100 * (at + 1))).count(Materialized(f"counts-{at}"))
        if final:
            table = table.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()).with_name(f"final-{at}"))
        table.to_stream(lambda key, _: str(key)).map_values(str).to("out", TEXTS)
    return builder.build()


def cogrouped(*topics: str) -> Topology:
    """Two of these streams are counted in one store: each has a stream time of its own."""
    builder = StreamsBuilder()
    streams = {topic: builder.stream(topic, TEXT).group_by_key() for topic in topics}
    first, second = streams["in"], streams["in2"]
    first.cogroup(lambda _key, value, whole: whole + value).cogroup(second, lambda _key, value, whole: whole + value).windowed_by(
        TimeWindows.of_size_with_no_grace(100)
    ).aggregate(str, Materialized("texts", value=serdes.STRING, retention_ms=10_000)).to_stream(lambda key, _: str(key)).to("out", TEXTS)
    return builder.build()


async def committed(harness: AppHarness) -> OffsetAndMetadata:
    """Return the committed position of the input."""
    await harness.app.commit()
    return (await harness.log.group_offsets("app"))[TopicPartition("in", 0)]


@pytest.mark.parametrize("final", [False, True])
def test_a_record_that_was_too_late_stays_so_after_an_upgrade(guarantee: str, final: bool) -> None:
    """New steps change the numbers in generated names; the time belongs to the store, which is named."""

    async def test(harness: AppHarness) -> list[tuple[str, str]]:
        for key, time in (("a", 10), ("a", 11), ("b", 500)):
            await harness.produce("in", key, "x", time)
        await harness.caught_up()
        await harness.restart(topology=counts(2, final=final))
        await harness.produce("in", "a", "late", 20)
        await feed(harness, "in", "b", "x", 700)
        return [(str(record.key), str(record.value)) for record in await harness.read("out")]

    found = run_app(test, counts(0, final=final), topics={"in": 1, "out": 1}, processing_guarantee=guarantee)
    assert [value for key, value in found if key == "[a@0/100]"] == (["2"] if final else ["1", "2"])


def test_the_room_that_times_take_does_not_grow_with_versions() -> None:
    """Operations that a topology no longer has leave nothing behind, though they come by other names each time."""

    async def test(harness: AppHarness) -> list[int]:
        lengths = []
        for version in range(4):
            if version:
                # In the last one most of the operations are gone.
                await harness.restart(topology=counts(version, number=5 if version < 3 else 1, final=True))
            await feed(harness, "in", "a", "x", version)
            lengths.append(len((await committed(harness)).metadata))
        return lengths

    first, *others, last = run_app(test, counts(0, number=5, final=True), topics={"in": 1, "out": 1})
    assert others == [first, first]
    assert last < first / 3


def test_times_without_room_are_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A broker refuses longer metadata (offset.metadata.max.bytes), and no commit would ever be made."""

    async def test(harness: AppHarness) -> OffsetAndMetadata:
        await feed(harness, "in", "a", "x", 5)
        await feed(harness, "in", "a", "x", 6)
        return await committed(harness)

    found = run_app(test, counts(0, number=160), topics={"in": 1, "out": 1})
    assert found.offset == 2
    assert len(found.metadata) < LIMIT
    warnings = [record.getMessage() for record in caplog.records if "for the metadata of an offset" in record.getMessage()]
    assert len(warnings) == 1
    assert warnings[0].startswith("task 0_0 has too many operations")


def test_marks_of_final_results_without_room_are_an_error_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """The commit is made all the same: without it the app would process the same records for ever."""

    async def test(harness: AppHarness) -> OffsetAndMetadata:
        await harness.produce("in", "a", "x", 5)
        await feed(harness, "in", "a", "x", 100_000)
        return await committed(harness)

    builder = StreamsBuilder()
    grouped = builder.stream("in", TEXT).group_by_key()
    for at in range(90):
        windowed = grouped.windowed_by(TimeWindows.of_size_with_no_grace(100 * (at + 1))).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        windowed.count(Materialized(f"a-store-with-quite-a-long-name-{at}")).to_stream(lambda key, _: str(key)).map_values(str).to("out", TEXTS)
    found = run_app(test, builder.build(), topics={"in": 1, "out": 1})
    assert found.offset == 2
    assert len(found.metadata) < LIMIT
    (error,) = [record for record in caplog.records if "final results may be sent again" in record.getMessage()]
    assert error.levelname == "ERROR"


def _as_before(times: dict[str, int], partition_time: int) -> str:
    """Encode times by the names that they had: of the store and the node."""
    parts = [struct.pack(">bqi", 2, partition_time, len(times))]
    for name, time in times.items():
        parts += [struct.pack(">i", len(name)), name.encode(), struct.pack(">q", time)]
    return base64.b64encode(b"".join(parts)).decode()


@pytest.mark.parametrize("node", ["KSTREAM-AGGREGATE-0000000001", "KSTREAM-AGGREGATE-0000000009"])
def test_times_that_an_earlier_version_has_committed_are_taken_over(node: str) -> None:
    """They had the names of stores and nodes, and nodes may have other numbers by now."""

    async def test(harness: AppHarness) -> list[str]:
        await feed(harness, "in", "a", "x", 10)
        await harness.app.commit()
        await harness.app.close()
        await harness.log.set_group_offsets(
            "app", {TopicPartition("in", 0): OffsetAndMetadata(1, _as_before({f"counts-0@{node}": 500, "gone@KSTREAM-1": 9}, 500))}
        )
        await harness.restart(topology=counts(0))
        await harness.produce("in", "a", "late", 20)
        await feed(harness, "in", "a", "x", 600)
        assert len(base64.b64decode((await committed(harness)).metadata)) < 50
        return [str(record.key) for record in await harness.read("out")]

    assert run_app(test, counts(0), topics={"in": 1, "out": 1}) == ["[a@0/100]", "[a@600/700]"]


@pytest.mark.parametrize("after", [("in", "in2"), ("in2", "in"), ("other", "in", "in2")])
def test_streams_that_share_a_store_have_times_of_their_own(after: tuple[str, ...]) -> None:
    """A restart gives each its own back, in whatever order the next version reads them: the one behind may still be behind."""

    async def test(harness: AppHarness) -> list[tuple[str, str]]:
        await harness.produce("in", "a", "1", 1_000)
        await feed(harness, "in2", "a", "2", 10)
        await harness.restart(topology=cogrouped(*after))
        await harness.produce("in", "a", "late", 20)
        await feed(harness, "in2", "a", "3", 20)
        return [(str(record.key), str(record.value)) for record in await harness.read("out")]

    found = run_app(test, cogrouped("in", "in2"), topics={"in": 1, "in2": 1, "other": 1, "out": 1})
    assert found[-1] == ("[a@0/100]", "23")
    assert all("late" not in value for _, value in found)
