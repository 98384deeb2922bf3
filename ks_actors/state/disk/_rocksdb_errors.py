"""The translation of RocksDB errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors._errors import StateError, StateFull, StateLocked, TaskCorrupted

if TYPE_CHECKING:
    from typing import NoReturn

FULL: Final = ("No space left", "File too large", "Disk quota exceeded")
TOO_MANY_FILES: Final = ("Too many open files", "Too many files open")
LOCKED: Final = (
    "lock hold by current process",
    "While lock file",
    "Resource temporarily unavailable",
)
BROKEN: Final = ("Corruption", "No such file")
STALLED: Final = ("Result incomplete", "Write stall", "Writes have been stopped")


def raise_if_full(error: BaseException, where: str) -> None:
    """Raise StateFull if a write has found no room."""
    text = str(error)
    if any(sign in text for sign in FULL):
        raise StateFull(
            f"{where} cannot be written, because the disk is full: free space; committed changes "
            f"are in the changelog ({text})"
        ) from error


def is_stall(error: Exception) -> bool:
    """Return whether a write or a flush was refused because it would have waited."""
    text = str(error)
    return any(sign in text for sign in STALLED)


def refuse(error: Exception, where: str) -> NoReturn:
    """Raise the error class that fits an error of RocksDB."""
    text = str(error)
    raise_if_full(error, where)
    if any(sign in text for sign in TOO_MANY_FILES):
        # Check this before LOCKED: with too many open files, the lock file cannot be opened either.
        raise StateError(
            f"{where} cannot be used, because the process has reached its limit of open files, and "
            "each task with state on disk needs some: raise the limit (`ulimit -n`; App.main "
            "raises it as far as the system allows), share one database (state_layout='shared'), "
            f"keep stores in memory, or spread the tasks over more instances ({text})"
        ) from error
    if any(sign in text for sign in LOCKED):
        raise StateLocked(
            f"{where} is in use by another process, or by another app in this one: stop it, or "
            f"choose another directory ({text})"
        ) from error
    if is_stall(error):
        raise StateError(
            f"{where} cannot be written, because the disk has been too slow for too long: use a "
            f"faster one, or spread the tasks over more instances ({text})"
        ) from error
    if any(sign in text for sign in BROKEN):
        raise TaskCorrupted(f"{where} is damaged: it is deleted and restored ({text})") from error
    raise StateError(f"{where} cannot be used: {text}") from error
