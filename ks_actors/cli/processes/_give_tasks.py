"""Give tasks a database of their own: `python -m ks_actors.cli.processes._give_tasks PLACE TASK…`.

The supervisor runs it before it moves tasks of a member with one database for all of them. It is a
process of its own, because a supervisor imports no database and must not be forked after it has
used one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ks_actors._errors import KsActorsError

if TYPE_CHECKING:
    from collections.abc import Iterable

_REASON: Final = "reason: "


def give_tasks(place: Path, tasks: Iterable[str]) -> tuple[frozenset[str], str]:
    """Move the rows of tasks from a member's shared database into their directories. Blocks.

    Each row is copied, which takes about as long as a restore from a local broker. Return the tasks
    that can be moved, and the reason why the others cannot. A task without rows there can be moved.
    The process ends with this one; a crash at any point loses nothing.
    """
    command = [sys.executable, "-m", __name__, str(place), *tasks]
    with subprocess.Popen(  # noqa: S603 - our own program
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        process_group=0,  # Ctrl-C reaches the supervisor alone
    ) as process:
        assert process.stdout is not None
        lines = process.stdout.read().splitlines()
    reason = next((line.removeprefix(_REASON) for line in lines if line.startswith(_REASON)), "")
    if process.returncode and not reason:
        reason = f"the process that moves their rows has ended with exit code {process.returncode}"
    return frozenset(line for line in lines if not line.startswith(_REASON)), reason


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def _main(place: Path, tasks: Iterable[str]) -> int:
    from ks_actors.state import SharedDatabase, SharedResources  # noqa: PLC0415 - not in supervisors

    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        # Never delete it: only its member knows which stores have no other copy.
        shared = SharedResources()
        shared.database = SharedDatabase(place, shared, leaving=True, discards=False)
        try:
            for task in tasks:
                shared.database.give(task, place / task)
                _say(task)
        finally:
            shared.close()
    except (KsActorsError, OSError) as error:
        _say(f"{_REASON}{error}".replace("\n", " "))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(Path(sys.argv[1]), sys.argv[2:]))
