"""Each way by which local state is given up: one warning names store, task, directory and reason, and the other stores keep theirs."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ks_actors import Processor, ProcessorContext, Record, StateError, StateStore, StateStoreContext, stores
from ks_actors.dsl import Consumed, Materialized, Produced, StreamsBuilder
from ks_actors.log import IsolationLevel, NewTopic, TopicPartition
from ks_actors.serdes import LONG, STRING
from ks_actors.state import SharedResources, stored_offsets, write_checkpoint
from ks_actors.state.disk import TOPIC_IDS
from ks_actors.state.disk._rocksdb import RocksEngine
from ks_actors.testing import AppHarness
from ks_actors.topology import StoreSpec, Topology
from tests.ks_actors.runtime.helpers import by_key, feed, in_app, in_virtual_time
from tests.layouts import LAYOUT, database_of, key_of, state_of

STRINGS = Consumed(STRING, STRING)
TOPICS = {"in": 1, "out": 1}
EOS = "exactly_once_v2"


def counter(*specs: StoreSpec) -> Any:
    """Return a processor that counts each key in each of the stores."""

    class Counter(Processor[str, str, str, str]):
        stores = specs

        def init(self, context: ProcessorContext[str, str]) -> None:
            self.context = context
            self.found = [context.get_state_store(spec.name) for spec in specs]

        def process(self, record: Record[str, str]) -> None:
            counts = [(store.get(record.key) or 0) + 1 for store in self.found]
            for store, count in zip(self.found, counts, strict=True):
                store.put(record.key, count)
            self.context.forward(record.with_value(",".join(map(str, counts))))

    return Counter


def counting(*specs: StoreSpec) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).process(counter(*specs)).to("out", Produced(STRING, STRING))
    return builder.build()


def store(name: str, *, logging: bool = True, timestamped: bool = False) -> StoreSpec:
    return stores.key_value(name, STRING, LONG, logging=logging, timestamped=timestamped)


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    return [message for message in warnings if "the local state of" in message and "is deleted" in message]


async def counted(harness: AppHarness, value: str = "x") -> str:
    """Send one record, and return the counts that it gives."""
    await feed(harness, "in", "k", value)
    return str((await harness.read("out"))[-1].value)


def edit(task: Path, key: bytes, value: bytes | None) -> None:
    engine = RocksEngine("0", database_of(task), SharedResources())
    engine.write([(key_of(task, key), value)])
    engine.flush(wait=True)
    engine.close()


def only_copy(harness: AppHarness) -> str:
    """Return what tells of the only copy of a store."""
    return f"store local.* has no changelog, and its only copy, in {state_of(harness.state_dir / '0_0')}, cannot be used"


def damage(database: Path) -> None:
    (database / "CURRENT").write_text("nothing")


def lose(database: Path) -> None:
    (database / "CURRENT").unlink()


HARMS = [(damage, "Corruption"), (lose, "No such file")]


@in_app(counting(store("a"), store("b"), store("local", logging=False)), topics=TOPICS)
async def test_a_store_that_is_beyond_its_changelog_is_restored_alone(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The store beside it, which has no changelog, counts on."""
    for _ in range(3):
        await counted(harness)
    await harness.close()
    edit(harness.state_dir / "0_0", b"\0offset:a", (1 << 40).to_bytes(8, "big"))
    await harness.restart()
    assert await counted(harness) == "4,4,4"
    (line,) = given_up(caplog)
    directory = re.escape(str(harness.state_dir / "0_0"))
    reason = "app-a-changelog-0 has offsets 0 to [0-9]+, the store is at 1099511627776\\. If the brokers have lost records, .*"
    assert re.fullmatch(f"the local state of store a of task 0_0, in {directory}, is deleted, and restored from its changelog: {reason}", line)


@in_app(counting(store("a"), store("local", logging=False)), topics=TOPICS)
async def test_a_store_without_offset_is_restored_alone(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """A crash has interrupted its first write, or it had no changelog before."""
    for _ in range(3):
        await counted(harness)
    await harness.close()
    edit(harness.state_dir / "0_0", b"\0offset:a", None)
    (harness.state_dir / "0_0" / ".checkpoint").unlink(missing_ok=LAYOUT == "shared")
    await harness.restart()
    assert await counted(harness) == "4,4"
    (line,) = given_up(caplog)
    assert "store a of task 0_0" in line
    assert "it has no changelog offset" in line


@pytest.mark.parametrize(("harm", "reason"), HARMS)
@in_app(counting(store("a"), store("b")), topics=TOPICS)
async def test_a_database_that_is_damaged_is_restored(
    harness: AppHarness, harm: Callable[[Path], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All stores in it have changelogs: one warning names them, and the reason; RocksDB begins no new one in its place."""
    await counted(harness)
    await harness.close()
    harm(database_of(harness.state_dir / "0_0"))
    await harness.restart()
    assert await counted(harness) == "2,2"
    (line,) = given_up(caplog)
    assert ("store a, b of task 0_0" if LAYOUT == "task" else "of all tasks") in line
    assert reason in line


def flip(task: Path, share: float) -> None:
    """Flip one bit of each table file, at a share of its length, as a bad disk does."""
    edit(task, b"behind all", b"")  # what is in the log of writes is in a table file then
    tables = list(database_of(task).glob("*.sst"))
    assert tables
    for table in tables:
        content = bytearray(table.read_bytes())
        content[int(share * (len(content) - 1))] ^= 0x10
        table.write_bytes(content)


@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.5, 0.7, 0.9, 1])
@in_app(counting(store("a"), store("b")), topics=TOPICS)
async def test_a_flipped_bit_of_a_table_file_is_told(harness: AppHarness, guarantee: str, share: float, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever it is: stores with changelogs are restored with one warning."""
    await counted(harness)
    await harness.close()
    flip(harness.state_dir / "0_0", share)
    await harness.restart()
    assert await counted(harness) == "2,2"
    (line,) = given_up(caplog)
    assert "store a, b of task 0_0" in line or (LAYOUT == "shared" and "of all tasks" in line)
    assert "Corruption" in line


@pytest.mark.parametrize("share", [0, 0.1, 0.3, 0.5, 0.7, 0.9, 1])
@in_app(counting(store("a"), store("local", logging=False)), topics=TOPICS)
async def test_a_flipped_bit_of_the_only_copy_of_a_store_ends_the_app(
    harness: AppHarness, guarantee: str, share: float, caplog: pytest.LogCaptureFixture
) -> None:
    """It never begins again at 1; with the files put back, all is there."""
    await counted(harness)
    await harness.close()
    database = database_of(harness.state_dir / "0_0")
    whole = shutil.copytree(database, harness.state_dir / "whole")
    flip(harness.state_dir / "0_0", share)
    with pytest.raises(StateError, match=only_copy(harness)):
        await harness.restart()
    assert given_up(caplog) == []
    await harness.close()
    shutil.rmtree(database)
    whole.rename(database)
    await harness.restart()
    assert await counted(harness) == "2,2"


@pytest.mark.parametrize("harm", [harm for harm, _ in HARMS])
@in_app(counting(store("a"), store("local", logging=False)), topics=TOPICS)
async def test_a_damaged_database_with_the_only_copy_of_a_store_is_kept(
    harness: AppHarness, guarantee: str, harm: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The app does not start: the error names the store, the directory and the ways out; with the files put back, all is there."""
    await counted(harness)
    await harness.close()
    current = database_of(harness.state_dir / "0_0") / "CURRENT"
    whole = current.read_text()
    harm(current.parent)
    with pytest.raises(StateError, match=only_copy(harness) + ": .*Put back a copy"):
        await harness.restart()
    assert given_up(caplog) == []
    await harness.close()
    current.write_text(whole)
    await harness.restart()
    assert await counted(harness) == "2,2"


@in_virtual_time
async def test_a_store_of_another_kind_begins_from_its_changelog_alone(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """The next version of the topology keeps the stores that it can: the other store counts on."""
    topology = counting(store("a"), store("b"), store("local", logging=False))
    async with AppHarness(topology, topics=TOPICS, processing_guarantee=guarantee) as harness:
        await counted(harness)
        await harness.close()
        builder = StreamsBuilder()
        builder.add_state_store(store("a", timestamped=True))
        builder.stream("in", STRINGS).process(counter(store("b"), store("local", logging=False)), "a").to("out", Produced(STRING, STRING))
        await harness.restart(builder.build())
        assert await counted(harness) == "2,2"
        (line,) = given_up(caplog)
        assert "store a of task 0_0" in line
        assert "it was key_value with segments of 0 ms, duplicates False, and is timestamped_key_value" in line


@in_virtual_time
async def test_the_only_copy_of_a_store_whose_kind_has_changed_is_kept() -> None:
    """The app does not start with the version that cannot use it, and does with the one before."""
    before = counting(store("local", logging=False))
    async with AppHarness(before, topics=TOPICS) as harness:
        await counted(harness)
        await harness.close()
        with pytest.raises(StateError, match=r"store local of task 0_0 has no changelog.*it was key_value.*and is timestamped_key_value"):
            await harness.restart(counting(store("local", logging=False, timestamped=True)))
        await harness.close()
        await harness.restart(before)
        assert await counted(harness) == "2"


@in_app(counting(store("a")), topics=TOPICS)
async def test_a_changelog_that_retention_has_emptied_costs_no_state_exactly_once(
    harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Between the store's last record and the begin of the changelog lies the marker of the commit, which is no record."""
    for _ in range(3):
        await counted(harness)
    await harness.close()
    changelog = TopicPartition("app-a-changelog", 0)
    end = (await harness.log.end_offsets([changelog], IsolationLevel.READ_UNCOMMITTED))[changelog]
    await harness.log.delete_records({changelog: end})
    await harness.restart()
    assert await counted(harness) == "4"
    assert given_up(caplog) == []


def joined(topic: str) -> Topology:
    builder = StreamsBuilder()
    table = builder.global_table(topic, STRINGS, Materialized("names", STRING, STRING))
    kept = builder.global_table("kept", STRINGS, Materialized("kept", STRING, STRING))
    stream = builder.stream("in", STRINGS).left_join(table, lambda key, _: key, lambda value, name: f"{value}:{name}")
    stream.left_join(kept, lambda key, _: key, lambda value, name: f"{value}:{name}").to("out", Produced(STRING, STRING))
    return builder.build()


@in_app(joined("old"), topics={**TOPICS, "old": 1, "new": 1, "kept": 1})
async def test_a_global_table_of_another_topic_begins_anew_alone(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """Rows of the old topic are not there any more."""
    await harness.produce("old", "k", "old")
    await harness.produce("kept", "k", "kept")
    await harness.produce("new", b"other", b"new")
    await harness.restart()
    assert await counted(harness) == "x:old:kept"
    await harness.restart(joined("new"))
    assert await counted(harness) == "x:None:kept"
    (line,) = given_up(caplog)
    assert "store names of task" in line
    assert "it was filled from old, and not from new" in line


@in_app(joined("old"), topics={**TOPICS, "old": 1, "kept": 1})
async def test_a_global_table_that_is_ahead_of_its_topic_begins_anew_alone(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """As state of an earlier version, which has no topic ids."""
    for number in range(3):
        await harness.produce("old", "k", str(number))
    await harness.produce("kept", "k", "kept")
    await harness.restart()
    assert await counted(harness) == "x:2:kept"
    await harness.close()
    await harness.log.delete_topics(["old"])
    await harness.log.create_topics([NewTopic("old", 1)])
    (harness.state_dir / "global" / TOPIC_IDS).unlink()
    await harness.restart()
    assert await counted(harness) == "x:None:kept"
    (line,) = given_up(caplog)
    assert "store names of task" in line
    assert "it holds records up to offset 3 of old-0, which has offsets 0 to 0" in line


@pytest.mark.parametrize("harm", [lambda path: path.write_text("nonsense"), lambda path: path.write_bytes(b"\xff\xfe")])
@in_app(counting(store("a")), topics=TOPICS)
async def test_a_checkpoint_file_that_is_none_costs_no_database(
    harness: AppHarness, harm: Callable[[Path], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Databases know their offsets themselves; the file is told of, and made anew."""
    await counted(harness)
    await harness.close()
    harm(harness.state_dir / "0_0" / ".checkpoint")
    await harness.restart()
    assert await counted(harness) == "2"
    assert given_up(caplog) == []
    assert "is not a checkpoint file" in caplog.text


@in_app(counting(store("a"), store("local", logging=False)), topics=TOPICS, processing_guarantee=EOS)
async def test_a_store_is_not_given_up_twice_for_nothing(harness: AppHarness) -> None:
    """Restarts of an app that is well say nothing, and count on."""
    for number in range(1, 5):
        assert await counted(harness) == f"{number},{number}"
        await (harness.crash() if number % 2 else harness.close())
        await harness.restart()
    assert by_key(await harness.read("out"))["k"] == [f"{number},{number}" for number in range(1, 5)]


class Noting(StateStore):
    """A persistent store of the user's own, which notes its calls."""

    persistent = True
    manages_offsets = True

    def __init__(self) -> None:
        self.rows: dict[Any, Any] = {}
        self.committed: list[dict[Any, int]] = []
        self.asked: list[Any] = []

    def init(self, context: StateStoreContext) -> None:
        context.register(lambda batch: self.rows.update(zip(batch.keys, batch.values, strict=True)))

    def commit(self, offsets: Mapping[Any, int]) -> None:
        self.committed.append(dict(offsets))

    def committed_offset(self, partition: Any) -> int | None:
        self.asked.append(partition)
        return None

    def close(self) -> None: ...


@in_virtual_time
async def test_a_global_store_of_ones_own_gets_its_commits() -> None:
    """With the positions of its topic: when it is filled, after changes, and at the end; it is never asked about a changelog, which it has not."""
    made: list[Noting] = []

    def supplier() -> Noting:
        made.append(Noting())
        return made[-1]

    class Keeper(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            self.rows = context.get_state_store("own").rows

        def process(self, record: Record[str, str]) -> None:
            self.rows[record.key] = record.value

    builder = StreamsBuilder()
    builder.add_global_store(stores.custom("own", supplier), "names", Keeper, STRINGS)
    builder.stream("in", STRINGS).to("out", Produced(STRING, STRING))
    async with AppHarness(builder.build(), topics={**TOPICS, "names": 1}, commit_interval_ms=1000) as harness:
        await harness.produce("names", "a", "1")
        await harness.restart()
        store = made[-1]
        names = TopicPartition("names", 0)
        assert store.committed[-1] == {names: 1}
        await harness.produce("names", "b", "2")
        await harness.kit.clock.advance(2)
        assert store.committed[-1] == {names: 2}
        await harness.produce("names", "c", "3")
        await counted(harness)
        await harness.close()
        assert store.committed[-1] == {names: 3}
        assert store.rows == {"a": "1", "b": "2", "c": "3"}
        assert store.asked == []


def test_tasks_whose_only_state_is_ones_own_are_remembered(tmp_path: Path) -> None:
    """The group is told how far their stores are, as the checkpoint file has it: such a task comes back to where its state is."""
    write_checkpoint(tmp_path, {("app-own-changelog", 3): 17})
    assert stored_offsets(tmp_path, SharedResources()) == {"app-own-changelog": 17}
    (tmp_path / ".checkpoint").write_text("nonsense")
    assert stored_offsets(tmp_path, SharedResources()) == {}


@in_virtual_time
async def test_a_store_of_ones_own_without_offset_is_restored_alone(guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """Its directory is given up with a warning when there was something in it, and in silence when there was nothing to lose."""

    class Writing(Noting):
        def init(self, context: StateStoreContext) -> None:
            super().init(context)
            assert context.directory is not None
            (context.directory / "data").write_text("rows")

    builder = StreamsBuilder()
    builder.add_state_store(stores.custom("own", Writing))
    builder.stream("in", STRINGS).process(counter(store("a"), store("local", logging=False)), "own").to("out", Produced(STRING, STRING))
    async with AppHarness(builder.build(), topics=TOPICS, processing_guarantee=guarantee) as harness:
        await counted(harness)
        assert given_up(caplog) == []
        await harness.restart()
        assert await counted(harness) == "2,2"
        (line,) = given_up(caplog)
        assert re.search("store own of task 0_0, in .*/0_0/own, is deleted, and restored from its changelog: it has no offset", line)
