"""Topics that were deleted and created again, or are of another cluster: offsets of before mean nothing there, even if they lie within (KIP-516)."""

from __future__ import annotations

import logging
import shutil
import struct
from pathlib import Path

import pytest

from ks_actors import Batch, Consumed, Materialized, StreamsBuilder, StreamsConfig
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime.snapshots import _from_snapshot
from ks_actors.serdes import STRING
from ks_actors.state import TopicIds
from ks_actors.state.disk import TOPIC_IDS
from ks_actors.testing import AppHarness
from tests.ks_actors.log.helpers import COMMITTED, fetch_one
from tests.ks_actors.runtime.globals.test_global_stores import TOPICS as NAMES
from tests.ks_actors.runtime.globals.test_global_stores import held, keeping, names
from tests.ks_actors.runtime.helpers import EOS, by_key, counting, feed, in_app, in_virtual_time
from tests.ks_actors.runtime.stores.test_custom_stores import counting as counting_in
from tests.ks_actors.runtime.stores.test_discarded_state import given_up
from tests.ks_actors.snapshots.helpers import in_memory
from tests.ks_actors.state.custom.test_custom import OnDisk, Transactional

TOPICS = {"in": 1, "out": 1}


async def count_and_close(harness: AppHarness, records: int = 3) -> None:
    for _ in range(records):
        await harness.produce("in", "k", "v")
    await harness.caught_up()
    await harness.close()


async def make_anew(harness: AppHarness, topic: str, *, keep_offsets: bool = False) -> None:
    """Delete a topic and create it again with its configs."""
    described = (await harness.log.describe_topics([topic]))[topic]
    offsets = {group: dict(committed) for group, committed in harness.log._broker.offsets.items()}
    await harness.log.delete_topics([topic])
    await harness.log.create_topics([NewTopic(topic, described.partitions, dict(described.configs))])
    assert (await harness.log.describe_topics([topic]))[topic].id != described.id
    if keep_offsets:
        harness.log._broker.offsets.update(offsets)


async def raw_records(harness: AppHarness, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """Return all keys and values of a topic's first partition."""
    fetcher = harness.log.fetcher(client_id="reads-all", isolation=COMMITTED)
    fetcher.assign({TopicPartition(topic, 0): 0})
    found = await fetch_one(fetcher)
    await fetcher.close()
    return list(zip(found.batch.keys, found.batch.values, strict=True))


async def write_raw(harness: AppHarness, topic: str, records: list[tuple[bytes | None, bytes | None]]) -> None:
    """Write records, as an earlier or another app has."""
    producer = await harness.log.producer(client_id="another")
    keys, values = [key for key, _ in records], [value for _, value in records]
    await producer.send([Outgoing(TopicPartition(topic, 0), Batch(keys, values, [0] * len(keys), None, range(len(keys))))])
    await producer.close()


def counts_of_k(*counts: int) -> list[tuple[bytes | None, bytes | None]]:
    return [(b"k", struct.pack(">q", count)) for count in counts]


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_a_store_is_restored_from_a_changelog_that_was_made_anew(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """Although its offset lies within the new one; a warning names both ids. The next start finds all in order."""
    await count_and_close(harness)
    changelog = "app-counts-changelog"
    before = (await harness.log.describe_topics([changelog]))[changelog].id
    await make_anew(harness, changelog)
    await write_raw(harness, changelog, counts_of_k(*range(30, 51)))
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 51]}
    (line,) = given_up(caplog)
    now = (await harness.log.describe_topics([changelog]))[changelog].id
    assert f"it was made from a topic {changelog} with id {before}" in line
    assert f"has id {now} now" in line
    caplog.clear()
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 51, 52]}
    assert not given_up(caplog)


@pytest.mark.parametrize("kind", [OnDisk, Transactional])
@in_app(lambda kind: counting_in(kind), topics=TOPICS)
async def test_a_custom_store_is_restored_as_well(harness: AppHarness, kind: type[OnDisk], caplog: pytest.LogCaptureFixture) -> None:
    """And the one beside it, whose changelog is the same as before, keeps its state."""
    await count_and_close(harness)
    changelog = "app-custom-changelog"
    records = await raw_records(harness, changelog)
    await make_anew(harness, changelog)
    await write_raw(harness, changelog, records * 9)
    await harness.restart()
    await feed(harness, "in", "k", "v")
    assert [record.value for record in await harness.read("out")] == [1, 2, 3, 4]
    (line,) = given_up(caplog)
    assert "store custom of task 0_0" in line


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_positions_of_stores_in_a_former_input_count_no_more(harness: AppHarness, guarantee: str, caplog: pytest.LogCaptureFixture) -> None:
    """All of the new topic is read; a warning says that the stores keep the results of the former records."""
    await count_and_close(harness)
    await make_anew(harness, "in")
    for _ in range(9):
        await harness.produce("in", "k", "v")
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"k": list(range(1, 13))}
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    (told,) = [line for line in warnings if "deleted and created again" in line]
    for part in ("task 0_0 starts with in-0 at offset 0", "keep the results of its former records", "run `ks-actors reset`"):
        assert part in told
    assert not given_up(caplog)
    caplog.clear()
    await harness.restart()
    assert "created again" not in caplog.text


@in_app(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS)
async def test_a_crash_before_the_first_commit_does_not_bring_the_former_positions_back(harness: AppHarness) -> None:
    """Until then the file has the former input's id."""
    await count_and_close(harness)
    await make_anew(harness, "in")
    await harness.restart()
    await harness.crash()
    for _ in range(9):
        await harness.produce("in", "k", "v")
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"k": list(range(1, 13))}


@in_app(counting("rocksdb"), topics=TOPICS)
async def test_a_clean_close_without_a_commit_does_not_either(harness: AppHarness, guarantee: str) -> None:
    """The stores have left the former positions for good."""
    await count_and_close(harness)
    await make_anew(harness, "in")
    await harness.restart()
    await harness.close()
    for _ in range(9):
        await harness.produce("in", "k", "v")
    await harness.restart()
    await harness.caught_up()
    assert by_key(await harness.read("out")) == {"k": list(range(1, 13))}


@in_virtual_time
async def test_all_stores_of_a_task_leave_the_positions_in_a_former_topic(guarantee: str) -> None:
    """Also those that are not filled from it: here one counts the changes of the table that is."""
    builder = StreamsBuilder()
    table = builder.table("table", Consumed(STRING, STRING), Materialized("rows", STRING, STRING, store_type="rocksdb"))
    table.to_stream().group_by_key().count(Materialized("counts", STRING, store_type="rocksdb"))
    topology = builder.build(StreamsConfig(application_id="app", topology_optimization="all"))
    async with AppHarness(topology, topics={"table": 1}, topology_optimization="all", processing_guarantee=guarantee) as harness:
        for _ in range(3):
            await harness.produce("table", "k", "old")
        await harness.caught_up()
        await harness.close()
        await make_anew(harness, "table")
        for number in range(9):
            await harness.produce("table", "k", f"new{number}")
        await harness.restart()
        await harness.caught_up()
        assert dict(await harness.app.store("counts").all()) == {"k": 12}


@in_app(keeping(), topics=NAMES, start=False)
async def test_a_global_table_is_filled_anew_from_a_topic_that_goes_further_than_the_former(harness: AppHarness) -> None:
    """Nothing of the former one stays."""
    await names(harness, range(30))
    await harness.start()
    await harness.close()
    await make_anew(harness, "names")
    await names(harness, range(1000, 1300))
    await harness.restart()
    assert await held(harness) == {f"k{number:05d}": f"n{number}" for number in range(1000, 1300)}


@pytest.mark.parametrize("snapshot_of", ["former", "present"])
@in_virtual_time
async def test_a_snapshot_of_the_present_changelog_takes_the_place_of_former_state(
    snapshot_of: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And one of the former changelog is refused, and tells both ids."""
    monkeypatch.setattr(_from_snapshot, "WORTH", 0)
    async with AppHarness(counting("rocksdb"), topics=TOPICS, snapshot_uri=in_memory()) as harness:
        former, changelog = tmp_path / "former", "app-counts-changelog"
        await feed(harness, "in", "k", "v")
        if snapshot_of == "former":
            await harness.app.snapshot()
        await harness.close()
        shutil.copytree(harness.state_dir, former)
        await make_anew(harness, changelog)
        await write_raw(harness, changelog, counts_of_k(*range(30, 51)))
        if snapshot_of == "present":
            harness.wipe_state()
            await harness.restart()
            await feed(harness, "in", "k", "v")
            await harness.app.snapshot()
            await harness.close()
            harness.wipe_state()
            shutil.copytree(former, harness.state_dir, dirs_exist_ok=True)
        await harness.restart()
        used, refused = (harness.app.metrics()[f"snapshot-{name}-total"] for name in ("restored-tasks", "refused"))
        assert (used, refused) == ((0, 1) if snapshot_of == "former" else (1, 0))
        assert len(given_up(caplog)) == 1
        assert ("it was deleted and created again" in caplog.text) is (snapshot_of == "former")
        await feed(harness, "in", "k", "v")
        assert by_key(await harness.read("out"))["k"][-1] == (51 if snapshot_of == "former" else 52)


@in_virtual_time
async def test_a_source_table_is_restored_from_a_topic_that_was_made_anew() -> None:
    """Its topic is its changelog."""
    builder = StreamsBuilder()
    builder.table("table", Consumed(STRING, STRING), Materialized("rows", STRING, STRING, store_type="rocksdb"))
    topology = builder.build(StreamsConfig(application_id="app", topology_optimization="all"))
    async with AppHarness(topology, topics={"table": 1}, topology_optimization="all") as harness:
        await harness.produce("table", "a", "old")
        await feed(harness, "table", "b", "old")
        await harness.close()
        await make_anew(harness, "table", keep_offsets=True)
        for number in range(9):
            await harness.produce("table", "a", f"new{number}")
        await harness.restart()
        await harness.caught_up()
        assert dict(await harness.app.store("rows").all()) == {"a": "new8"}


@pytest.mark.parametrize("text", ["nonsense", '{"version":9,"ids":{}}', '{"version":1,"ids":[]}', "\x00"])
@in_app(counting("rocksdb"), topics=TOPICS)
async def test_a_file_of_ids_that_cannot_be_read_costs_no_state(harness: AppHarness, text: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is told of, and written anew. Neither does one that is not there, as of an earlier version."""
    file = harness.state_dir / "0_0" / TOPIC_IDS
    await count_and_close(harness)
    right = file.read_bytes()
    assert b"app-counts-changelog" in right
    assert b'"in"' in right
    file.write_text(text)
    await harness.restart()
    await harness.close()
    assert file.read_bytes() == right
    assert "is not a file of topic ids" in caplog.text
    file.unlink()
    await harness.restart()
    await count_and_close(harness, 1)
    assert file.read_bytes() == right
    assert by_key(await harness.read("out")) == {"k": [1, 2, 3, 4]}
    assert not given_up(caplog)


def test_a_log_without_ids_changes_nothing(tmp_path: Path) -> None:
    """Ids that are unknown now, or were, are not compared."""

    def ids(**topics: str) -> TopicIds:
        return TopicIds("0_0", tmp_path, {"store": "changelog"}, topics)

    ids().write()
    assert not (tmp_path / TOPIC_IDS).exists()
    ids(changelog="1", other="2").write()
    unknown = ids()
    assert not unknown.read()
    assert not unknown.others
    present = ids(changelog="3", other="4")
    assert set(present.read()) == {"store"}
    assert present.others == {"changelog", "other"}
    present.write()
    assert present.others == {"changelog", "other"}
    again = ids(changelog="3", other="4")
    assert not again.read()
    assert not again.others


async def test_topics_of_an_embedded_log_have_ids_for_good(tmp_path: Path) -> None:
    """No two topics ever have the same one, not even in another log; a log in a directory keeps its own over restarts."""

    async def ids(directory: Path | None) -> dict[str, str]:
        log = EmbeddedLog(directory)
        await log.start()
        if not await log.describe_topics():
            await log.create_topics([NewTopic("one", 1), NewTopic("two", 1)])
        found = {name: topic.id for name, topic in (await log.describe_topics()).items()}
        await log.close()
        return found

    first, again, *others = [await ids(directory) for directory in (tmp_path / "a", tmp_path / "a", tmp_path / "b", None, None)]
    assert first == again
    every = [one for found in (first, *others) for one in found.values()]
    assert len(set(every)) == 8
    assert all(every)
