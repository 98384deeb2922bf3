"""Snapshots of apps that run, and tasks that begin with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors import SnapshotFailed, StreamsConfig, serdes
from ks_actors.dsl import JoinWindows, Materialized, Produced, SessionWindows, Stream, StreamJoined, StreamsBuilder, TimeWindows
from ks_actors.log import TopicPartition
from ks_actors.runtime import RestoreListener
from ks_actors.snapshots import Place, SnapshotReader, find_snapshots
from ks_actors.snapshots._manifest import seal
from ks_actors.state.disk import _rocksdb
from ks_actors.testing import AppHarness, TestRecord
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import ALOS, EOS, GUARANTEES, STRINGS, STRINGS_OUT, by_key, counting, feed, feed_all, in_virtual_time
from tests.ks_actors.runtime.stores.standbys import restart_empty
from tests.ks_actors.snapshots.helpers import in_memory

TOPICS = {"in": 1, "out": 1}
REUSE = "reuse.ktable.source.topics"


class Heard(RestoreListener):
    """Keep each call."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def on_snapshot_loaded(self, partition: TopicPartition, store: str, snapshot: str, end: int, count: int) -> None:
        self.told.append(("snapshot", store, snapshot, end, count))

    def on_restore_start(self, partition: TopicPartition, store: str, start: int | None) -> None:
        self.told.append(("start", store, start))

    def on_restore_end(self, partition: TopicPartition, store: str, total: int) -> None:
        self.told.append(("end", store, total))


def records(*keys: str, value: str = "v") -> list[TestRecord[str, str]]:
    return [TestRecord(key, value, number) for number, key in enumerate(keys)]


def counts_in(snapshot: SnapshotReader, task: str = "0_0", store: str = "counts") -> dict[str, int]:
    return {
        key.decode(): int.from_bytes(value, "big")
        for batch in snapshot.batches(task, store)
        for key, value in zip(batch.keys, batch.values, strict=True)
    }


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_a_task_without_state_begins_with_a_snapshot(store: str, guarantee: str) -> None:
    """Only the part of the changelog behind the snapshot is restored, and the listener gets the source of the rest."""
    heard, uri = Heard(), in_memory()
    async with AppHarness(counting(store), topics=TOPICS, processing_guarantee=guarantee, restore_listener=heard, snapshot_uri=uri) as harness:
        await feed_all(harness, "in", records(*(f"k{number % 50}" for number in range(500))))
        manifest = await harness.app.snapshot()
        stored = manifest.tasks["0_0"].stores["counts"]
        assert stored.rows == 50
        assert [(one.topic, one.offset) for one in manifest.tasks["0_0"].positions] == [("in", 500)]
        await feed_all(harness, "in", records("k1", "k2", "new"))
        await restart_empty(harness, heard)
        assert heard.told[0] == ("snapshot", "counts", manifest.name, stored.next_offset, 50)
        assert heard.told[1] == ("start", "counts", stored.next_offset)
        assert heard.told[2] == ("end", "counts", 3)
        await feed_all(harness, "in", records("k1", "new", "k3"))
        found = by_key(await harness.read("out"))
        assert (found["k1"], found["new"], found["k3"]) == (list(range(1, 13)), [1, 2], list(range(1, 12)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_a_snapshot_is_of_one_commit_while_work_goes_on(store: str, guarantee: str, seed: int) -> None:
    """Rows are exactly the counts up to the positions, with any commits while they are written."""
    uri = in_memory()
    keys = [f"k{(number * 7919) % 400}" for number in range(6_000)]
    async with AppHarness(
        counting(store), topics=TOPICS, processing_guarantee=guarantee, seed=seed, commit_interval_ms=10, snapshot_uri=uri, snapshot_keep=9
    ) as harness:

        async def feed() -> None:
            for start in range(0, len(keys), 300):
                await harness.produce_all("in", records(*keys[start : start + 300]))
                await asyncio.sleep(0.02)

        feeding = asyncio.ensure_future(feed())
        manifests = []
        for _ in range(4):
            await asyncio.sleep(0.07)
            manifests.append(await harness.app.snapshot())
        await feeding
        await harness.caught_up()
        manifests.append(await harness.app.snapshot())
        positions = []
        for manifest in manifests:
            (position,) = manifest.tasks["0_0"].positions
            positions.append(position.offset)
            found = SnapshotReader.open(Place.of(uri).at("app", manifest.name))
            assert counts_in(found) == Counter(keys[: position.offset])
        assert positions[-1] == len(keys)
        assert len(set(positions)) > 2


def windowed(store: str) -> Topology:
    """Count in windows, and join two streams: a window store with timestamps, and two with duplicates."""
    builder = StreamsBuilder()
    left = builder.stream("in", STRINGS)
    windows = left.group_by_key().windowed_by(TimeWindows.of_size_and_grace(1_000, 100_000))
    counted = windows.count(Materialized("windows", serdes.STRING, serdes.LONG, store_type=store))  # type: ignore[arg-type]  # of two words
    counted.to_stream(lambda key, _: f"{key.key}@{key.window.start}").to("out", Produced(serdes.STRING, serdes.LONG))
    right = builder.stream("other", STRINGS)
    within = JoinWindows.of_time_difference_with_no_grace(10_000)
    left.join(right, lambda one, two: f"{one}+{two}", within, StreamJoined(serdes.STRING, serdes.STRING, serdes.STRING, name="both")).to(
        "joined", STRINGS_OUT
    )
    return builder.build()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_windows_come_back_from_snapshots(store: str) -> None:
    """Windowed counts and joins go on as if nothing had been lost."""
    uri, heard = in_memory(), Heard()
    async with AppHarness(
        windowed(store),
        topics={"in": 1, "other": 1, "out": 1, "joined": 1},
        restore_listener=heard,
        processing_guarantee=EOS,
        snapshot_uri=uri,
        default_dsl_store=store,
    ) as harness:
        for topic, value in (("in", "l"), ("other", "r")):
            await harness.produce_all(topic, [TestRecord(f"k{number % 5}", f"{value}{number}", number * 100) for number in range(200)])
        await harness.caught_up()
        manifest = await harness.app.snapshot()
        assert {name: stored.rows > 0 for name, stored in manifest.tasks["0_0"].stores.items()} == dict.fromkeys(manifest.tasks["0_0"].stores, True)
        assert len(manifest.tasks["0_0"].stores) == 3
        assert find_snapshots(uri, "app")[0][0].verify() == sum(stored.rows for stored in manifest.tasks["0_0"].stores.values())
        await restart_empty(harness, heard)
        assert [told[0] for told in heard.told].count("snapshot") == 3
        assert all(told[2] == 0 for told in heard.told if told[0] == "end")
        await harness.produce("in", "k1", "late", timestamp=19_900)
        await feed(harness, "other", "k1", "later", timestamp=19_901)
        out = by_key(await harness.read("out"))
        assert out["k1@19000"] == [1, 2, 3]
        joined = [value for value in by_key(await harness.read("joined"))["k1"] if "late" in value]
        lefts, rights = [f"l{number}" for number in range(101, 200, 5)], [f"r{number}" for number in range(101, 200, 5)]
        assert sorted(joined) == sorted([*(f"late+{one}" for one in rights), *(f"{one}+later" for one in lefts), "late+later"])


@in_virtual_time
async def test_sessions_come_back_from_snapshots() -> None:
    """A session that was open before goes on after."""
    uri, heard = in_memory(), Heard()
    builder = StreamsBuilder()
    sessions = builder.stream("in", STRINGS).group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(1_000, 600_000))
    counted = sessions.count(Materialized("sessions", serdes.STRING, serdes.LONG))
    counted.to_stream(lambda key, _: f"{key.key}@{key.window.start}").to("out", Produced(serdes.STRING, serdes.LONG))
    async with AppHarness(builder.build(), topics=TOPICS, restore_listener=heard, processing_guarantee=EOS, snapshot_uri=uri) as harness:
        await feed_all(harness, "in", [TestRecord(f"k{number % 20}", "v", number * 40) for number in range(400)])
        manifest = await harness.app.snapshot()
        assert manifest.tasks["0_0"].stores["sessions"].rows == 20
        await restart_empty(harness, heard)
        assert heard.told[0][:2] == ("snapshot", "sessions")
        assert heard.told[-1] == ("end", "sessions", 0)
        await harness.produce("in", "k3", "v", timestamp=16_000)
        await feed(harness, "in", "k4", "v", timestamp=600_000)
        out = by_key(await harness.read("out"))
        assert [count for count in out["k3@120"] if count is not None][-1] == 21
        assert out["k4@600000"] == [1]


@pytest.mark.parametrize("most", [0, 3, 1_000])
@in_virtual_time
async def test_rows_become_sorted_tables_and_too_many_are_written(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many tables there may be, the database has the same rows."""
    monkeypatch.setattr(_rocksdb, "TABLE_ROWS", 100)
    monkeypatch.setattr(_rocksdb, "MOST_TABLES", most)
    uri, heard = in_memory(), Heard()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, restore_listener=heard, snapshot_uri=uri) as harness:
        await feed_all(harness, "in", records(*(f"k{number % 2_000:04d}" for number in range(4_000))))
        await harness.app.snapshot()
        await restart_empty(harness, heard)
        assert [told[0] for told in heard.told] == ["snapshot", "start", "end"]
        assert dict(await harness.app.store("counts").all()) == {f"k{number:04d}": 2 for number in range(2_000)}
        await feed_all(harness, "in", records("k0007", "k1999"))
        assert {by_key(await harness.read("out"))[key][-1] for key in ("k0007", "k1999")} == {3}


@pytest.mark.parametrize("harm", ["flipped", "foreign", "missing", "shape", "anew", "behind", "ahead"])
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_mismatching_snapshots_are_refused_and_the_changelog_restores(harm: str, store: str) -> None:
    """A broken snapshot, one of another log, or one that is too old: told, counted, and the state is right."""
    uri, heard = in_memory(), Heard()
    async with AppHarness(counting(store), topics=TOPICS, processing_guarantee=EOS, restore_listener=heard, snapshot_uri=uri) as harness:
        await feed_all(harness, "in", records(*(f"k{number % 50}" for number in range(500))))
        manifest = await harness.app.snapshot()
        await harness.close()
        harness.wipe_state()
        heard.told.clear()
        damage(uri, manifest.name, harm)
        await harness.restart()
        assert [told[0] for told in heard.told] == ["start", "end"]
        assert harness.app.metrics()["snapshot-refused-total"] == 1
        await feed_all(harness, "in", records("k1"))
        assert by_key(await harness.read("out"))["k1"] == list(range(1, 12))


def damage(uri: str, name: str, harm: str) -> None:
    """Make a snapshot one that is to be refused."""
    place = Place.of(uri).at("app", name)
    manifest = place.at("manifest.json")
    rows = place.at("0_0", "counts-00000.rows")
    content, data = manifest.read(), rows.read()
    assert content is not None
    assert data is not None
    if harm == "flipped":
        rows.write(data[:-30] + bytes((data[-30] ^ 4,)) + data[-29:])
    elif harm == "missing":
        rows.delete()
    else:
        changed = SnapshotReader.open(place).manifest
        stored = changed.tasks["0_0"].stores["counts"]
        if harm == "foreign":
            changed = msgspec.structs.replace(changed, application_id="other")
        elif harm == "shape":
            stored = msgspec.structs.replace(stored, shape=msgspec.structs.replace(stored.shape, kind="key_value"))
        elif harm == "anew":
            assert stored.changelog_id
            stored = msgspec.structs.replace(stored, changelog_id="another")
        else:
            stored = msgspec.structs.replace(stored, next_offset=-1 if harm == "behind" else 1 << 40)
        changed.tasks["0_0"].stores["counts"] = stored
        manifest.write(seal(changed))


@in_virtual_time
async def test_one_that_is_refused_leaves_the_older_one() -> None:
    """When the newest cannot be used, the one before is."""
    uri, heard = in_memory(), Heard()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, restore_listener=heard, snapshot_uri=uri) as harness:
        await feed_all(harness, "in", records(*(f"k{number % 50}" for number in range(500))))
        older = await harness.app.snapshot()
        await feed_all(harness, "in", records("k1", "k1"))
        await asyncio.sleep(1)
        newer = await harness.app.snapshot()
        damage(uri, newer.name, "flipped")
        await restart_empty(harness, heard)
        assert heard.told[0][:3] == ("snapshot", "counts", older.name)
        await feed_all(harness, "in", records("k1"))
        assert by_key(await harness.read("out"))["k1"] == list(range(1, 14))


@in_virtual_time
async def test_one_that_is_older_than_deletions_are_kept_is_refused() -> None:
    """Behind such a snapshot the changelog may have forgotten a deletion; when nothing has come since, its age does not matter."""
    uri, heard = in_memory(), Heard()
    async with AppHarness(
        counting("rocksdb"), topics=TOPICS, processing_guarantee=EOS, restore_listener=heard, snapshot_uri=uri, snapshot_max_age_ms=1_000
    ) as harness:
        await feed_all(harness, "in", records("a", "b"))
        await harness.app.snapshot()
        await harness.close()
        for expected in ("snapshot", "start"):
            harness.wipe_state()
            heard.told.clear()
            await asyncio.sleep(2)
            await harness.restart()
            assert heard.told[0][0] == expected
            await feed_all(harness, "in", records("a"))
            await harness.close()
        await harness.restart()
        assert by_key(await harness.read("out"))["a"] == [1, 2, 3]


@in_virtual_time
async def test_snapshots_are_taken_by_the_clock_and_old_ones_deleted() -> None:
    """Every interval there is a new one, and no more than are to be kept."""
    uri = in_memory()
    async with AppHarness(counting("rocksdb"), topics=TOPICS, snapshot_uri=uri, snapshot_interval_ms=10_000, snapshot_keep=2) as harness:
        await harness.produce_all("in", records("a", "b"))
        await asyncio.sleep(35)
        assert harness.app.metrics()["snapshot-total"] == 3
        assert len(find_snapshots(uri, "app")[0]) == 2


@pytest.mark.parametrize("guarantee", [ALOS, EOS])
@in_virtual_time
async def test_a_place_that_cannot_be_written_harms_nothing(guarantee: str, tmp_path: Path) -> None:
    """Taking fails, by name and in the metrics; processing goes on, and the next one succeeds when there is room."""
    blocked = tmp_path / "full"
    blocked.write_text("no directory")
    async with AppHarness(counting("rocksdb"), topics=TOPICS, processing_guarantee=guarantee, snapshot_uri=f"file://{blocked}") as harness:
        await feed_all(harness, "in", records("a", "b"))
        with pytest.raises(SnapshotFailed, match="failed"):
            await harness.app.snapshot()
        assert harness.app.metrics()["snapshot-failed-total"] == 1
        blocked.unlink()
        await feed_all(harness, "in", records("a"))
        assert by_key(await harness.read("out")) == {"a": [1, 2], "b": [1]}
        assert (await harness.app.snapshot()).tasks["0_0"].stores["counts"].rows == 2
        assert not list((harness.state_dir / ".snapshot-copies").glob("*"))


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@in_virtual_time
async def test_a_table_whose_topic_has_fewer_partitions_is_left_out_where_it_has_none(store: str) -> None:
    """Tasks beyond the partitions of the topic that a table is restored from have no changelog of it; their other stores are in the snapshot."""
    uri, heard = in_memory(), Heard()
    builder = StreamsBuilder()
    table = builder.table("table", STRINGS, Materialized("rows", serdes.STRING, serdes.STRING, store_type=store))  # type: ignore[arg-type]
    stream: Stream[str, Any] = builder.stream("in", STRINGS)
    counted = stream.merge(table.to_stream()).group_by_key()
    counted.count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=store)).to_stream().to("out", Produced(serdes.STRING, serdes.LONG))  # type: ignore[arg-type]
    topology = builder.build(StreamsConfig(application_id="app", topology_optimization=REUSE))

    topics = {"table": 1, "in": 3, "out": 1}
    async with AppHarness(topology, topics=topics, topology_optimization=REUSE, restore_listener=heard, snapshot_uri=uri) as harness:
        await harness.produce("table", "a", "1")
        await feed_all(harness, "in", records(*(f"k{number}" for number in range(30))))
        manifest = await harness.app.snapshot()
        assert {name: (sorted(task.stores), task.left_out) for name, task in manifest.tasks.items()} == {
            "0_0": (["counts", "rows"], {}),
            "0_1": (["counts"], {"rows": "no_changelog"}),
            "0_2": (["counts"], {"rows": "no_changelog"}),
        }
        await restart_empty(harness, heard)
        assert Counter(told[1] for told in heard.told if told[0] == "snapshot") == {"counts": 3, "rows": 1}
        await feed_all(harness, "in", records(*(f"k{number}" for number in range(30))))
        assert by_key(await harness.read("out")) == {"a": [1]} | {f"k{number}": [1, 2] for number in range(30)}


@in_virtual_time
async def test_a_standby_begins_with_a_snapshot_and_several_instances_share_a_place() -> None:
    """Each instance writes its own tasks; those that move, and standbys, find them."""
    uri, heard = in_memory(), Heard()
    async with AppHarness(
        counting("rocksdb"), topics={"in": 4, "out": 1}, processing_guarantee=EOS, num_standby_replicas=1, restore_listener=heard, snapshot_uri=uri
    ) as harness:
        await feed_all(harness, "in", records(*(f"k{number % 50}" for number in range(500))))
        await harness.app.snapshot()
        heard.told.clear()
        async with harness.another() as other:
            await harness.caught_up()
            await other.caught_up()
            loaded = [told for told in heard.told if told[0] == "snapshot"]
            assert len(loaded) == 4  # two tasks moved, two standbys here
            names = {(await one.app.snapshot()).name for one in (harness, other)}
            tasks = [sorted(snapshot.manifest.tasks) for snapshot in find_snapshots(uri, "app")[0] if snapshot.place.name in names]
            assert sorted(task for each in tasks for task in each) == ["0_0", "0_1", "0_2", "0_3"]
            await harness.produce_all("in", records("k1"))
            await other.caught_up()
            assert by_key(await harness.read("out"))["k1"] == list(range(1, 12))
