"""A backfill gives the same results as a stream."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest
from pyarrow import parquet

from ks_actors import App, BackfillRefused, ConfigError, MissingSourceTopics, OffsetOutOfRange, ProcessingFailed, TopologyError, partition_of, serdes
from ks_actors.batch import Backfill, BackfillProgress, SparkSettings, _reading, backfill
from ks_actors.batch.backfill import _task_run
from ks_actors.config import StreamsConfig
from ks_actors.dsl import Consumed, Grouped, JoinWindows, Materialized, Produced, StreamsBuilder
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka import KafkaLog
from ks_actors.processors import Processor, ProcessorContext, PunctuationType, Record
from ks_actors.topology import Topology
from tests.differential.cases import SEED_1, Case, config_of, read_cases
from tests.differential.generate import SPECS
from tests.differential.test_batches import APART, FOREIGN_KEYS
from tests.differential.topologies import REBUILT, reason_out_of_reach
from tests.ks_actors.batch.histories import Input, Rows, difference, fill, filled_back, rows_of, streamed, topics_of
from tests.waiting import PATIENCE_S

WITH_CLOCK = {name for name, spec in SPECS.items() if spec.wall}
# Every name has cases of its own, three in 24.
PART = {name: slice(number % 8, None, 8) for number, name in enumerate(REBUILT)}
TEXT = Consumed(serdes.STRING, serdes.STRING)
SETTINGS = {"application_id": "app", "default_key_serde": serdes.STRING, "default_value_serde": serdes.STRING}


def cases(name: str) -> list[Case]:
    return [case for case in read_cases(SEED_1, name)[PART[name]] if reason_out_of_reach(name, case["params"]) is None][:3]


def records_of(case: Case) -> list[Input]:
    def encoded(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return [(step["topic"], encoded(step["key"]), encoded(step["value"]), step["timestamp"]) for step in case["steps"] if "topic" in step]


def settings_of(case: Case) -> dict[str, Any]:
    # A backfill has no caches: what they hand on depends on when a commit comes.
    return {**config_of(case), "commit_interval_ms": 1_000_000, "statestore_cache_max_bytes": 0}


@pytest.mark.parametrize("name", [name for name in REBUILT if name not in WITH_CLOCK | APART])
def test_random_topologies_are_as_in_a_stream_record_for_record_and_key_for_key(name: str, tmp_path: Path) -> None:
    """Of topics with one partition: the output is the same, in the same order, and so are the stores."""
    for number, case in enumerate(cases(name)):
        topology: Topology = REBUILT[name].build(case["params"])
        records = records_of(case)
        topics = topics_of(topology, REBUILT[name].outputs, 1, records)
        written, stores = streamed(topology, settings_of(case), topics, records)
        allow = ("order_after_rekey", "incomplete_snapshot")
        got, snapshot = filled_back(topology, settings_of(case), topics, records, tmp_path / str(number), allow=allow)
        assert got == written, case["id"]
        assert difference(topology, stores, snapshot, max(record[3] for record in records)) == [], case["id"]


@pytest.mark.parametrize("name", sorted(FOREIGN_KEYS))
def test_joins_by_a_foreign_key_are_refused(name: str, tmp_path: Path) -> None:
    """Their tables answer each other: neither can be done before the other."""
    case = cases(name)[0]
    topology: Topology = REBUILT[name].build(case["params"])
    records = records_of(case)
    topics = topics_of(topology, REBUILT[name].outputs, 1, records)
    with pytest.raises(
        BackfillRefused, match=r"subtopologies 0, 1.* write repartition topics that lead back to them, as the two tables of a foreign-key"
    ):
        filled_back(topology, settings_of(case), topics, records, tmp_path, allow=("order_after_rekey", "incomplete_snapshot"))


def test_a_join_of_a_table_with_itself_by_a_foreign_key_is_refused(tmp_path: Path) -> None:
    """One subtopology writes and reads the topics."""
    builder = StreamsBuilder()
    staff = builder.table("staff", TEXT)
    staff.join(staff, lambda one, boss: f"{one}+{boss}", foreign_key=lambda value: value).to_stream().to(
        "out", Produced(serdes.STRING, serdes.STRING)
    )
    with pytest.raises(BackfillRefused, match="subtopologies 0 write repartition topics that lead back"):
        filled_back(builder.build(), SETTINGS, {"staff": 1, "out": 1}, [("staff", b"k", b"v", 1)], tmp_path)


@pytest.mark.parametrize("name", sorted(APART - FOREIGN_KEYS))
def test_races_of_a_stream_are_refused(name: str, tmp_path: Path) -> None:
    """Two repartition topics that meet in a join: which gets ahead of the other is nobody's promise."""
    case = cases(name)[0]
    topology: Topology = REBUILT[name].build(case["params"])
    records = records_of(case)
    topics = topics_of(topology, REBUILT[name].outputs, 1, records)
    with pytest.raises(BackfillRefused, match="Allow 'order_after_rekey'"):
        filled_back(topology, settings_of(case), topics, records, tmp_path)
    assert filled_back(topology, settings_of(case), topics, records, tmp_path, allow=("order_after_rekey",))


def words() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", TEXT)
    counts = (
        lines.flat_map_values(str.split)
        .group_by(lambda _, word: word, Grouped(serdes.STRING, serdes.STRING, "word"))
        .count(Materialized("counts", serdes.STRING, serdes.LONG))
    )
    counts.to_stream().to("counts", Produced(serdes.STRING, serdes.LONG))
    lines.map_values(str.upper).to("loud", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


LINES: list[Input] = [("lines", f"k{number % 7}".encode(), f"the cat {number % 3} sat {number % 11}".encode(), number) for number in range(400)]
LINE_TOPICS = {"lines": 3, "counts": 2, "loud": 3}


def test_partitions_and_a_rekey_that_counts(tmp_path: Path) -> None:
    """Each partition is a task; after the rekey records are in the same places as in the stream, and the counts are the same, in any order."""
    written, stores = streamed(words(), SETTINGS, LINE_TOPICS, LINES)
    got, snapshot = filled_back(words(), SETTINGS, LINE_TOPICS, LINES, tmp_path)
    loud, counted = ({where: rows for where, rows in written.items() if where.topic == topic} for topic in ("loud", "counts"))
    assert {where: rows for where, rows in got.items() if where.topic == "loud"} == loud
    for where, rows in counted.items():
        assert sorted(row[:2] for row in got[where]) == sorted(row[:2] for row in rows)
    values = {place: {key: value for key, (value, _) in rows.items()} for place, rows in stores.items()}
    assert {place: {key: value for key, (value, _) in rows.items()} for place, rows in snapshot.items()} == values


def ran(
    topology: Topology, topics: Mapping[str, int], records: list[Input], handling: Mapping[str, Any] | None = None, **options: Any
) -> tuple[Backfill, dict[TopicPartition, Rows]]:
    async def main() -> Any:
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic(name, count) for name, count in topics.items()])
            await fill(log, topics, records)
            with await backfill(topology, StreamsConfig.of({**SETTINGS, **(handling or {})}), log=log, **options) as done:
                return done, {where: rows_of(done.read(where)) for where in done.partitions}

    return asyncio.run(main())  # type: ignore[no-any-return]  # as it says


def doubled() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(lambda value: value * 2).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def copied() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def test_ranges_are_exact(tmp_path: Path) -> None:
    """By offset, and by time; positions are where the ranges end, also of partitions with nothing in them."""
    records: list[Input] = [("in", str(number).encode(), str(number).encode(), 10 * number) for number in range(20)]
    done, written = ran(doubled(), {"in": 2, "out": 2}, records, until={"in": {1: 4}}, directory=tmp_path)
    assert (done.positions[TopicPartition("in", 1)], len(written[TopicPartition("out", 1)])) == (4, 4)
    assert done.positions[TopicPartition("in", 0)] == len(written[TopicPartition("out", 0)]) > 4
    told: list[BackfillProgress] = []
    done, written = ran(doubled(), {"in": 1, "out": 1, "none": 1}, records, until=45, progress=told.append, directory=tmp_path)
    assert [row[1] for row in written[TopicPartition("out", 0)]] == [b"00", b"11", b"22", b"33", b"44"]
    assert (done.positions, done.records, done.snapshot) == ({TopicPartition("in", 0): 5}, 5, None)
    assert told[-1] == BackfillProgress(1, 1, 5, 5)
    assert list(tmp_path.iterdir()) == []


def test_output_goes_to_parquet(tmp_path: Path) -> None:
    """A directory per topic, a file per partition, all records in order."""
    records: list[Input] = [("in", str(number).encode(), None if number == 3 else str(number).encode(), 10 * number) for number in range(20)]

    async def main() -> dict[str, int]:
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
            await fill(log, {"in": 2}, records)
            with await backfill(copied(), StreamsConfig.of(SETTINGS), log=log) as done:
                return done.to_parquet(tmp_path)

    assert asyncio.run(main()) == {"out": 20}
    found = [parquet.read_table(tmp_path / "out" / f"{number}.parquet").to_pylist() for number in range(2)]
    assert sorted(int(row["key"]) for rows in found for row in rows) == list(range(20))
    assert [row["value"] for rows in found for row in rows if row["key"] == b"3"] == [None]
    assert [row["offset"] for row in found[0]] == list(range(len(found[0])))


async def test_no_parquet_file_of_an_earlier_run_stays_beside_the_new_ones(tmp_path: Path) -> None:
    """A reader of the directory of a topic gets only the output of the last run, also where that has none; files with other names stay."""
    records: list[Input] = [("in", str(number).encode(), b"v", number) for number in range(20)]
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 2), NewTopic("out", 2)])
        await fill(log, {"in": 2}, records)
        for until, files in ((None, {"0", "1"}), ({"in": {1: 0}}, {"0"}), ({"in": {0: 0, 1: 0}}, set[str]())):
            with await backfill(copied(), StreamsConfig.of(SETTINGS), log=log, until=until) as done:
                counts = done.to_parquet(tmp_path)
            assert {file.stem for file in (tmp_path / "out").iterdir()} == files | {"mine"} if until else files
            assert set(counts) == ({"out"} if files else set())
            (tmp_path / "out" / "mine.parquet").touch()


@pytest.mark.parametrize(
    "until",
    [
        5000.0,
        True,
        "2020-01-01",
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        {TopicPartition("in", 0): 1},
        {"in": 1},
        -1,
        {"in": {0: "5"}},
        {"in": {True: 5}},
        {"in": {0: -5}},
    ],
)
def test_ends_of_other_types_are_refused_by_name(until: Any) -> None:
    """With what to give instead; none is taken for something else."""
    with pytest.raises(ConfigError, match=r"^until: is .*give "):
        ran(doubled(), {"in": 1, "out": 1}, [], until=until)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "sparc"}, "engine: is 'sparc': give 'local' or 'spark'"),
        ({"engine": None}, "engine: is None: give 'local' or 'spark'"),
        ({"spark": SparkSettings()}, "spark: has no effect with engine='local': give engine='spark', too"),
        ({"engine": "spark", "spark": "local[2]"}, r"spark: is 'local\[2\]': give SparkSettings, or the ref of a running BatchBridge"),
        ({"progress": True}, "progress: is True: give a function of a BackfillProgress"),
        ({"until": "soon"}, "until: is 'soon'"),
        ({"engine": "spark", "log": KafkaLog("a:9092")}, r"log: is <KafkaLog at a:9092, .*: give StreamsConfig\(bootstrap_servers='a:9092'\)"),
    ],
)
def test_arguments_that_are_wrong_or_without_effect_are_refused_at_once(options: dict[str, Any], said: str) -> None:
    """By name, before the log is opened."""
    with pytest.raises(ConfigError, match=f"^{said}"):
        asyncio.run(backfill(doubled(), StreamsConfig(application_id="app", log="embedded:///proc/none"), **options))


def test_a_service_that_is_none_is_refused_by_an_app_and_a_backfill() -> None:
    """When it is given, and not when it is entered."""
    with pytest.raises(TopologyError, match=r"a service of App is <class .*Client'>, which `async with` does not take: give an object of it"):
        App(doubled(), StreamsConfig(application_id="app"), services=[Client])  # type: ignore[list-item]
    with pytest.raises(TopologyError, match="a service of backfill is 5, which `async with` does not take"):
        ran(doubled(), {"in": 1, "out": 1}, [], services=[5])


@pytest.mark.parametrize(
    ("until", "said"),
    [
        ({"inn": {0: 1}}, "until: the topology reads no topic 'inn'; it reads in"),
        ({"in": {9: 1}}, "until: in has no partition 9; it has 1, counted from 0"),
    ],
)
def test_ends_of_partitions_that_are_not_read_are_refused(until: dict[str, dict[int, int]], said: str) -> None:
    """Everything would be read instead, by a slip of the pen."""
    with pytest.raises(ConfigError, match=said):
        ran(doubled(), {"in": 1, "out": 1}, [], until=until)


def test_offsets_that_are_not_there_are_refused() -> None:
    """Nothing is guessed: a range has exactly its bounds."""
    with pytest.raises(OffsetOutOfRange, match="in-0 has offsets 0 to 0, position 7 is outside"):
        ran(doubled(), {"in": 1, "out": 1}, [], until={"in": {0: 7}})
    with pytest.raises(MissingSourceTopics):
        ran(doubled(), {"out": 1}, [])


def test_a_failure_names_its_record_and_leaves_nothing(tmp_path: Path) -> None:
    """As in a stream: with task, topic, partition and offset; no snapshot is left of it, and no file."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(int).group_by_key(Grouped(serdes.STRING, serdes.LONG)).count().to_stream().to(
        "out", Produced(serdes.STRING, serdes.LONG)
    )
    records: list[Input] = [("in", b"k", b"1", 0), ("in", b"k", b"no number", 1)]
    uri, directory = tmp_path / "snapshots", tmp_path / "work"
    directory.mkdir()
    with pytest.raises(ProcessingFailed) as failed:
        ran(builder.build(), {"in": 1, "out": 1}, records, snapshot_uri=str(uri), directory=directory)
    assert (failed.value.topic, failed.value.partition, failed.value.offset) == ("in", 0, 1)
    assert list(directory.iterdir()) == []
    assert [path for path in uri.rglob("*") if path.is_file()] == []


class Clocked(Processor[Any, Any, Any, Any]):
    """A processor that is called by the wall clock."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        self._context = context
        context.schedule(1_000, PunctuationType.WALL_CLOCK_TIME, lambda _: None)

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record)


def clocked() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(Clocked).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def rekeyed() -> Topology:
    builder = StreamsBuilder()
    longest = builder.stream("in", TEXT).group_by(lambda _, value: value[:1], Grouped(serdes.STRING, serdes.STRING)).reduce(lambda _, new: new)
    longest.to_stream().to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


def read_back() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).to("out", Produced(serdes.STRING, serdes.STRING))
    builder.stream("out", TEXT).to("more", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


@pytest.mark.parametrize(
    ("make", "choice", "said"),
    [
        (clocked, "wall_clock", "has a wall-clock punctuator, and a backfill has no wall clock"),
        (rekeyed, "order_after_rekey", "KSTREAM-REDUCE-0000000003 has state that may depend on the order"),
        (read_back, "topics_read_back", "topic out is written and read by this topology"),
    ],
)
def test_unavoidable_differences_are_refused_by_name_or_allowed(make: Any, choice: str, said: str) -> None:
    """Before a record is processed; an allowed difference is kept as small as possible."""
    topics = {"in": 2, "out": 2, "more": 2}
    records: list[Input] = [("in", f"{number}".encode(), b"value", number) for number in range(20)]
    with pytest.raises(BackfillRefused, match=said) as refused:
        ran(make(), topics, records)
    assert f"llow '{choice}'" in refused.value.reasons[0]
    done, written = ran(make(), topics, records, allow=(choice,))
    assert done.records >= 20
    assert sum(map(len, written.values())) >= 20


def test_a_store_that_no_snapshot_has_is_refused_where_there_is_to_be_one(tmp_path: Path) -> None:
    """Without a changelog there is nothing that could be handed over."""
    builder = StreamsBuilder()
    builder.stream("in", TEXT).group_by_key().count(Materialized("mine", serdes.STRING, serdes.LONG, logging=False))
    with pytest.raises(BackfillRefused, match="store mine has no changelog"):
        ran(builder.build(), {"in": 1}, [], snapshot_uri=str(tmp_path))
    done, _ = ran(builder.build(), {"in": 1}, [])
    assert done.records == 0


def test_asynchronous_processors_are_waited_for() -> None:
    """Their results come in the order of their records."""
    builder = StreamsBuilder()

    async def slow(value: str) -> str:
        await asyncio.sleep(0)
        return value * 3

    builder.stream("in", TEXT).map_values(slow).to("out", Produced(serdes.STRING, serdes.STRING))
    records: list[Input] = [("in", b"k", str(number).encode(), number) for number in range(300)]
    _, written = ran(builder.build(), {"in": 1, "out": 1}, records)
    assert [row[1] for row in written[TopicPartition("out", 0)]] == [str(number).encode() * 3 for number in range(300)]


def test_global_tables_are_whole_before_the_first_record() -> None:
    """As they are in an app, which fills them before it begins."""
    builder = StreamsBuilder()
    names = builder.global_table("names", TEXT)
    builder.stream("in", TEXT).join(names, lambda key, _: key, lambda value, name: f"{value} {name}").to(
        "out", Produced(serdes.STRING, serdes.STRING)
    )
    records: list[Input] = [("names", b"k", b"old", 900), ("names", b"k", b"new", 1_000), ("in", b"k", b"v", 1)]
    _, written = ran(builder.build(), {"in": 1, "out": 1, "names": 1}, records)
    assert written == {TopicPartition("out", 0): [(b"k", b"v new", 1, ())]}


class Client:
    """A client as those of asyncio are: it can be used in the event loop in which it was opened, and until it is closed."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self.told.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._loop is asyncio.get_running_loop()
        self._loop = None
        self.told.append("closed")

    async def get(self, value: str) -> str:
        assert self._loop is asyncio.get_running_loop()
        await asyncio.sleep(0)
        return value.upper()


def asked(function: Any, *, repartition: bool = False) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    (stream.repartition() if repartition else stream).map_values(function).to("out", Produced(serdes.STRING, serdes.STRING))
    return builder.build()


SOME: list[Input] = [("in", str(number).encode(), b"v%d" % number, number) for number in range(40)]


async def test_an_app_opens_its_services_for_a_backfill_in_the_loop_of_its_functions() -> None:
    """They are open before the first processor is made, used by all tasks, and closed at the end, so the app can open them again at its start."""
    client = Client()

    class Careful(Processor[Any, Any, Any, Any]):
        def init(self, context: ProcessorContext[Any, Any]) -> None:
            assert client.told[-1] == "opened"
            self._context = context

        def process(self, record: Record[Any, Any]) -> None:
            self._context.forward(record)

    builder = StreamsBuilder()
    builder.stream("in", TEXT).process(Careful).map_values(client.get).to("out", Produced(serdes.STRING, serdes.STRING))
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 3), NewTopic("out", 3)])
        await fill(log, {"in": 3}, SOME)
        app = App(builder.build(), StreamsConfig.of(SETTINGS), log=log, services=[client])
        with await app.backfill() as done:
            written = [row[1] for where in done.partitions for row in rows_of(done.read(where))]
        assert client.told == ["opened", "closed"]
        assert sorted(written) == sorted(b"V%d" % number for number in range(40))
        async with app:
            await app.wait_until_caught_up()
        assert client.told == ["opened", "closed"] * 2


def test_all_tasks_of_a_local_backfill_share_one_event_loop() -> None:
    """So a client that a function opens when it is first called serves the tasks after, those of later stages too."""
    clients: list[Client] = []

    async def lazy(value: str) -> str:
        if not clients:
            clients.append(await Client().__aenter__())
        return await clients[0].get(value)

    _, written = ran(asked(lazy, repartition=True), {"in": 3, "out": 3}, SOME)
    assert len([row for rows in written.values() for row in rows]) == 40


def test_services_of_a_backfill_that_fails_are_closed_after_its_calls() -> None:
    """The calls in flight are cancelled first, as they may use them until they end."""
    client = Client()

    async def endless(value: str) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            await client.get(value)
            client.told.append("used")
        return value

    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.map_values(endless).to("out", Produced(serdes.STRING, serdes.STRING))
    stream.map_values(lambda value: value[2]).to("out", Produced(serdes.STRING, serdes.STRING))
    with pytest.raises(ProcessingFailed):
        ran(builder.build(), {"in": 1, "out": 1}, [("in", b"k", b"many", 1), ("in", b"k", b"v", 2)], services=[client])
    assert client.told[-2:] == ["used", "closed"]


async def test_a_cancelled_backfill_waits_neither_for_a_call_nor_for_a_service() -> None:
    """Both are cancelled in their loop, and services that were opened are closed."""
    client, reached = Client(), threading.Event()

    async def endless(value: str) -> str:
        reached.set()
        await asyncio.Event().wait()
        return value

    class Endless(Client):
        async def __aenter__(self) -> Self:
            await endless("")
            return self

    for function, services in ((endless, [client]), (str, [client, Endless()])):
        reached.clear()
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
            await fill(log, {"in": 1}, SOME)
            running = asyncio.ensure_future(backfill(asked(function), StreamsConfig.of(SETTINGS), log=log, services=services))
            await asyncio.to_thread(reached.wait, 30)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert client.told[-2:] == ["opened", "closed"]


def test_a_time_does_not_bound_global_tables_but_an_offset_does() -> None:
    """Reference data has the time of its load: an app fills a global table with all of it before the first record, however old that is."""
    builder = StreamsBuilder()
    names = builder.global_table("names", TEXT)
    builder.stream("in", TEXT).left_join(names, lambda key, _: key, lambda value, name: f"{value} {name}").to(
        "out", Produced(serdes.STRING, serdes.STRING)
    )
    topics = {"in": 1, "out": 1, "names": 1}
    records: list[Input] = [("names", b"k", b"old", 900_000), ("names", b"k", b"new", 1_000_000), ("in", b"k", b"v", 1), ("in", b"k", b"w", 5_000)]
    streams, _ = streamed(builder.build(), SETTINGS, topics, records)
    _, written = ran(builder.build(), topics, records, until=5_000)
    assert written == {TopicPartition("out", 0): [(b"k", b"v new", 1, ())]}
    assert streams[TopicPartition("out", 0)][:1] == written[TopicPartition("out", 0)]
    _, written = ran(builder.build(), topics, records, until={"names": {0: 1}})
    assert [row[1] for row in written[TopicPartition("out", 0)]] == [b"v old", b"w old"]


def test_dead_letters_of_a_global_table_are_written_once() -> None:
    """Each task fills the table, the first of all writes the letters; they are counted once, too."""
    builder = StreamsBuilder()
    names = builder.global_table("names", TEXT)
    builder.stream("in", TEXT).select_key(lambda key, _: key).repartition().join(names, lambda key, _: key, lambda value, name: f"{value} {name}").to(
        "out", Produced(serdes.STRING, serdes.STRING)
    )
    records: list[Input] = [("names", b"k", b"name", 1), ("names", b"k", b"\xff", 2), ("in", b"k", b"v", 3), ("in", b"j", b"\xfe", 4)]
    handling = {"errors_dead_letter_queue_topic_name": "letters", "deserialization_exception_handler": "continue"}
    done, written = ran(builder.build(), {"in": 2, "out": 1, "names": 1, "letters": 1}, records, handling)
    assert [row[:3] for row in written[TopicPartition("letters", 0)]] == [(b"k", b"\xff", 2), (b"j", b"\xfe", 4)]
    assert [row[1] for row in written[TopicPartition("out", 0)]] == [b"v name"]
    assert sum(task.dropped for task in done.tasks) == 2


def test_joins_of_tables_wait_for_the_earlier_records() -> None:
    """Records of several partitions are taken by their times, in any distribution."""
    builder = StreamsBuilder()
    table = builder.table("t", TEXT)
    left = builder.stream("in", TEXT)
    left.left_join(table, lambda value, other: f"{value}{other}").to("out", Produced(serdes.STRING, serdes.STRING))
    left.join(builder.stream("s", TEXT), lambda one, two: one + two, JoinWindows.of_time_difference_with_no_grace(1)).to(
        "pairs", Produced(serdes.STRING, serdes.STRING)
    )
    records: list[Input] = []
    for number in range(5_000):
        records += [("in", b"k", b"v", 10 * number), ("t", b"k", str(number).encode(), 10 * number + 5), ("s", b"k", b"s", 10 * number + 1)]
    _, written = ran(builder.build(), {"in": 1, "out": 1, "t": 1, "s": 1, "pairs": 1}, records)
    assert [row[1] for row in written[TopicPartition("out", 0)]] == [f"v{'None' if number < 0 else number}".encode() for number in range(-1, 4_999)]
    assert len(written[TopicPartition("pairs", 0)]) == 5_000


async def test_one_that_is_cancelled_ends_and_leaves_nothing(tmp_path: Path) -> None:
    """In the middle of a task: no other one begins, nothing is left on disk, and there is no snapshot."""
    reached, go_on, seen = threading.Event(), threading.Event(), set[str]()

    def look(value: str) -> str:
        seen.add(value)
        reached.set()
        assert go_on.wait(PATIENCE_S)
        return value

    builder = StreamsBuilder()
    builder.stream("in", TEXT).map_values(look).to("out", Produced(serdes.STRING, serdes.STRING))
    place = tmp_path / "work"
    place.mkdir()
    async with EmbeddedLog() as log:
        await log.create_topics([NewTopic("in", 3), NewTopic("out", 3)])
        await fill(
            log, {"in": 3}, [("in", str(number).encode(), str(partition_of(str(number).encode(), 3)).encode(), number) for number in range(90)]
        )
        running = asyncio.ensure_future(
            backfill(builder.build(), StreamsConfig.of(SETTINGS), log=log, snapshot_uri=str(tmp_path / "snapshots"), directory=place)
        )
        await asyncio.to_thread(reached.wait, 30)
        running.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert len(seen) == 1
    assert list(place.iterdir()) == []
    assert not [path for path in (tmp_path / "snapshots").rglob("*") if path.is_file()]


def test_state_that_is_larger_than_its_memory_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as the settings say is in memory, the rest is written meanwhile; nothing of it is missing."""
    kept: list[int] = []
    commit = _task_run.TaskRun._commit

    async def watched(run: _task_run.TaskRun) -> None:
        await commit(run)
        assert run._runner.stores is not None
        kept.append(sum(run._runner.stores.memory_bytes().values()))

    monkeypatch.setattr(_task_run.TaskRun, "_commit", watched)
    monkeypatch.setattr(_reading, "_AT_ONCE", 500)
    builder = StreamsBuilder()
    builder.table("in", TEXT, Materialized("rows", serdes.STRING, serdes.STRING, store_type="rocksdb"))
    settings: dict[str, Any] = {**SETTINGS, "statestore_memory_max_bytes": 1 << 20, "statestore_uncommitted_max_bytes": 1 << 18}
    records: list[Input] = [("in", b"%06d" % number, b"%01000d" % number, number) for number in range(8_000)]
    _, stores = filled_back(builder.build(), settings, {"in": 1}, records, tmp_path)
    assert stores == {("rows", 0): {key: (value, time) for _, key, value, time in records}}
    assert len(kept) > 10
    assert max(kept) < 2 << 20
