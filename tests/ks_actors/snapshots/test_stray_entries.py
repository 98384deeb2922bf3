"""Places of snapshots that have more in them than good snapshots."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from ks_actors import ConfigError, ResetRefused, SnapshotRefused
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.snapshots import Place, SnapshotReader, SnapshotWriter, delete_old_snapshots, find_snapshots
from ks_actors.snapshots._retention import ABANDONED_MS
from ks_actors.testing import AppHarness
from tests.ks_actors.runtime.helpers import counting, feed_all, in_app
from tests.ks_actors.runtime.snapshots.bootstraps import app_of, put, totals_of
from tests.ks_actors.runtime.snapshots.test_taking import TOPICS, records
from tests.ks_actors.snapshots.helpers import in_memory, write

ROWS = [(b"a", b"1", 5)]


def place_of(kind: str, directory: Path) -> str:
    return in_memory() if kind == "memory" else f"file://{directory}/snapshots"


def put_stray(uri: str, name: str) -> None:
    """Write a file beside the snapshots of app."""
    files, path = import_module("fsspec.core").url_to_fs(uri)
    files.makedirs(f"{path}/app", exist_ok=True)
    files.pipe_file(f"{path}/app/{name}", b"anything")


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_files_beside_snapshots_are_skipped(kind: str, tmp_path: Path) -> None:
    """Snapshots are found and old ones deleted; the files stay, also those with names like snapshots."""
    uri = place_of(kind, tmp_path)
    strays = [".DS_Store", "README", "2024-notes.txt", "000000000000001-0123abcd"]
    for name in strays:
        put_stray(uri, name)
    for created_ms in (1, 2, 3):
        write(uri, ROWS, created_ms=created_ms)
    found, refused = find_snapshots(uri, "app")
    assert ([each.manifest.created_ms for each in found], refused) == ([3, 2, 1], [])
    assert len(delete_old_snapshots(uri, "app", keep=2, now_ms=10 * ABANDONED_MS)) == 1
    assert [each.manifest.created_ms for each in find_snapshots(uri, "app")[0]] == [3, 2]
    files, path = import_module("fsspec.core").url_to_fs(uri)
    assert all(files.exists(f"{path}/app/{name}") for name in strays)


def test_directories_that_are_no_snapshots_are_kept(tmp_path: Path) -> None:
    """An unfinished snapshot is deleted after a day, but not a directory that only begins with digits."""
    for name in ("2024-backup", "7", "000000000000001-notes", "000000000000001-0123abcd"):
        (tmp_path / "app" / name).mkdir(parents=True)
    assert delete_old_snapshots(str(tmp_path), "app", keep=2, now_ms=10 * ABANDONED_MS) == ["000000000000001-0123abcd"]
    assert len(list((tmp_path / "app").iterdir())) == 3


def unreadable(place: Path) -> None:
    """Make a snapshot whose manifest nobody can read, not even root."""
    place.mkdir(parents=True)
    (place / "manifest.json").symlink_to("manifest.json")


def test_an_unreadable_snapshot_leaves_the_others(tmp_path: Path) -> None:
    """It is refused by name; others are found, and old ones deleted before the error is raised."""
    bad = tmp_path / "app" / "000000000000009-0123abcd"
    unreadable(bad)
    for created_ms in (1, 2, 3):
        write(str(tmp_path), ROWS, created_ms=created_ms)
    found, (refused,) = find_snapshots(str(tmp_path), "app")
    assert len(found) == 3
    assert f"{bad} cannot be read: " in str(refused)
    with pytest.raises(OSError, match="symbolic links"):
        delete_old_snapshots(str(tmp_path), "app", keep=1, now_ms=10 * ABANDONED_MS)
    assert [each.manifest.created_ms for each in find_snapshots(str(tmp_path), "app")[0]] == [3]


def test_a_place_where_nothing_can_be_read_raises_its_error(tmp_path: Path) -> None:
    """As with credentials that allow only to list: it is not taken for an empty place."""
    unreadable(tmp_path / "app" / "000000000000009-0123abcd")
    with pytest.raises(OSError, match="symbolic links"):
        find_snapshots(str(tmp_path), "app")
    (tmp_path / "other").write_text("a file")
    with pytest.raises(NotADirectoryError, match="is a file: snapshots need a directory"):
        find_snapshots(str(tmp_path), "other")


def test_an_unreadable_row_file_refuses_its_snapshot(tmp_path: Path) -> None:
    """So an app goes on to the next older one."""
    write(str(tmp_path), ROWS)
    (found,), _ = find_snapshots(str(tmp_path), "app")
    (rows,) = tmp_path.rglob("*.rows")
    rows.unlink()
    rows.symlink_to(rows.name)
    with pytest.raises(SnapshotRefused, match=r"\.rows cannot be read: "):
        SnapshotReader.open(found.place).verify()


async def test_an_app_starts_from_snapshots_beside_a_stray_file(tmp_path: Path) -> None:
    """Its tasks begin with the newest snapshot, no more than `snapshot_keep` are kept, and App.seed finds it too."""
    uri = f"file://{tmp_path}/snapshots"
    async with EmbeddedLog() as log:
        async with app_of(log, tmp_path / "one", snapshot_uri=uri, snapshot_keep=1) as app:
            await put(log, ["a", "b", "a"])
            await app.wait_until_caught_up()
            put_stray(uri, ".DS_Store")
            for _ in range(2):
                await app.snapshot()
        assert len(find_snapshots(uri, "app")[0]) == 1
        async with app_of(log, tmp_path / "two", snapshot_uri=uri) as app:
            assert app.metrics()["snapshot-restored-tasks-total"] == 1
            assert await totals_of(app) == {"a": 2, "b": 1}
    async with EmbeddedLog() as there:
        await (app := app_of(there, tmp_path / "three"))._create_topics(there)
        await put(there, ["a", "b", "a"])
        assert await app.seed(uri) is not None


@in_app(counting("rocksdb"), topics=TOPICS, snapshot_uri=in_memory(), start=False)
async def test_a_start_empties_only_its_own_copies(harness: AppHarness) -> None:
    """Other files in the state directory stay, such as snapshots that somebody has put there for App.seed."""
    kept = harness.state_dir / "snapshots" / "app" / "000000000000001-0123abcd" / "manifest.json"
    left_over = harness.state_dir / ".snapshot-copies" / "0_0-1" / "CURRENT"
    for path in (kept, left_over):
        path.parent.mkdir(parents=True)
        path.write_text("{}")
    await harness.start()
    await feed_all(harness, "in", records("a"))
    await harness.app.snapshot()
    assert kept.exists()
    assert not left_over.exists()


def test_logins_of_places_are_not_shown(tmp_path: Path) -> None:
    """Neither in a place's text nor in its errors, also when the password has an @."""
    place = Place.of("http://ann:s3c@ret@host.invalid/x")
    assert str(place.at("app")) == "http://***@host.invalid/x/app"
    assert place.at("app").uri == "http://ann:s3c@ret@host.invalid/x/app"
    with pytest.raises(ConfigError, match="nowhere://") as caught:
        Place.of("nowhere://ann:s3c@ret@host.invalid/x")
    assert "ret" not in str(caught.value)
    assert "ann" not in str(caught.value)
    assert str(SnapshotWriter(f"file://{tmp_path}", "app", created_ms=1).place).startswith("file:///")


async def test_the_login_of_a_place_that_a_reset_cannot_list_is_not_shown(tmp_path: Path) -> None:
    """Here nothing answers there: the error names the place, without user and password."""
    async with EmbeddedLog() as log:
        async with app_of(log, tmp_path):
            pass
        with pytest.raises(ResetRefused, match=r"the snapshots at ftp://\*\*\*@127\.0\.0\.1:1/x: ") as caught:
            await app_of(log, tmp_path, snapshot_uri="ftp://ann:s3c@ret@127.0.0.1:1/x").reset()
        assert "ann" not in str(caught.value)
