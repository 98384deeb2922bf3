"""Move task directories between members when their number has changed."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import ExitStack
from itertools import count as counting
from typing import TYPE_CHECKING, Final, NamedTuple

from ks_actors._counted import counted
from ks_actors._errors import StateLocked
from ks_actors.lifecycle import component_log
from ks_actors.system import close_locked, open_locked

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    Held = Mapping[int, Mapping[str, int]]
    """By member, the tasks on its disk, with the time of their last change."""

_MEMBERS: Final = "members"
_LOCK: Final = ".lock"
_CLUSTER: Final = ".cluster"
_SHARED: Final = "shared"
_TASK: Final = re.compile(r"\d+_\d+")
_log = component_log(__name__)


class Move(NamedTuple):
    """A task directory that goes from one member to another."""

    task: str
    source: int
    target: int


def plan_moves(held: Held, count: int) -> list[Move]:
    """Return the fewest moves after which each task's newest state is with members 1 to `count`.

    The numbers of tasks of two members then differ by at most one. Each task moves at most once.
    """
    newest: dict[str, int] = {}
    for member in sorted(held):
        for task, changed in held[member].items():
            if task not in newest or changed > held[newest[task]][task]:
                newest[task] = member
    kept: dict[int, list[str]] = {member: [] for member in range(1, count + 1)}
    homeless = []
    for task, member in sorted(newest.items(), key=lambda item: _parts(item[0])):
        if member in kept:
            kept[member].append(task)
        else:
            homeless.append(task)
    share, extra = divmod(len(newest), count)
    # The members with the most tasks keep one task above the share, to save moves.
    for member in sorted(kept, key=lambda member: (-len(kept[member]), member)):
        room = share + (extra > 0)
        extra -= len(kept[member]) > share
        while len(kept[member]) > room:
            homeless.append(_surplus(kept[member]))
    moves = []
    for task in sorted(homeless, key=_parts):
        target = min(kept, key=lambda member: (len(kept[member]), _alike(task, kept[member])))
        kept[target].append(task)
        moves.append(Move(task, newest[task], target))
    return moves


def _surplus(tasks: list[str]) -> str:
    """Take a task of the largest subtopology, so that each subtopology is spread evenly."""
    sizes = Counter(_parts(task)[0] for task in tasks)
    given = max(tasks, key=lambda task: (sizes[_parts(task)[0]], _parts(task)))
    tasks.remove(given)
    return given


def _alike(task: str, tasks: list[str]) -> int:
    return sum(_parts(each)[0] == _parts(task)[0] for each in tasks)


def _parts(task: str) -> tuple[int, int]:
    subtopology, _, partition = task.partition("_")
    return int(subtopology), int(partition)


def adopt(home: Path, application_id: str, count: int, groups: str = "") -> list[Move]:
    """Move the task directories of an application to members 1 to `count`. Blocks.

    Move none, and warn, where state is in a member's shared database (`state_layout`), or where
    members run different queries, by `groups`: most could not run the tasks that they would get.

    No member may have begun. `home` is the state directory of member 1. A directory is renamed, so
    nothing is copied, and a crash in the middle leaves each directory in one place. Raises
    StateLocked when a process uses one of the directories, and OSError.
    """
    places = {1: home} | _members(home, application_id)
    for number in range(2, count + 1):
        places.setdefault(number, home / _MEMBERS / str(number) / application_id)
    with ExitStack() as stack:
        for place in places.values():
            if place.is_dir():
                stack.callback(close_locked, _locked(place))
        known = {number: place for number, place in places.items() if _fits(place, home)}
        held = {number: _tasks(place) for number, place in known.items()}
        # A directory of another cluster takes part in nothing, and its member says why it ends.
        moves = plan_moves(held, count) if known.keys() >= set(range(1, count + 1)) else []
        if groups:
            # By query, shares are uneven in any case: only the state of past members has to go.
            moves = [move for move in moves if move.source > count]
        if moves and (why := _immovable(known.values(), groups)):
            _log.warning(
                "the state of %s stays where it is, as %s: members that get these tasks "
                "restore them from changelogs, and begin stores without changelog empty: %s",
                counted(len(moves), "task"),
                why,
                moves,
            )
            return []
        for move in moves:
            _rename(places[move.source] / move.task, places[move.target])
    if moves:
        _log.info("moved the state of %d tasks to %d members: %s", len(moves), count, moves)
    return moves


def _immovable(places: Iterable[Path], groups: str) -> str:
    """Return the reason why no task directory may move; an empty text if there is none."""
    if groups:
        return f"processes is {groups}, and members run different queries"
    if any((place / _SHARED).is_dir() for place in places):
        return "a member keeps all its tasks in one database (state_layout='shared')"
    return ""


def _members(home: Path, application_id: str) -> dict[int, Path]:
    """Return the directories of the members above 1 that there are."""
    try:
        names = [path.name for path in (home / _MEMBERS).iterdir()]
    except FileNotFoundError:
        return {}
    numbers = [int(name) for name in names if name.isascii() and name.isdigit() and int(name) > 1]
    return {number: home / _MEMBERS / str(number) / application_id for number in sorted(numbers)}


def _locked(place: Path) -> int:
    try:
        return open_locked(place / _LOCK, os.O_CREAT)
    except BlockingIOError as error:
        raise StateLocked(
            f"the state directory {place} is in use by another process: stop it, or give this "
            "application another state_dir"
        ) from error


def _fits(place: Path, home: Path) -> bool:
    """Return whether two directories have state of the same cluster, as far as that is known."""
    return len({_cluster(place), _cluster(home)} - {""}) < 2  # noqa: PLR2004 - one cluster


def _cluster(place: Path) -> str:
    try:
        return (place / _CLUSTER).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _tasks(place: Path) -> dict[str, int]:
    try:
        found = list(place.iterdir())
    except FileNotFoundError:
        return {}
    return {path.name: _changed(path) for path in found if _TASK.fullmatch(path.name)}


def _changed(directory: Path) -> int:
    """Return the time (ns) of the last write; a database writes its own log at each open."""
    paths = (directory, *directory.glob("rocksdb/*.sst"))
    return max(path.stat().st_mtime_ns for path in paths)


def _rename(source: Path, place: Path) -> None:
    """Rename a task directory; an older one in its place goes, as a start deletes it."""
    place.mkdir(parents=True, exist_ok=True)
    target = place / source.name
    if target.exists():
        names = (f"{source.name}.{number}.deleted" for number in counting())
        target.rename(next(path for name in names if not (path := place / name).exists()))
    source.rename(target)
