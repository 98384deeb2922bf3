"""RocksDB does not survive a fork: the child has none of its threads, and would wait for them."""

from __future__ import annotations

import os

from ks_actors._errors import StateError
from ks_actors.system._windows import check_posix

# The first process to open a database: this process, or a process from which it was forked.
_opened_by: int | None = None


def check_fork() -> None:
    """Note that this process opens a database of RocksDB.

    Raises StateError in a process forked from a process that had opened a database, and ConfigError
    on Windows.
    """
    check_posix("a store or log on disk")
    global _opened_by  # noqa: PLW0603 - a child has a copy of it, which is the point
    here = os.getpid()
    if _opened_by not in {None, here}:
        raise StateError(
            f"process {here} was forked from process {_opened_by}, which had used RocksDB: its "
            "threads are not in a forked process, where closing a database would wait for ever. "
            "Start processes by spawn (multiprocessing.get_context('spawn')), or fork before the "
            "first app, log or store is opened"
        )
    _opened_by = here
