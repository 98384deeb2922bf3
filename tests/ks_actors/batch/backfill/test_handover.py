"""A backfill, its handover, and the stream after it give the same results as a stream over all records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, StreamsConfig, Topology
from ks_actors.batch import Choice, backfill
from ks_actors.log import Log, NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.differential.test_batches import APART, FOREIGN_KEYS
from tests.differential.topologies import REBUILT
from tests.ks_actors.batch import others
from tests.ks_actors.batch.backfill.test_backfill import LINE_TOPICS, LINES, SETTINGS, WITH_CLOCK, cases, records_of, settings_of, words
from tests.ks_actors.batch.histories import Input, Rows, batches_of, changelogs_of, difference, plain, read_committed, rows_of, streamed, topics_of

ALLOW: tuple[Choice, ...] = ("order_after_rekey", "incomplete_snapshot")
# When a punctuator is called next is scheduled anew in every task that begins, as in Kafka Streams.
NOT_HANDED_OVER = {"punctuate_stream"}
# Two tasks write into each other's partitions, with times that they make up, or that are not of the records which made them write: the last of a
# window, not the one that closed it. By those nobody can tell which came first.
TIMES_OF_THEIR_OWN = {"papi_router", "hopping"}
OTHERS = "others"
HANDED_OVER = [*(name for name in REBUILT if name not in WITH_CLOCK | NOT_HANDED_OVER | FOREIGN_KEYS), OTHERS]


def in_two_parts(
    topology: Topology,
    settings: Mapping[str, Any],
    topics: Mapping[str, int],
    history: list[Input],
    tail: list[Input],
    directory: Path,
    *,
    one_by_one: bool = False,
) -> tuple[dict[TopicPartition, Rows], dict[tuple[str, int], dict[bytes, Any]]]:
    """Do so on a log in memory: see `handed_over`."""

    async def main() -> Any:
        async with EmbeddedLog() as log:
            return await handed_over(log, topology, settings, topics, history, tail, directory, one_by_one=one_by_one)

    return asyncio.run(main())  # type: ignore[no-any-return]  # as it says


async def handed_over(
    log: Log,
    topology: Topology,
    settings: Mapping[str, Any],
    topics: Mapping[str, int],
    history: list[Input],
    tail: list[Input],
    directory: Path,
    *,
    one_by_one: bool,
    prefix: str = "",
) -> tuple[dict[TopicPartition, Rows], dict[tuple[str, int], dict[bytes, Any]]]:
    """Return the output of a backfill of the history and of an app that goes on with the tail, and the final rows of the changelogs.

    In the log, and in the topology, the topics' names have the prefix.
    """
    producer = await log.producer(client_id="test")
    await log.create_topics([NewTopic(prefix + name, count) for name, count in topics.items()])
    await producer.send(batches_of(topics, history, prefix))
    config = StreamsConfig.of({**settings, "snapshot_uri": str(directory / "snapshots"), "state_dir": directory / "state"})
    with await backfill(topology, config, log=log, snapshot_uri=config.snapshot_uri, allow=ALLOW) as done:
        written = {TopicPartition(where.topic.removeprefix(prefix), where.partition): rows_of(done.read(where)) for where in done.partitions}
        assert done.snapshot is not None
    if not one_by_one:
        await producer.send(batches_of(topics, tail, prefix))
    app = App(topology, config, log=log)
    await app.seed(str(directory / "snapshots"))
    async with app:
        await app.wait_until_caught_up()
        for record in tail if one_by_one else ():
            await producer.send(batches_of(topics, [record], prefix))
            await app.wait_until_caught_up()
    await producer.close()
    for name in topics.keys() - {one[0] for one in (*history, *tail)}:
        for number in range(topics[name]):
            if rows := rows_of(await read_committed(log, TopicPartition(prefix + name, number))):
                written.setdefault(TopicPartition(name, number), []).extend(rows)
    return written, plain(topology, await changelogs_of(log, config.application_id))


@pytest.mark.parametrize("name", [name for name in REBUILT if name not in WITH_CLOCK | APART | NOT_HANDED_OVER])
def test_backfill_and_live_tail_are_a_stream_over_all_records(name: str, tmp_path: Path) -> None:
    """Record for record in the output, key for key in the stores."""
    for number, case in enumerate(cases(name)[:2]):
        topology: Topology = REBUILT[name].build(case["params"])
        records = sorted(records_of(case), key=lambda record: record[3])
        topics = topics_of(topology, REBUILT[name].outputs, 1, records)
        written, stores = streamed(topology, settings_of(case), topics, records)
        # Of records of the same time a stream takes those of one partition first, whichever comes first: they are not taken apart.
        middle = next((at for at in range(len(records) // 2, len(records)) if records[at - 1][3] < records[at][3]), len(records))
        whole = [record for record in records[middle:] if record[0] in topology.global_topics]
        rest = [record for record in records[middle:] if record[0] not in topology.global_topics]
        got, left = in_two_parts(topology, settings_of(case), topics, records[:middle] + whole, rest, tmp_path / str(number))
        assert got == written, case["id"]
        assert difference(topology, stores, left, max(record[3] for record in records), live=True) == [], case["id"]


@pytest.mark.parametrize("name", HANDED_OVER)
def test_so_they_are_with_several_partitions_and_behind_repartition_topics(name: str, tmp_path: Path) -> None:
    """Record for record and key for key: the order of times, which history takes, is that of a stream in which records come by their times."""
    whole = Whole(name)
    got, left = in_two_parts(whole.topology, whole.settings, whole.topics, whole.history, whole.tail, tmp_path, one_by_one=True)
    whole.check(got, left)


class Whole:
    """A random case with two partitions, in two parts, the second with records that come one by one, and the results of a stream over all of it.

    By the name `OTHERS` it is a case that is not random, of what random ones do not have.
    """

    def __init__(self, name: str, live: int = 15, **settings: Any) -> None:
        self.name = name
        if name == OTHERS:
            self.topology, outputs, found = others.build(), others.OUTPUTS, others.SETTINGS
            self.records = others.RECORDS
        else:
            case = cases(name)[0]
            self.topology, outputs, found = REBUILT[name].build(case["params"]), REBUILT[name].outputs, settings_of(case)
            self.records = at_different_times(records_of(case))
        self.settings = {**found, **settings}
        self.topics = topics_of(self.topology, outputs, 2, self.records)
        middle = max(len(self.records) // 2, len(self.records) - live)
        tables = [record for record in self.records[middle:] if record[0] in self.topology.global_topics]
        self.history = self.records[:middle] + tables
        self.tail = [record for record in self.records[middle:] if record not in tables]

    def check(self, written: dict[TopicPartition, Rows], stores: dict[tuple[str, int], dict[bytes, Any]], prefix: str = "") -> None:
        """Compare with the stream; the prefix is before the names of topics."""
        expected, kept = streamed(self.topology, self.settings, self.topics, self.records, one_by_one=True)
        if self.name in TIMES_OF_THEIR_OWN:
            assert by_key(written) == by_key(expected)
        else:
            assert written == expected
        assert difference(self.topology, kept, stores, self.records[-1][3], live=True, prefix=prefix) == []


def by_key(written: Mapping[TopicPartition, Rows]) -> dict[tuple[TopicPartition, bytes | None], Rows]:
    found: dict[tuple[TopicPartition, bytes | None], Rows] = {}
    for where, rows in written.items():
        for row in rows:
            found.setdefault((where, row[0]), []).append(row)
    return found


def at_different_times(records: list[Input]) -> list[Input]:
    """Return records by their times, of which no two have the same."""
    found: list[Input] = []
    for topic, key, value, time in sorted(records, key=lambda record: record[3]):
        found.append((topic, key, value, max(time, found[-1][3] + 1) if found else time))
    return found


def test_partitions_and_a_rekey_are_handed_over(tmp_path: Path) -> None:
    """Each task goes on where its history ends, also behind a repartition topic."""
    written, stores = streamed(words(), SETTINGS, LINE_TOPICS, LINES)
    got, left = in_two_parts(words(), SETTINGS, LINE_TOPICS, LINES[:150], LINES[150:], tmp_path)
    assert {where: rows for where, rows in got.items() if where.topic == "loud"} == {
        where: rows for where, rows in written.items() if where.topic == "loud"
    }
    assert sum(map(len, got.values())) == sum(map(len, written.values()))
    values = {place: {key: value for key, (value, _) in rows.items()} for place, rows in stores.items()}
    assert {place: {key: value for key, (value, _) in rows.items()} for place, rows in left.items()} == values
