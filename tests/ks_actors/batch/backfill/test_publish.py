"""The output of a backfill gets into its topics once, however often it is published."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors import App, Batch, BatchError, LogTimeout, NotRunning, PublishRefused, Record, StreamsConfig, Topology, UnknownTopicOrPartition, serdes
from ks_actors.batch import Backfill, backfill, publish_backfill
from ks_actors.batch.backfill import _publish, _task_run
from ks_actors.batch.spark._session import SparkSession
from ks_actors.dsl import Materialized, Produced, StreamsBuilder
from ks_actors.log import Log, NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.batch.backfill.publisher import TEXT, loud
from tests.ks_actors.batch.backfill.test_backfill import LINE_TOPICS, LINES, SETTINGS, words
from tests.ks_actors.batch.conftest import SETTINGS as SPARK
from tests.ks_actors.batch.histories import Rows, fill, read_all, rows_of, streamed

CONFIG = StreamsConfig.of({**SETTINGS})
LOUD = TopicPartition("loud", 0)


async def filled(log: Log) -> None:
    await log.create_topics([NewTopic(name, count) for name, count in LINE_TOPICS.items()])
    await fill(log, LINE_TOPICS, LINES)


async def written(log: Log) -> dict[TopicPartition, Rows]:
    return {
        TopicPartition(topic, number): rows_of(batches)
        for topic in ("counts", "loud")
        for number, batches in (await read_all(log, topic, LINE_TOPICS[topic])).items()
    }


def of(done: Backfill) -> dict[TopicPartition, Rows]:
    return {where: rows_of(done.read(where)) for where in done.partitions}


async def test_topics_get_the_output_once() -> None:
    """Record for record, in order and without marks; a second run finds that all is there."""
    async with EmbeddedLog() as log:
        await filled(log)
        with await backfill(words(), CONFIG, log=log) as done:
            counts = await publish_backfill(done, CONFIG, log=log)
            assert counts == {topic: sum(len(rows) for where, rows in of(done).items() if where.topic == topic) for topic in ("counts", "loud")}
            assert await written(log) == of(done)
        with await backfill(words(), CONFIG, log=log) as again:
            assert await publish_backfill(again, CONFIG, log=log) == {"counts": 0, "loud": 0}
            assert await written(log) == of(again)
            assert sum((await publish_backfill(again, CONFIG, log=log, job="another")).values()) == sum(counts.values())


async def test_history_and_the_live_rest_are_in_the_topic_as_of_a_stream(tmp_path: Path) -> None:
    """Published, handed over and continued: the topic has the same records as from a stream over everything."""
    async with EmbeddedLog() as log:
        await filled(log)
        config = CONFIG.replace(state_dir=tmp_path / "state", snapshot_uri=str(tmp_path / "snapshots"))
        app = App(words(), config, log=log)
        with await app.backfill(until=150) as done:
            await app.publish_backfill(done)
        await app.seed(str(tmp_path / "snapshots"))
        async with app:
            await app.wait_until_caught_up()
            with pytest.raises(NotRunning, match="before the start"):
                await app.publish_backfill(done)
        found = await written(log)
    expected, _ = await asyncio.to_thread(streamed, words(), SETTINGS, LINE_TOPICS, LINES)
    loud_ones = {where: rows for where, rows in expected.items() if where.topic == "loud"}
    assert {where: rows for where, rows in found.items() if where.topic == "loud"} == loud_ones
    assert {where: len(rows) for where, rows in found.items()} == {where: len(rows) for where, rows in expected.items()}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("operation", ["send", "commit"])
async def test_a_run_that_has_failed_half_way_is_gone_on_with(operation: str, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any failing call, before or after its effect: the next run writes the missing records, and none twice."""
    monkeypatch.setattr(_publish, "_AT_ONCE", 7)
    monkeypatch.setattr(_publish, "_SLICE", 7)
    async with EmbeddedLog() as log:
        await filled(log)
        with await backfill(words(), CONFIG, log=log) as done:
            failures = 0
            transactions = 0

            def failing(_: TopicPartition, __: int) -> None:
                nonlocal transactions
                transactions += 1
                if transactions % 17 == 0:
                    log.inject(operation, LogTimeout("for a test"), after=after)  # type: ignore[arg-type]

            while True:
                try:
                    await publish_backfill(done, CONFIG, log=log, progress=failing)
                    break
                except LogTimeout:
                    failures += 1
            assert failures > 5
            assert await written(log) == of(done)


async def test_a_killed_process_doubles_nothing(tmp_path: Path) -> None:
    """Killed again and again between any two of its writes, until a run comes through."""
    records = [("quiet", str(number).encode(), f"v{number}".encode(), number) for number in range(20_000)]
    async with EmbeddedLog(tmp_path / "log") as log:
        await log.create_topics([NewTopic("quiet", 3), NewTopic("loud", 3)])
        await fill(log, {"quiet": 3}, records)
    await killed_until_done(f"embedded://{tmp_path / 'log'}", "app", "quiet", "loud", 20_000)
    async with EmbeddedLog(tmp_path / "log") as log:
        found = await read_all(log, "loud", 3)
    assert sorted(row[2] for batches in found.values() for row in rows_of(batches)) == list(range(20_000))


async def killed_until_done(log: str, application_id: str, source: str, sink: str, records: int) -> None:
    """Run the publisher, kill it three times, and let it come through."""
    dice = random.Random(records)
    for kill in (True, True, True, False):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.ks_actors.batch.backfill.publisher", log, application_id, source, sink, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        if kill:
            for _ in range(dice.randrange(1, 40)):
                assert await process.stdout.readline()
            process.kill()
            await process.stdout.read()
            assert await process.wait() == -signal.SIGKILL
        else:
            told = (await process.stdout.read()).decode().splitlines()
            assert await process.wait() == 0
            assert 0 < int(told[-1].removeprefix("new ")) < records


def of_nobody(count: int) -> Batch:
    return Batch([None] * count, [f"v{number}".encode() for number in range(count)], list(range(count)))


async def test_records_without_keys_go_to_the_same_partitions_as_before(session: SparkSession, tmp_path: Path) -> None:
    """A run on one engine continues a run of the other, also by Spark, where records come in other batches."""
    assert session.is_open
    topics = {"quiet": 2, "loud": 3}
    async with EmbeddedLog(tmp_path / "log") as log:
        await log.create_topics([NewTopic(name, count) for name, count in topics.items()])
        producer = await log.producer(client_id="test")
        for number in range(2):
            await producer.send([Outgoing(TopicPartition("quiet", number), of_nobody(2_500))])
        topology: Topology = loud("quiet", "loud")
        with await backfill(topology, CONFIG, log=log, engine="spark", spark=SPARK, directory=tmp_path) as done:
            assert await publish_backfill(done, CONFIG, log=log) == {"loud": 5_000}
        with await backfill(topology, CONFIG, log=log) as again:
            assert await publish_backfill(again, CONFIG, log=log) == {"loud": 0}
            assert [sum(1 for _ in rows_of(again.read(TopicPartition("loud", number)))) for number in range(3)] == [1_668, 1_666, 1_666]


async def test_other_records_are_refused() -> None:
    """Of other ranges or another topology; nothing is written then."""
    async with EmbeddedLog() as log:
        await filled(log)
        with await backfill(words(), CONFIG, log=log, until=200) as done:
            await publish_backfill(done, CONFIG, log=log)
        before = await written(log)
        for topology, until in ((words(), None), (words(), 100), (loud("lines", "counts"), 200)):
            with await backfill(topology, CONFIG, log=log, until=until) as other, pytest.raises(PublishRefused, match="Nothing was written"):
                await publish_backfill(other, CONFIG, log=log)
        assert await written(log) == before


async def test_more_records_than_a_finished_job_had_are_refused_with_advice_for_that() -> None:
    """The topic has grown: another job would write everything twice, so the error asks for the ends of the run before."""
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("lines", 1), NewTopic("loud", 1)])
        await fill(log, {"lines": 1}, LINES[:5])
        with await backfill(loud("lines", "loud"), CONFIG, log=log) as done:
            await publish_backfill(done, CONFIG, log=log)
        await fill(log, {"lines": 1}, LINES[5:7])
        with await backfill(loud("lines", "loud"), CONFIG, log=log) as done:
            with pytest.raises(PublishRefused, match=r"loud-0 has all 5 records .* gives further records .* Give `until`") as refused:
                await publish_backfill(done, CONFIG, log=log)
            assert "another job" not in str(refused.value)
        with await backfill(loud("lines", "loud"), CONFIG, log=log, until={"lines": {0: 5}}) as done:
            assert await publish_backfill(done, CONFIG, log=log) == {"loud": 0}


async def test_a_closed_backfill_is_refused() -> None:
    """Its output is deleted."""
    async with EmbeddedLog() as log:
        await filled(log)
        done = await backfill(words(), CONFIG, log=log)
        where = done.partitions[0]
        done.close()
        with pytest.raises(BatchError, match="this backfill is closed, and its output is deleted: use it within its `with` block"):
            await publish_backfill(done, CONFIG, log=log)
        with pytest.raises(BatchError, match="is closed"):
            done.read(where)
        assert done.records > 0


async def test_a_topic_that_was_deleted_is_no_topic_that_has_it_all() -> None:
    """Published records are gone: the error says so, and another job writes them again."""
    async with EmbeddedLog() as log:
        await filled(log)
        with await backfill(words(), CONFIG, log=log) as done:
            await publish_backfill(done, CONFIG, log=log)
            await log.delete_topics(["loud"])
            with pytest.raises(UnknownTopicOrPartition, match="the topics loud to publish to do not exist"):
                await publish_backfill(done, CONFIG, log=log)
            await log.create_topics([NewTopic("loud", 3)])
            with pytest.raises(PublishRefused, match="the topic was deleted meanwhile"):
                await publish_backfill(done, CONFIG, log=log)
            assert (await publish_backfill(done, CONFIG, log=log, job="once-more"))["loud"] == 400


async def begun(log: Log, topic: str) -> None:
    """Begin a transaction that nobody ends, as a job that is killed does."""
    producer = await log.transactional_producer("app-other-publish", client_id="test", timeout_ms=60_000)
    name, marker = _publish._Name("other", "loud", 0), _publish.Marker(1, 2, 3, whole=False)
    await producer.send([Outgoing(TopicPartition(topic, 0), Batch([msgspec.json.encode(name)], [msgspec.json.encode(marker)], [0]))])


async def published_behind(log: Log, done: Backfill, monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish, when a transaction of another job was begun in the topic of the markers after this one has read its own."""
    check = _publish._Publisher._check

    async def checked(self: _publish._Publisher, known: dict[TopicPartition, _publish.Marker], partitions: Iterable[TopicPartition]) -> None:
        await check(self, known, partitions)
        await begun(log, "app-backfill-markers")

    with monkeypatch.context() as patch:
        patch.setattr(_publish._Publisher, "_check", checked)
        await publish_backfill(done, CONFIG, log=log)


async def test_markers_behind_an_open_transaction_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another job's, which was killed between its marker and its commit: nothing is written before it is decided about."""
    async with EmbeddedLog() as log:
        await filled(log)
        with await backfill(words(), CONFIG, log=log) as done:
            await published_behind(log, done, monkeypatch)
            reads, make = asyncio.Event(), log.fetcher

            def fetcher(**options: Any) -> Any:
                reads.set()
                return make(**options)

            monkeypatch.setattr(log, "fetcher", fetcher)
            again = asyncio.create_task(publish_backfill(done, CONFIG, log=log))
            await reads.wait()
            # What the other job's next run does first, or the log when the transaction has been open for too long.
            await log.transactional_producer("app-other-publish", client_id="test", timeout_ms=60_000)
            assert await again == {"counts": 0, "loud": 0}
            monkeypatch.undo()
            assert await written(log) == of(done)


async def test_an_open_transaction_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that stays open longer than the log allows is reported, with its place."""
    monkeypatch.setattr(_publish, "_MARGIN_MS", -59_950)
    async with EmbeddedLog() as log:
        await filled(log)
        with await backfill(words(), CONFIG, log=log) as done:
            await published_behind(log, done, monkeypatch)
            with pytest.raises(LogTimeout, match=r"a transaction is open in app-backfill-markers-0 at offset 0, of \d+. Nothing was written"):
                await publish_backfill(done, CONFIG, log=log)


async def test_somebody_elses_open_transaction_in_a_topic_is_no_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records committed behind it are there, though no reader can see them yet."""
    async with EmbeddedLog() as log:
        await filled(log)
        await begun(log, "loud")
        with await backfill(words(), CONFIG, log=log) as done:
            assert (await publish_backfill(done, CONFIG, log=log))["loud"] == 400
            assert await publish_backfill(done, CONFIG, log=log) == {"counts": 0, "loud": 0}


def taking_its_time(seed: int) -> Topology:
    """A count, functions that take long or not, in each order there is, lots, and a topic that two branches write to."""
    dice = random.Random(seed)
    builder = StreamsBuilder()

    async def a_while() -> None:
        for _ in range(dice.randrange(30)):
            await asyncio.sleep(0)

    async def slow(value: str) -> str:
        await a_while()
        return f"{value} slow"

    async def lot(records: list[Record[str, str]]) -> list[Record[str, str]]:
        await a_while()
        return [record.with_value(f"{record.value} of {len(records)}") for record in records]

    def to(stream: Any, topic: str) -> None:
        stream.to(topic, Produced(serdes.STRING, serdes.STRING))

    lines = builder.stream("lines", TEXT)
    to(lines.map_values(slow, max_in_flight=7), "loud")
    to(lines.flat_map_values(str.split).map_values(slow, order="none", max_in_flight=5), "loud")
    to(lines.map_values(slow, order="none").batch(lot, max_records=9, max_wait_ms=1), "loud")
    counts = lines.group_by_key().count(Materialized("counts", serdes.STRING, serdes.LONG))
    to(counts.to_stream().map_values(str), "counts")
    return builder.build()


async def test_other_durations_give_the_same_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the order in which asynchronous functions end, nor the times of commits make a difference; nor do caches, as there are none."""
    config = CONFIG.replace(statestore_cache_max_bytes=1_000)
    found: list[dict[TopicPartition, Rows]] = []
    async with EmbeddedLog() as log:
        await filled(log)
        for seed, (seconds, records) in enumerate([(0.2, 50_000), (0.0, 10), (0.001, 70)]):
            monkeypatch.setattr(_task_run, "_SLICE_SECONDS", seconds)
            monkeypatch.setattr(_task_run, "_COMMIT_RECORDS", records)
            with await backfill(taking_its_time(seed), config, log=log) as done:
                new = await publish_backfill(done, config, log=log)
                assert (sum(new.values()) == 0) == (seed > 0)
                found.append(of(done))
    assert found[0] == found[1] == found[2]
    values = [row[1] for where, rows in found[0].items() if where.topic == "loud" for row in rows]
    assert len(values) == 400 * 7
    # Three partitions, each with full lots and what is left at the end.
    assert sum(value.endswith(b" of 9") for value in values) >= 400 - 3 * 8
