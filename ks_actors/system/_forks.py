"""RocksDB does not survive a fork: the child has none of its threads, and would wait for them."""

from __future__ import annotations

import os

from ks_actors._errors import StateError

# The process that has opened a database first, as this one or the one that it was forked from.
_opened_by: int | None = None


def check_fork() -> None:
    """Note that this process opens a database of RocksDB.

    Raises StateError in a process that was forked from one that had opened some.
    """
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
