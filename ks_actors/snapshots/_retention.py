"""Deletion of old snapshots."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from ks_actors.snapshots._manifest import MANIFEST
from ks_actors.snapshots._place import Place
from ks_actors.snapshots._reader import find_snapshots

if TYPE_CHECKING:
    from collections.abc import Collection

ABANDONED_MS: Final = 86_400_000
"""The age at which a snapshot without a manifest counts as abandoned, in ms."""


def delete_old_snapshots(
    uri: str | Place, application_id: str, *, keep: int, now_ms: int, spare: Collection[str] = ()
) -> list[str]:
    """Delete snapshots not needed to keep `keep` of each task; return their names. Blocks.

    Instances write separate snapshots of their own tasks. One is deleted when each of its tasks is
    in `keep` newer ones. A snapshot without a manifest is deleted after a day. Names in `spare`
    stay.
    """
    root = (Place.of(uri) if isinstance(uri, str) else uri).at(application_id)
    found, _ = find_snapshots(uri, application_id)
    kept: Counter[str] = Counter()
    gone: list[str] = []
    for snapshot in found:
        tasks = snapshot.manifest.tasks
        if all(kept[task] >= keep for task in tasks) and snapshot.place.name not in spare:
            delete_snapshot(snapshot.place)
            gone.append(snapshot.place.name)
        kept.update(list(tasks))
    whole = {snapshot.place.name for snapshot in found}
    for name in root.names():
        # Names begin with their creation time, see `snapshot_name`.
        began = name.partition("-")[0]
        if (
            name not in whole
            and name not in spare
            and began.isdecimal()
            and now_ms - int(began) > ABANDONED_MS
            and root.at(name, MANIFEST).read() is None
        ):
            root.at(name).delete()
            gone.append(name)
    return gone


def delete_snapshot(uri: str | Place) -> None:
    """Delete a snapshot. Blocks."""
    place = Place.of(uri) if isinstance(uri, str) else uri
    # Delete the manifest first: without it, a partly deleted snapshot does not count.
    place.at(MANIFEST).delete()
    place.delete()
