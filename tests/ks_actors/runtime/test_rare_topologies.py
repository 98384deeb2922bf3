"""The small pieces of the runtime, and topologies of rarer shapes."""

from __future__ import annotations

import asyncio
import base64
import re
import shutil
import struct
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import LogAndSkipOnInvalidTimestamp, Processor, Record, TopologyError, serdes
from ks_actors.dsl import Consumed, EmitStrategy, Grouped, Joined, Materialized, Produced, Repartitioned, StreamsBuilder, TimeWindows
from ks_actors.kernel import HAS_KERNEL, kernel
from ks_actors.log import IsolationLevel, Lease, NewMember, NewTopic, OffsetAndMetadata, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.processors import PunctuationType
from ks_actors.records._batch import Batch
from ks_actors.records._packed_batch import PackedBatch
from ks_actors.runtime.output import _collector
from ks_actors.runtime.output._coalesce import merged
from ks_actors.task._offset_metadata import OWN_NUMBER, Position, decode_position, encode_position
from ks_actors.task.times._punctuation import BACK_MS, PunctuationQueue
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.testing import _disk as disk
from ks_actors.testing._connection import Connection
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import STRINGS, STRINGS_OUT, by_key, echo, feed, feed_all, in_virtual_time

P = TopicPartition("t", 0)

# --- positions ------------------------------------------------------------------------------------------------------------------


def test_positions_are_read_as_they_were_written() -> None:
    """Offset, partition time and the progress of processors survive; the bytes are Kafka Streams'."""
    for progress in ({}, {"store": 17, "größer": -1}):
        assert decode_position(encode_position(5, 1234, progress)) == Position(5, 1234, progress, task=OWN_NUMBER)
        assert decode_position(encode_position(5, 1234, progress, 3)) == Position(5, 1234, progress, task=3)
    raw = base64.b64decode(encode_position(5, 1234, {"ab": 7}).metadata)
    assert raw == struct.pack(">bq", 2, 1234) + struct.pack(">ii", 1, 2) + b"ab" + struct.pack(">q", 7)


def test_positions_of_others_are_read_as_far_as_they_go() -> None:
    """Version 1 has no progress; metadata that is no position of Kafka Streams at all is an offset without a time."""
    old = base64.b64encode(struct.pack(">bq", 1, 99)).decode()
    assert decode_position(OffsetAndMetadata(3, old)) == Position(3, 99, task=OWN_NUMBER)
    for strange in ("", "no base64 !", base64.b64encode(b"\x02\x00").decode(), base64.b64encode(struct.pack(">bq", 9, 1)).decode()):
        assert decode_position(OffsetAndMetadata(3, strange)) == Position(3)


# --- batches --------------------------------------------------------------------------------------------------------------------


def test_small_batches_are_sent_as_one() -> None:
    """Batches of one partition become one, in order, up to a size; headers stay with their records."""
    with_headers = Batch([b"b"], [b"2"], [2], [(("h", b"x"),)])
    plain = Batch([b"a"], [b"1"], [1])
    assert merged([Outgoing(P, plain)])[0].batch is plain
    for parts, headers in (
        ((plain, with_headers, plain), [(), (("h", b"x"),), ()]),
        ((with_headers, plain), [(("h", b"x"),), ()]),
        ((plain, plain), None),
    ):
        (one,) = merged([Outgoing(P, part) for part in parts])
        assert one.batch.headers == headers
        assert one.batch.timestamps == [part.timestamps[0] for part in parts]
    some = Batch([b"k"] * 600, [b"v"] * 600, [0] * 600)
    for largest, sizes in ((1_000, [600, 601]), (1_200, [1_200, 1]), (10_000, [1_201])):
        assert [len(one.batch) for one in merged([Outgoing(P, part) for part in (some, some, plain)], largest)] == sizes
    assert (len(some), len(plain)) == (600, 1)


@pytest.mark.skipif(not HAS_KERNEL, reason="there is no kernel")
def test_packed_records_are_sent_as_they_are() -> None:
    """Many of them are no objects before they are sent; a few join others, in order."""
    rows = kernel.Rows(0, True, False)
    rows.add_all([f"k{number}" for number in range(900)], list(range(900)), list(range(900)), [b"v"] * 900)
    many, few, plain = PackedBatch(rows, 0, 800), PackedBatch(rows, 800, 900), Batch([b"a"], [b"1"], [1])
    sent = [one.batch for one in merged([Outgoing(P, part) for part in (plain, many, few, plain, many)])]
    assert [len(batch) for batch in sent] == [1, 800, 101, 800]
    assert sent[1] is sent[3] is many
    assert sent[2].keys == [*rows.names(800, 900), b"a"]


# --- punctuation ----------------------------------------------------------------------------------------------------------------


def test_punctuations_keep_to_their_grid() -> None:
    """Calls that were missed are not made up for; the next one is due on the grid of the first."""
    called: list[int] = []
    queue = PunctuationQueue()
    queue.schedule(10, called.append, 10, anchored_at=None)
    assert not queue.punctuate(9)
    assert queue.punctuate(10)
    assert queue.next_due == 20
    assert queue.punctuate(57)
    assert called == [10, 57]
    assert queue.next_due == 60
    queue.clear()
    assert queue.next_due is None


@given(
    steps=st.lists(st.tuples(st.integers(0, 50_000), st.integers(-90_000, 90_000)), min_size=1, max_size=20),
    interval=st.integers(1, 20_000),
)
def test_no_call_waits_longer_than_an_interval_behind_a_clock_that_is_set(steps: list[tuple[int, int]], interval: int) -> None:
    """Nor by more than a second beside it, however the clock was set between two looks, and calls keep to their grid."""
    queue = PunctuationQueue()
    now, steady = 1_000_000, 0
    called: list[int] = []
    queue.schedule(interval, called.append, now + interval, anchored_at=None)
    queue.due_by(now, steady)
    for passed, step in steps:
        steady += passed
        now += passed + step
        due = queue.due_by(now, steady)
        assert due is not None
        assert due <= now + interval + BACK_MS
        assert (due - 1_000_000) % interval == 0
        queue.punctuate(now)


def test_a_first_call_at_a_time_does_not_go_back_with_the_clock() -> None:
    """It was asked for at that time."""
    queue = PunctuationQueue()
    queue.schedule(1_000, lambda now: None, 900_000, anchored_at=100_000)
    queue.due_by(100_000, 0)
    assert queue.due_by(60_000, 10_000) == 900_000


def test_small_steps_back_do_not_add_up() -> None:
    """Each is waited out: none makes a call come early, however many there are."""
    queue = PunctuationQueue()
    now, steady = 1_000_000, 0
    called: list[int] = []
    queue.schedule(1_000, called.append, now + 1_000, anchored_at=None)
    for _ in range(20):
        for _ in range(50):
            now, steady = now + 100, steady + 100
            queue.due_by(now, steady)
            queue.punctuate(now)
        now -= 500
        queue.due_by(now, steady)
        assert not queue.is_due(now)
    assert all(later - earlier >= 1_000 for earlier, later in pairwise(called))


def test_a_punctuation_may_begin_at_a_time() -> None:
    """A start that is past begins at the next point of its grid, one to come is the first."""
    queue = PunctuationQueue()
    queue.schedule(10, lambda now: None, 3, anchored_at=25)
    assert queue.next_due == 33
    queue.schedule(10, lambda now: None, 30, anchored_at=25)
    assert queue.next_due == 30


def test_a_punctuation_may_cancel_itself() -> None:
    """A cancelled schedule is called no more, whether it cancels itself or another does."""
    called: list[str] = []
    queue = PunctuationQueue()

    def once(now: int) -> None:
        called.append("once")
        first.cancel()
        second.cancel()

    first = queue.schedule(10, once, 10, anchored_at=None)
    second = queue.schedule(10, lambda now: called.append("never"), 15, anchored_at=None)
    assert queue.punctuate(20)
    assert called == ["once"]
    assert queue.next_due is None


class Starting(Processor[str, str, str, str]):
    """Schedule with start times, and cancel after the second call."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.calls = 0
        self.cancel = context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, self.tick, start_ms=2500)
        context.schedule(10, PunctuationType.STREAM_TIME, lambda now: self.tell("stream", now), start_ms=25)

    def tell(self, kind: str, now: int) -> None:
        self.context.forward(Record(kind, str(now), now))

    def tick(self, now: int) -> None:
        self.calls += 1
        self.tell("wall", now // 100)
        if self.calls == 2:
            self.cancel()

    def process(self, record: Record[str, str]) -> None:
        pass


@in_virtual_time
async def test_processors_may_say_when_punctuations_begin() -> None:
    """`start_ms` is the time of the first call; the object that `schedule` returns ends the calls."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("starting", Starting, "source")
    topology.add_sink("sink", "out", "starting", key=serdes.STRING, value=serdes.STRING)
    async with AppHarness(topology, topics={"in": 1, "out": 1}) as harness:
        await harness.kit.clock.advance(10)
        for time in (5, 24, 26, 34, 36):
            await harness.produce("in", "a", "v", time)
        await harness.caught_up()
        found = by_key(await harness.read("out"))
        assert found == {"wall": ["25", "35"], "stream": ["26", "36"]}


class Placed(Processor[str, str, str, str]):
    """Forward the offset at each record and in each call of a punctuator: None without a record."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, lambda now: self.tell("stream", now))
        context.schedule(1000, PunctuationType.WALL_CLOCK_TIME, lambda now: self.tell("wall", now))

    def tell(self, kind: str, now: int) -> None:
        place = self.context.record_metadata()
        self.context.forward(Record(kind, str(place and place.offset), now))

    def process(self, record: Record[str, str]) -> None:
        self.tell("record", record.timestamp)


@in_virtual_time
async def test_a_punctuation_has_no_record() -> None:
    """Neither kind has the metadata of the record before."""
    topology = Topology()
    topology.add_source("source", "in", key=serdes.STRING, value=serdes.STRING)
    topology.add_processor("placed", Placed, "source")
    topology.add_sink("sink", "out", "placed", key=serdes.STRING, value=serdes.STRING)
    async with AppHarness(topology, topics={"in": 1, "out": 1}) as harness:
        for time in (5, 24):
            await harness.produce("in", "a", "v", time)
        await harness.caught_up()
        await harness.kit.clock.advance(2)
        found = by_key(await harness.read("out"))
    assert found["record"] == ["0", "1"]
    assert {*found["stream"], *found["wall"]} == {"None"}


# --- progress of processors -----------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_emitted_results_of_closed_windows_are_not_emitted_again(guarantee: str) -> None:
    """The time up to which closed windows were emitted is committed with the positions: neither a restart nor a crash emits them again."""
    builder = StreamsBuilder()
    windows = builder.stream("in", STRINGS).group_by_key().windowed_by(TimeWindows.of_size_and_grace(1000, 0))
    counts = windows.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).count(Materialized("windows", serdes.STRING, serdes.LONG))
    counts.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.window.start}").to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee=guarantee) as harness:
        for round_, time in enumerate((500, 1500, 2500, 3500)):
            await feed(harness, "in", "a", "v", time)
            if round_ % 2:
                await harness.crash()
            else:
                await harness.close()
            await harness.restart()
        assert by_key(await harness.read("out")) == {"a@0": [1], "a@1000": [1], "a@2000": [1]}


# --- topologies -----------------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_pattern_reads_all_topics_that_match() -> None:
    """A source with a pattern reads the topics that match it in full when the app starts."""
    topology = Topology()
    topology.add_source("source", re.compile("in-.*"), key=serdes.STRING, value=serdes.STRING)
    topology.add_sink("sink", "out", "source", key=serdes.STRING, value=serdes.STRING)
    async with AppHarness(topology, topics={"in-a": 1, "in-b": 2, "in-": 1, "not-in-c": 1, "out": 1}) as harness:
        for topic in ("in-a", "in-b", "in-", "not-in-c"):
            await harness.produce(topic, b"k", topic.encode())
        await harness.kit.clock.advance(1)
        await harness.caught_up()
        assert sorted(by_key(await harness.read("out"))["k"]) == ["in-", "in-a", "in-b"]


@in_virtual_time
async def test_repartition_topics_have_the_size_of_their_partner_in_a_join() -> None:
    """A repartitioned stream that is joined with a table has as many partitions as the table's topic."""
    builder = StreamsBuilder()
    table = builder.table("right", Consumed(serdes.STRING, serdes.STRING))
    stream = builder.stream("in", STRINGS).select_key(lambda key, value: value)
    stream.join(table, lambda left, right: f"{left}+{right}", Joined(serdes.STRING, serdes.STRING, serdes.STRING, name="joined")).to(
        "out", STRINGS_OUT
    )
    async with AppHarness(builder.build(), topics={"in": 2, "right": 5, "out": 1}) as harness:
        (name,) = [name for name in await harness.log.describe_topics() if name.endswith("-repartition")]
        assert (await harness.log.describe_topics())[name].partitions == 5
        await harness.produce("right", "k", "r", 0)
        await harness.kit.clock.advance(1)
        await feed(harness, "in", "x", "k", 1)
        assert by_key(await harness.read("out")) == {"k": ["k+r"]}


@in_virtual_time
async def test_repartition_topics_may_follow_each_other() -> None:
    """A repartition topic behind another one has its size, or the one that it was given; results are exact through all of them."""
    builder = StreamsBuilder()
    first = builder.stream("in", STRINGS).repartition(Repartitioned(serdes.STRING, serdes.STRING, name="first", partitions=3))
    second = first.select_key(lambda key, value: value).repartition(Repartitioned(serdes.STRING, serdes.STRING, name="second"))
    counts = second.group_by_key(Grouped(serdes.STRING, serdes.STRING)).count(Materialized("counts", serdes.STRING, serdes.LONG))
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}, processing_guarantee="exactly_once_v2") as harness:
        sizes = {name: topic.partitions for name, topic in (await harness.log.describe_topics()).items()}
        assert sizes["app-first-repartition"] == sizes["app-second-repartition"] == sizes["app-counts-changelog"] == 3
        await feed_all(harness, "in", [TestRecord(f"x{number}", f"k{number % 5}", 0) for number in range(50)])
        assert by_key(await harness.read("out")) == {f"k{number}": list(range(1, 11)) for number in range(5)}


def test_repartition_topics_in_a_circle_need_a_size() -> None:
    """When sizes of repartition topics depend on each other the start fails, and names them."""
    topology = Topology()
    for mine, other in (("one", "two"), ("two", "one")):
        topology.add_internal_topic(f"{mine}-repartition")
        topology.add_source(f"from-{mine}", f"{mine}-repartition", key=serdes.STRING, value=serdes.STRING)
        topology.add_sink(f"to-{other}", f"{other}-repartition", f"from-{mine}", key=serdes.STRING, value=serdes.STRING)
    with pytest.raises(TopologyError, match="one-repartition, two-repartition depend on each other"):
        run_app(lambda _: pytest.fail("it started"), topology)


@in_virtual_time
async def test_records_without_a_time_may_be_left_out() -> None:
    """With an extractor that skips them, records with a negative time are dropped, counted, and committed over."""
    builder = StreamsBuilder()
    builder.stream("in", Consumed(serdes.STRING, serdes.STRING, timestamp_extractor=LogAndSkipOnInvalidTimestamp())).to("out", STRINGS_OUT)
    async with AppHarness(builder.build(), topics={"in": 1, "out": 1}) as harness:
        await feed_all(harness, "in", [TestRecord("a", str(time), time) for time in (3, -1, 4, -1)])
        assert by_key(await harness.read("out")) == {"a": ["3", "4"]}
        assert harness.app.metrics()["dropped-records-total"] == 2


@in_virtual_time
async def test_inputs_with_nothing_but_bad_records_hold_nobody_up() -> None:
    """Of two inputs one may have only records that are left out."""
    builder = StreamsBuilder()
    numbers = Consumed(serdes.STRING, serdes.INTEGER)
    builder.stream("left", numbers).merge(builder.stream("right", numbers)).to("out", Produced(serdes.STRING, serdes.INTEGER))
    async with AppHarness(builder.build(), topics={"left": 1, "right": 1, "out": 1}, deserialization_exception_handler="continue") as harness:
        await harness.produce_all("left", [TestRecord("a", b"bad", 0)] * 3)
        await feed_all(harness, "right", [TestRecord("a", b"bad", 0)] * 3)
        await feed(harness, "right", "a", 5, 1)
        assert by_key(await harness.read("out")) == {"a": [5]}
        assert harness.app.metrics()["dropped-records-total"] == 6


# --- output under pressure ------------------------------------------------------------------------------------------------------


class SlowLog(Connection):
    """A log with writers that take a second for each send."""

    async def producer(self, *, client_id: str, lease: Lease | None = None, topics: Collection[str] = ()) -> Any:
        producer = await super().producer(client_id=client_id, lease=lease, topics=topics)
        send = producer.send

        async def slowly(batches: Any, /) -> Any:
            await asyncio.sleep(1)
            return await send(batches)

        producer.send = slowly  # type: ignore[method-assign]
        return producer


def test_processing_stops_when_too_much_output_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that is slower than processing slows it down: pending output stays below a bound, and all gets through."""
    monkeypatch.setattr("ks_actors.testing._harness.Connection", SlowLog)
    most = 0

    async def test(harness: AppHarness) -> None:
        nonlocal most
        for _ in range(20):
            await harness.produce_all("in", [TestRecord("k", "v", 0)] * 1000)
        while harness.app.metrics()["process-total"] < 20_000:
            await asyncio.sleep(0.1)
            figures = harness.app.metrics()
            most = max(most, int(figures["process-total"] * 50 - figures["produced-records-total"]))
        await harness.caught_up()
        assert len(await harness.read("out")) == 20_000 * 50

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).flat_map_values(lambda value: [value] * 50).to("out", STRINGS_OUT)
    run_app(test, builder.build(), topics={"in": 1, "out": 1})
    assert 100_000 < most < 600_000


@in_virtual_time
async def test_large_records_are_written_before_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly once, too: few records that are too much for the memory are not left waiting for a commit that is far away."""
    monkeypatch.setattr(_collector, "_HIGH", 1 << 20)
    monkeypatch.setattr(_collector, "_LOW", 1 << 19)
    async with AppHarness(
        echo(), topics={"in": 1, "out": 1}, processing_guarantee="exactly_once_v2", commit_interval_ms=60_000, transaction_timeout_ms=600_000
    ) as harness:
        await harness.produce_all("in", [TestRecord("k", "v" * 2_000, 0)] * 4_000)
        while harness.app.metrics()["process-total"] < 4_000:
            await asyncio.sleep(0.1)
        assert harness.app.metrics()["commit-total"] == 0
        await harness.caught_up()
        assert len(await harness.read("out")) == 4_000


# --- the harness's own ----------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_connection_passes_everything_on_until_it_is_cut() -> None:
    """A connection is the log itself, for all its methods; once cut, it answers nothing any more, and its parts can still be closed."""
    async with EmbeddedLog() as log:
        connection = Connection(log)
        await connection.start()
        await connection.create_topics([NewTopic("t", 1), NewTopic("u", 1)])
        await connection.delete_topics(["u"])
        assert list(await connection.describe_topics()) == ["t"]
        producer = await connection.producer(client_id="p")
        transactional = await connection.transactional_producer("x", client_id="p", timeout_ms=1000)
        batch = Batch([b"k"], [b"v"], [5])
        assert await producer.send([Outgoing(P, batch)]) == [1]
        assert await connection.offsets_for_times({P: 5}) == {P: 0}
        await connection.delete_records({P: 1})
        assert await connection.begin_offsets([P]) == {P: 1}
        await transactional.send([Outgoing(P, batch)])
        await transactional.abort()
        membership = await connection.join(
            "g",
            NewMember(client_id="m", topics=["t"], user_data=b"", assignor=lambda members, counts: {}, session_timeout_ms=1, rebalance_timeout_ms=1),
        )
        await membership.event()
        membership.rejoin(b"")
        await membership.event()
        membership.revoked()
        assert await membership.committed([P]) == {}
        fetcher = connection.fetcher(client_id="f", isolation=IsolationLevel.READ_COMMITTED)
        fetcher.assign({P: 1})
        fetcher.seek(P, 1)
        fetcher.pause([P])
        fetcher.resume([P])
        assert fetcher.position(P) == 1
        waiting = asyncio.ensure_future(fetcher.fetch(max_wait_ms=50))
        failing = asyncio.ensure_future(connection.delete_topics(["nowhere"]))
        await asyncio.sleep(0)
        connection.cut()
        fetcher.assign({})
        fetcher.seek(P, 0)
        fetcher.pause([P])
        fetcher.resume([P])
        membership.rejoin(b"")
        membership.revoked()
        for close in (fetcher.close, producer.close, transactional.close, membership.leave, connection.close):
            await close()
        assert len(log._parts) == 4
        asked = asyncio.ensure_future(producer.send([Outgoing(P, batch)]))
        await asyncio.sleep(1)
        assert not asked.done()
        assert not waiting.done()
        for task in (asked, waiting, failing):
            task.cancel()
        await connection.reap()
        assert len(log._parts) == 3


def test_a_disk_that_changes_is_copied_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is made again when a file vanished or changed meanwhile; when that has no end, it says so."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "file").write_text("old")
    real = shutil.copytree
    tries = 0

    def changing(*args: Any, **options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise FileNotFoundError("a compaction was faster")
        result = real(*args, **options)
        if tries == 2:
            (source / "file").write_text("newer")
        return result

    monkeypatch.setattr(shutil, "copytree", changing)
    disk.copy_as_is(source, target)
    assert (target / "file").read_text() == "newer"
    assert tries == 3

    def always(*args: Any, **options: Any) -> Any:
        raise FileNotFoundError("always")

    monkeypatch.setattr(shutil, "copytree", always)
    (source / "gone").symlink_to(tmp_path / "nowhere")
    with pytest.raises(TimeoutError, match="changes faster than it can be copied"):
        disk.copy_as_is(source, target)
