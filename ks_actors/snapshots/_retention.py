"""Deletion of old snapshots."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ks_actors.snapshots._manifest import MANIFEST
from ks_actors.snapshots._place import Place
from ks_actors.snapshots._reader import find_snapshots

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

ABANDONED_MS: Final = 86_400_000
"""The age at which a snapshot without a manifest counts as abandoned, in ms."""

# Names as `snapshot_name` makes them.
_NAME: Final = re.compile(r"(\d{15,})-[0-9a-f]{8}", re.ASCII)


def delete_old_snapshots(
    uri: str | Place, application_id: str, *, keep: int, now_ms: int, spare: Collection[str] = ()
) -> list[str]:
    """Delete snapshots not needed to keep `keep` of each task; return their names. Blocks.

    Instances write separate snapshots of their own tasks. A snapshot is deleted when each of its
    tasks is in `keep` newer snapshots. A snapshot without a manifest is deleted after a day.
    Snapshots named in `spare` stay, and so does everything that is not named like a snapshot.
    Raises OSError for a snapshot that cannot be read or deleted, after the others are deleted.
    """
    root = (Place.of(uri) if isinstance(uri, str) else uri).at(application_id)
    found, _ = find_snapshots(uri, application_id)
    kept: Counter[str] = Counter()
    gone: list[str] = []
    failed: list[OSError] = []
    for snapshot in found:
        tasks = snapshot.manifest.tasks
        if all(kept[task] >= keep for task in tasks) and snapshot.place.name not in spare:
            with _noted(failed):
                delete_snapshot(snapshot.place)
                gone.append(snapshot.place.name)
        kept.update(list(tasks))
    whole = {snapshot.place.name for snapshot in found}
    for name in root.names():
        if name not in whole and name not in spare and _is_old(name, now_ms):
            with _noted(failed):
                if root.at(name, MANIFEST).read() is None:
                    root.at(name).delete()
                    gone.append(name)
    if failed:
        raise failed[0]
    return gone


def _is_old(name: str, now_ms: int) -> bool:
    began = _NAME.fullmatch(name)
    return began is not None and now_ms - int(began[1]) > ABANDONED_MS


@contextmanager
def _noted(failed: list[OSError]) -> Iterator[None]:
    """Note the error of one snapshot, and continue with the others."""
    try:
        yield
    except OSError as error:
        failed.append(error)


def delete_snapshot(uri: str | Place) -> None:
    """Delete a snapshot. Blocks."""
    place = Place.of(uri) if isinstance(uri, str) else uri
    # Delete the manifest first: without it, a partly deleted snapshot does not count.
    place.at(MANIFEST).delete()
    place.delete()
