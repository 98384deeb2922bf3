"""`ks-actors snapshots`: the snapshots of an application."""

from __future__ import annotations

import time
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click
from rich.progress import track

from ks_actors._errors import SnapshotRefused
from ks_actors.cli._application import of_application
from ks_actors.cli._output import progress_console, reported, show
from ks_actors.config import without_login
from ks_actors.snapshots import find_snapshots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.cli._application import Application
from ks_actors.snapshots import SnapshotReader


@click.command()
@click.option("--verify", is_flag=True, help="Read all files, and compare their checksums.")
@of_application
def snapshots(application: Application, *, verify: bool, as_json: bool) -> None:
    """Print the snapshots at the setting snapshot_uri, the newest first.

    Exit codes: 0 all can be read, 1 there is no such place, 3 a snapshot cannot be used.
    """
    config = application.config
    if config.snapshot_uri is None:
        raise click.UsageError("snapshot_uri is not set: -c snapshot_uri=/var/snapshots")
    with reported(config.application_id), _readable(config.application_id):
        found, refused = find_snapshots(config.snapshot_uri, config.application_id)
        if not found and not refused and _is_missing(config.snapshot_uri):
            place = without_login(config.snapshot_uri)
            raise click.ClickException(
                f"{config.application_id}: {place} does not exist; the first snapshot creates it"
            )
        console = progress_console()
        steps = (
            track(found, description="verifying", console=console, transient=True)
            if verify and console.is_terminal
            else found
        )
        rows = [_row(each, verify=verify) for each in steps]
    rows += [{"snapshot": str(error), "problem": "refused"} for error in refused]
    columns = ("snapshot", "age_seconds", "tasks", "stores", "rows", "bytes", "problem")
    show(rows, columns, as_json=as_json)
    if any(row["problem"] is not None for row in rows):
        raise SystemExit(3)


@contextmanager
def _readable(application_id: str) -> Iterator[None]:
    """Turn an error of the place, such as missing credentials, into one line and exit code 1."""
    try:
        yield
    except OSError as error:
        raise click.ClickException(
            f"{application_id}: the snapshots cannot be read: {error}"
        ) from error


def _is_missing(uri: str) -> bool:
    """Return whether the place is a missing local directory; object stores have no directories."""
    files, path = import_module("fsspec.core").url_to_fs(uri)
    local = import_module("fsspec.implementations.local").LocalFileSystem
    return isinstance(files, local) and not files.exists(path)


def _row(found: SnapshotReader, *, verify: bool) -> dict[str, Any]:
    manifest = found.manifest
    stores = [store for task in manifest.tasks.values() for store in task.stores.values()]
    problem = None
    if verify:
        try:
            found.verify()
        except SnapshotRefused as error:
            problem = str(error)
    return {
        "snapshot": manifest.name,
        "created": datetime.fromtimestamp(manifest.created_ms / 1000, UTC).isoformat(),
        "age_seconds": max(0, int(time.time() - manifest.created_ms / 1000)),
        "tasks": len(manifest.tasks),
        "stores": len(stores),
        "rows": sum(store.rows for store in stores),
        "bytes": sum(file.bytes for store in stores for file in store.files),
        "problem": problem,
    }
