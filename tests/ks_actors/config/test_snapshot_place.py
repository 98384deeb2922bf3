"""The place of snapshots beside the other settings: it must not overlap local state."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config._settings import local_directory


@pytest.mark.parametrize(
    ("uri", "state_dir"),
    [
        ("file://{0}/state/app/snapshots", "{0}/state"),
        ("{0}/state", "{0}/state"),
        ("file:{0}/state/app", "{0}/state"),
        ("local://{0}/state/../state/", "{0}/state"),
        ("{0}/link/app/deeper", "{0}/state"),
        ("file://{0}/snapshots", "{0}/snapshots/app/state"),
    ],
)
def test_snapshots_that_overlap_local_state_are_refused(uri: str, state_dir: str, tmp_path: Path) -> None:
    """Deleting one would delete the other: the error names both directories, however they are written."""
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    with pytest.raises(ConfigError, match=r"snapshot_uri: .*/app.* overlaps .*/app, .*state_dir.* Name another directory"):
        StreamsConfig(application_id="app", snapshot_uri=uri.format(tmp_path), state_dir=state_dir.format(tmp_path))


def test_a_replaced_state_directory_is_checked_as_well(tmp_path: Path) -> None:
    """`replace` can bring an overlap too."""
    config = StreamsConfig(application_id="app", snapshot_uri=str(tmp_path), state_dir=tmp_path / "state")
    with pytest.raises(ConfigError, match="overlaps"):
        config.replace(state_dir=tmp_path)


@pytest.mark.parametrize("uri", ["{0}/state/snapshots", "file://{0}", "{0}/app-2", "memory://{0}/state", "s3://state/app", "sftp://host{0}/state"])
def test_snapshots_beside_local_state_are_accepted(uri: str, tmp_path: Path) -> None:
    """A common parent does no harm, and other kinds of places are never on the disk of the state."""
    given = uri.format(tmp_path)
    assert StreamsConfig(application_id="app", snapshot_uri=given, state_dir=tmp_path / "state").snapshot_uri == given


def test_local_places_are_understood_as_fsspec_does() -> None:
    """Each form of a URI gives fsspec's own path, or None where fsspec takes another kind."""
    url_to_fs = pytest.importorskip("fsspec.core").url_to_fs
    for uri in ("/a/b", "a/b", "file:///a/b", "file://a/b", "file:/a", "local:///a", "local:a", "~/a", "simplecache::file:///a/b"):
        found = local_directory(uri)
        assert found is not None
        assert str(Path(url_to_fs(uri)[1])) == str(found.absolute()), uri
    for uri in ("memory://a", "s3://bucket/a", "simplecache::memory://a"):
        assert local_directory(uri) is None
