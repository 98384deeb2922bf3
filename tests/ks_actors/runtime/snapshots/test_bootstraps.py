"""State that was made elsewhere becomes an app's own: all of it, or nothing."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest

from ks_actors import (
    App,
    Batch,
    LogError,
    NotRunning,
    Processor,
    Record,
    SnapshotFailed,
    SnapshotRefused,
    StreamsConfig,
    TaskId,
    group_partitions,
    serdes,
    stores,
)
from ks_actors.dsl import StreamsBuilder
from ks_actors.log import IsolationLevel, TopicPartition, TransactionalProducer
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.embedded._member import EmbeddedMembership
from ks_actors.snapshots import Place, Shape, SnapshotWriter, SourcePosition
from tests.ks_actors.runtime.helpers import GUARANTEES, STRINGS, STRINGS_OUT, counting
from tests.ks_actors.runtime.snapshots.bootstraps import CHANGELOG, COUNTS, app_of, contents, counted, put, table, totals_of
from tests.ks_actors.runtime.snapshots.test_taking import Heard
from tests.ks_actors.snapshots.helpers import in_memory
from tests.waiting import until


class Ignoring(Processor[str, str, str, str]):
    """Have a store, and do nothing."""

    def process(self, record: Record[str, str]) -> None:
        """Drop the record."""


HISTORY = [f"k{number % 30}" for number in range(300)]
LIVE = [f"k{number % 7}" for number in range(50)]


@pytest.fixture
async def log() -> AsyncIterator[EmbeddedLog]:
    async with EmbeddedLog() as made:
        yield made


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
@pytest.mark.parametrize("exact", [True, False])
async def test_history_and_live_tail_are_as_if_all_had_been_streamed(
    log: EmbeddedLog, guarantee: str, store: str, tmp_path: Path, *, exact: bool
) -> None:
    """A snapshot made without an app is gone on from where it ends; a later wipe restores the right state from the changelog."""
    uri, heard = in_memory(), Heard()
    app = app_of(log, tmp_path, store=store, listener=heard, processing_guarantee=guarantee)
    await app._create_topics(log)
    await put(log, HISTORY)
    place = counted(uri, HISTORY, until=len(HISTORY))
    manifest = await app.seed(place if exact else uri)
    assert manifest is not None
    assert manifest.tasks["0_0"].stores["counts"].rows == 30
    assert await table(log) == Counter(HISTORY)
    await put(log, LIVE)
    async with app:
        assert heard.told[-1] == ("end", "counts", 0 if store == "rocksdb" else 30)
        await app.wait_until_caught_up()
        assert await totals_of(app) == Counter(HISTORY + LIVE)
    out = await contents(log, TopicPartition("out", 0))
    assert len(out) == len(LIVE)
    shutil.rmtree(tmp_path)
    async with app_of(log, tmp_path, store=store, processing_guarantee=guarantee) as again:
        assert await totals_of(again) == Counter(HISTORY + LIVE)


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
async def test_loaded_state_is_not_restored_again(log: EmbeddedLog, store: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """An app that looks for snapshots where it was seeded from begins in peace; one that was not seeded is told to be."""
    uri = in_memory()
    async with EmbeddedLog() as fresh:
        await app_of(fresh, tmp_path / "not")._create_topics(fresh)
        await put(fresh, HISTORY)
        counted(uri, HISTORY, until=len(HISTORY))
        async with app_of(fresh, tmp_path / "not", store=store, snapshot_uri=uri):
            pass
        assert "load the snapshot with App.seed" in caplog.text
        caplog.clear()
    app = app_of(log, tmp_path / "seeded", store=store, snapshot_uri=uri)
    await app._create_topics(log)
    await put(log, HISTORY)
    await app.seed(uri)
    async with app:
        assert await totals_of(app) == Counter(HISTORY)
    assert "snapshot" not in caplog.text


async def test_a_task_that_was_handed_over_with_nothing_is_not_asked_for_again(
    log: EmbeddedLog, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Its changelogs are as empty as those of an app that was not seeded, and there is nothing to begin with."""
    uri = in_memory()
    app = app_of(log, tmp_path, snapshot_uri=uri)
    await app._create_topics(log)
    await put(log, HISTORY)
    counted(uri, [], until=len(HISTORY))
    await app.seed(uri)
    async with app:
        assert await totals_of(app) == {}
    assert "snapshot" not in caplog.text


async def test_keys_of_the_changelog_that_the_snapshot_lacks_are_deleted(log: EmbeddedLog, tmp_path: Path) -> None:
    """After overwriting, the changelog gives exactly the snapshot, also to an instance with older state on its disk."""
    uri = in_memory()
    async with app_of(log, tmp_path) as app:
        await put(log, ["old", "k1", "k1"])
        await app.wait_until_caught_up()
    elsewhere = tmp_path.with_name("elsewhere")
    shutil.copytree(tmp_path, elsewhere)
    place = counted(uri, HISTORY, until=3)
    with pytest.raises(SnapshotRefused, match="has committed offsets of 1 partition,"):
        await app_of(log, tmp_path).seed(place)
    assert await app_of(log, tmp_path).seed(place, if_seeded="skip") is None
    assert await table(log) == {"old": 1, "k1": 2}
    for _ in range(2):
        assert await app_of(log, tmp_path).seed(place, if_seeded="overwrite") is not None
    assert await table(log) == Counter(HISTORY)
    for directory in (tmp_path, elsewhere):
        async with app_of(log, directory) as app:
            assert await totals_of(app) == Counter(HISTORY)


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
async def test_headers_of_all_rows_reach_the_changelog(log: EmbeddedLog, store: str, tmp_path: Path) -> None:
    """Also those of a batch in which a row has no timestamp, as all rows have that were there before their store had headers."""
    uri, shape = in_memory(), Shape("s", "timestamped_key_value_with_headers")
    with SnapshotWriter(uri, "app", created_ms=1_000) as snapshot:
        rows = snapshot.store("0_0", shape)
        rows.write(Batch([b"a", b"b"], [b"1", b"2"], [5, -1], [(("trace", b"x"),), (("trace", b"y"),)]))
        snapshot.add("0_0", rows.close(), positions=[SourcePosition("in", 0, 0)])
        snapshot.commit()
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("s", type=store, headers=True))  # type: ignore[arg-type]  # of two words
    builder.stream("in", STRINGS).process(Ignoring, "s").to("out", STRINGS_OUT)
    config = StreamsConfig(application_id="app", state_dir=tmp_path, default_key_serde=serdes.STRING, default_value_serde=serdes.STRING)
    app = App(builder.build(), config, log=log, topics={"in": 1, "out": 1})
    await app._create_topics(log)
    await app.seed(uri)
    fetcher = log.fetcher(client_id="test", isolation=IsolationLevel.READ_COMMITTED)
    fetcher.assign({TopicPartition("app-s-changelog", 0): 0})
    (fetched,) = await fetcher.fetch(max_wait_ms=50)
    await fetcher.close()
    assert fetched.batch.timestamps == [5, 0]
    assert fetched.batch.headers == [(("trace", b"x"),), (("trace", b"y"),)]


async def test_a_group_with_members_is_refused(log: EmbeddedLog, tmp_path: Path) -> None:
    """While an instance runs its state is not replaced under it."""
    uri = in_memory()
    async with app_of(log, tmp_path / "one") as app:
        await put(log, ["a"])
        place = counted(uri, ["a"], until=1)
        with pytest.raises(NotRunning, match="has already been started"):
            await app.seed(place)
        with pytest.raises(SnapshotRefused, match="has other members"):
            await app_of(log, tmp_path / "two").seed(place)
        await app.wait_until_caught_up()
        assert await totals_of(app) == {"a": 1}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("no position", "has no position for in-0"),
        ("beyond", "continues at offset 999 of in-0, which has offsets 0 to 300"),
        ("task", "has tasks that this topology does not have: 7_0"),
        ("application", "is a snapshot of application other"),
        ("store", "task 0_0 has stores none; this topology has counts"),
        ("topic", "has positions of partitions that this topology does not read: elsewhere-0"),
        ("nothing", "has no complete snapshot"),
    ],
)
async def test_mismatching_snapshots_are_refused_before_anything_is_written(log: EmbeddedLog, wrong: str, said: str, tmp_path: Path) -> None:
    """Foreign, partial, or of another place in the input: refused, and the log is as it was."""
    uri = in_memory()
    app = app_of(log, tmp_path)
    await app._create_topics(log)
    await put(log, HISTORY)
    if wrong in {"store", "topic"}:
        with SnapshotWriter(uri, "app", created_ms=1) as writer:
            writer.add("0_0", positions=[SourcePosition("in", 0, 1)])
            if wrong == "topic":
                rows = writer.store("0_0", COUNTS)
                writer.add("0_0", rows.close(), positions=[SourcePosition("elsewhere", 0, 1)])
            writer.commit()
        place = uri
    elif wrong == "nothing":
        place = uri
    else:
        until = {"no position": None, "beyond": 999}.get(wrong, 300)
        task = "7_0" if wrong == "task" else "0_0"
        place = counted(uri, HISTORY, until=until, task=task, application_id="other" if wrong == "application" else "app")
    with pytest.raises(SnapshotRefused, match=said):
        await app.seed(place)
    if wrong not in {"application", "nothing"}:
        assert await contents(log, CHANGELOG) == []


@pytest.mark.parametrize("harm", ["flipped", "short"])
async def test_a_snapshot_that_turns_out_broken_leaves_nothing_behind(log: EmbeddedLog, harm: str, tmp_path: Path) -> None:
    """Records sent before the broken block are void, nothing is on disk, and a good one can be handed over after that."""
    uri = in_memory()
    app = app_of(log, tmp_path)
    await app._create_topics(log)
    keys = [f"k{number:06d}" for number in range(20_000)]
    await put(log, keys)
    place = Place.of(counted(uri, keys, until=len(keys)))
    file = place.at("0_0", "counts-00000.rows")
    good = file.read()
    assert good is not None
    file.write(good[:-100] + bytes((good[-100] ^ 1,)) + good[-99:] if harm == "flipped" else good[: len(good) // 2])
    with pytest.raises(SnapshotRefused):
        await app.seed(str(place))
    assert await contents(log, CHANGELOG) == []
    assert not list((tmp_path / "app" / "0_0").glob("rocksdb*"))
    file.write(good)
    assert await app.seed(str(place)) is not None
    async with app:
        await app.wait_until_caught_up()
        assert await totals_of(app) == Counter(keys)


@pytest.mark.parametrize("thrown_out", [False, True])
async def test_a_member_that_joins_meanwhile_waits(log: EmbeddedLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, thrown_out: bool) -> None:
    """An instance that starts in the middle begins with the loaded state; when the group does not wait, nothing has changed."""
    uri = in_memory()
    app = app_of(log, tmp_path / "one")
    await app._create_topics(log)
    await put(log, HISTORY)
    place = counted(uri, HISTORY, until=len(HISTORY))
    gate, make = asyncio.Event(), log.transactional_producer

    async def wait_and_make(*given: Any, **named: Any) -> TransactionalProducer:
        await gate.wait()
        return await make(*given, **named)

    monkeypatch.setattr(log, "transactional_producer", wait_and_make)
    seeding = asyncio.ensure_future(app.seed(place))
    await until(lambda: members(log))
    other = app_of(log, tmp_path / "two")
    starting = asyncio.ensure_future(other.start())
    await until(lambda: len(members(log)) >= 2)
    if thrown_out:
        members(log)[0].expire()
    gate.set()
    if thrown_out:
        with pytest.raises(SnapshotFailed, match="got another member"):
            await seeding
    else:
        assert await seeding is not None
    await starting
    await other.wait_until_caught_up()
    assert await totals_of(other) == Counter(HISTORY)
    assert len(await contents(log, TopicPartition("out", 0))) == (300 if thrown_out else 0)
    await other.close()


def members(log: EmbeddedLog) -> list[EmbeddedMembership]:
    return list(log._groups.get("app")._members.values())


async def test_a_log_that_fails_at_the_commit_leaves_nothing_and_it_can_be_done_again(log: EmbeddedLog, tmp_path: Path) -> None:
    """When the transaction fails readers see nothing of it; the second time all is there once."""
    uri = in_memory()
    app = app_of(log, tmp_path)
    await app._create_topics(log)
    await put(log, HISTORY)
    place = counted(uri, HISTORY, until=len(HISTORY))
    log._faults.order("commit", LogError("no"), times=1, after=False)
    with pytest.raises(LogError, match="no"):
        await app.seed(place)
    assert await contents(log, CHANGELOG) == []
    await app.seed(place)
    assert await table(log) == Counter(HISTORY)
    assert len(await contents(log, CHANGELOG)) == 30


async def test_a_seed_takes_the_place_of_state_of_a_former_changelog(log: EmbeddedLog, tmp_path: Path) -> None:
    """As after a reset on another machine: the database that was loaded stays, and nothing is restored."""
    uri, heard = in_memory(), Heard()
    async with app_of(log, tmp_path) as app:
        await put(log, HISTORY)
        await app.wait_until_caught_up()
    await log.delete_topics([CHANGELOG.topic])
    place = counted(uri, HISTORY, until=len(HISTORY))
    app = app_of(log, tmp_path, listener=heard)
    await app.seed(place, if_seeded="overwrite")
    async with app:
        assert await totals_of(app) == Counter(HISTORY)
        assert heard.told[-1] == ("end", "counts", 0)


class Alone:
    """A grouper that makes the groups of apps without a grouper."""

    name = "alone"

    def group(self, topics: Mapping[int, Collection[str]], partitions: Mapping[str, int]) -> Mapping[TaskId, Collection[TopicPartition]]:
        return group_partitions(topics, partitions)


async def test_an_app_with_a_grouper_takes_no_state_of_other_apps(log: EmbeddedLog, tmp_path: Path) -> None:
    """The partitions that the state is from may have been grouped into other tasks."""
    uri = in_memory()
    counted(uri, HISTORY, until=0)
    app = App(counting("rocksdb"), app_of(log, tmp_path).config, log=log, topics={"in": 1, "out": 1}, grouper=Alone())
    with pytest.raises(SnapshotRefused, match="an app with a partition grouper"):
        await app.seed(uri)
