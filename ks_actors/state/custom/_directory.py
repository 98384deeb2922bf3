"""The directories of custom stores and supplied engines below that of their task."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ks_actors._errors import StateError
from ks_actors.state.disk import DATABASE, DRAFT, ENGINES, OTHERWISE, TOPIC_IDS, refuse
from ks_actors.state.disk import NAME as CHECKPOINT_FILE
from ks_actors.topology import StorePlace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from ks_actors.topology import StoreSpec

TAKEN: Final = frozenset(
    {
        *(DATABASE, DRAFT, ENGINES, CHECKPOINT_FILE, f"{CHECKPOINT_FILE}.tmp"),
        *(TOPIC_IDS, f"{TOPIC_IDS}.tmp"),
    }
)
"""The names that a task's directory uses itself."""
_FILES: Final = TAKEN - {ENGINES}
"""Those that are no directories of stores."""

OPEN: Final = ".open"
"""The end of the name of the marker beside the directory of an open store."""

LEFT: Final = ".left"
"""The end of the name of the marker beside a directory whose store ignores its changelog."""

RETURNED: Final = (
    "it was not in the topology, or had no changelog, for a time, and its changelog may lack the "
    "deletions until then"
)

_OF_DATABASE: Final = (
    *("CURRENT", "IDENTITY", "LOCK", "LOG*", "MANIFEST-*", "OPTIONS-*"),
    *("*.sst", "*.log", "*.dbtmp", "rocksdict-config.json"),
)


def marker_of(directory: Path, suffix: str) -> Path:
    """Return the path of a marker beside the directory of a store."""
    return directory.with_name(f".{directory.name}{suffix}")


def is_taken(name: str) -> bool:
    """Return whether a task's directory uses a name itself, ignoring case."""
    lowered = name.casefold()
    return lowered in TAKEN or (lowered.startswith(".") and lowered.endswith((OPEN, LEFT)))


def directory_of(task: Path, name: str) -> Path:
    """Return the directory of a custom store."""
    return task / (name + OTHERWISE if is_taken(name) else name)


def look_around(
    task: str, directory: Path | None, specs: Sequence[StoreSpec]
) -> tuple[frozenset[str], dict[str, str]]:
    """Put the directories of stores in order, before anything of the task is opened.

    Return the names in the task's directory; and the stores with changelogs that were absent, each
    with the reason to discard it. Raises StateError.
    """
    if directory is None:
        return frozenset(), {}
    try:
        names = _names_in(directory)
        if not names or (names <= _FILES and all(map(_kept_elsewhere, specs))):
            return names, {}
        _settle(directory, specs)
        _note_absent(directory, specs)
        places = _places(directory, specs)
        absent = {name: RETURNED for at, name in places.items() if marker_of(at, LEFT).exists()}
        return _names_in(directory), absent
    except OSError as error:
        refuse(error, f"task {task}: the state in {directory}")


def _names_in(directory: Path) -> frozenset[str]:
    # One request for all files of a task: an instance may open a thousand tasks at once.
    try:
        with os.scandir(directory) as found:
            return frozenset(each.name for each in found)
    except FileNotFoundError:
        return frozenset()


def _settle(task: Path, specs: Sequence[StoreSpec]) -> None:
    """Move directories of an earlier layout, in which a directory always had its store's name.

    Raises StateError for the only copy of a store whose files are among those of the database or
    the engines.
    """
    stores = {spec.name: spec.logging for spec in specs if spec.place is StorePlace.CUSTOM}
    engines = {spec.name for spec in specs if spec.place is StorePlace.ENGINE}
    for name, logged in stores.items():
        old, new = task / name, directory_of(task, name)
        if old == new or new.exists() or not old.is_dir():
            continue
        own = _own_files(old, engines)
        if own is None:
            if (marker := marker_of(old, OPEN)).exists():
                marker.rename(marker_of(new, OPEN))
            old.rename(new)
        elif own and not logged:
            raise StateError(
                f"store {name} has its only copy in {old}, which is also the directory of the "
                f"task's database or engines: move its own files ({', '.join(own[:9])}) to {new}"
            )


def _own_files(directory: Path, engines: Collection[str]) -> list[str] | None:
    """Return the files of a custom store among those of the task; None if all are its own."""
    if not (
        (directory / "CURRENT").exists() or any((directory / name).is_dir() for name in engines)
    ):
        return None
    return sorted(
        each.name
        for each in directory.iterdir()
        if each.name not in engines and not any(map(each.match, _OF_DATABASE))
    )


def _note_absent(task: Path, specs: Iterable[StoreSpec]) -> None:
    """Mark the directories with files whose stores are not among the `specs` with changelogs.

    Offsets in these directories cannot be changed, and must not count when the stores come back.
    """
    followed = set(_places(task, specs))
    engines = task / ENGINES
    there = [each for each in _directories(task) if each.name.casefold() not in TAKEN]
    for directory in {*there, *_directories(engines)} - followed:
        if any(directory.iterdir()):
            marker_of(directory, LEFT).touch()


def note_present(task: Path | None, specs: Iterable[StoreSpec]) -> None:
    """Remove the markers of the stores with changelogs, once their old state is deleted."""
    for place in () if task is None else _places(task, specs):
        marker_of(place, LEFT).unlink(missing_ok=True)


def _kept_elsewhere(spec: StoreSpec) -> bool:
    return spec.place not in {StorePlace.CUSTOM, StorePlace.ENGINE}


def _places(task: Path, specs: Iterable[StoreSpec]) -> dict[Path, str]:
    """Return the directories of the custom stores and engines with changelogs, with their names."""
    return {
        directory_of(task, spec.name)
        if spec.place is StorePlace.CUSTOM
        else task / ENGINES / spec.name: spec.name
        for spec in specs
        if spec.logging and not _kept_elsewhere(spec)
    }


def _directories(parent: Path) -> list[Path]:
    return [each for each in parent.iterdir() if each.is_dir()] if parent.is_dir() else []
