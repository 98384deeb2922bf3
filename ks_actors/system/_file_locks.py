"""File locks that belong to one process: they end with it, and forked children do not have them."""

from __future__ import annotations

import os
import sys
from threading import RLock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

if sys.platform == "win32":  # pragma: no cover - tests have it in a process of their own
    import msvcrt

    def _lock(file: int) -> None:
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from error

    def _unlock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


_locked: Final[set[int]] = set()
# Held while a file is opened and noted, and while a process forks: so a child knows all the files
# that it inherits.
_forking: Final = RLock()


def open_locked(path: Path, flags: int = 0) -> int:
    """Open a file for reading and writing, lock it, and return its descriptor; never wait.

    `flags` are added to those of `os.open`. A lock of `flock` belongs to the open file, not to the
    process: a forked child (by `multiprocessing`, say) would keep it after the end of its parent.
    So the child closes its copy at once. Raises OSError, and BlockingIOError when any process, this
    one included, has locked the file.
    """
    with _forking:
        file = os.open(path, os.O_RDWR | flags, 0o600)
        try:
            _lock(file)
        except BaseException:
            os.close(file)
            raise
        _locked.add(file)
    return file


def close_locked(file: int) -> None:
    """Unlock and close a file that `open_locked` has opened.

    Does nothing in a process that was forked since: it does not have the file.
    """
    with _forking:
        if file in _locked:
            _locked.discard(file)
            _unlock(file)
            os.close(file)


def _begin_as_child() -> None:
    """Close the parent's files. Do not unlock them: that would unlock them for the parent, too."""
    for file in _locked:
        os.close(file)
    _locked.clear()
    _forking.release()


if sys.platform != "win32":  # there are no forks
    os.register_at_fork(
        before=_forking.acquire, after_in_parent=_forking.release, after_in_child=_begin_as_child
    )
