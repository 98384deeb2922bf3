"""Which members of a group are processes of this machine, and which of them have died.

A group finds out that a member has died when its session is over. On the same machine there is a sooner sign: a process has a file locked for as long
as it is a member, and what is locked by a process that has died is not locked any more. A frozen process keeps its lock, and its place.

    <temporary directory>/ks-actors-<user>/<group, by a hash>/<client id, by a hash>
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import LogError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST: Final = 4096
_LINES: Final = 3


@final
class Dead:
    """Who has died, and not left; nobody else of this machine sees it so until `release`.

    The ids are empty when it died before it had said them, or had none.
    """

    def __init__(self, client_id: str, transactional_id: str, path: Path, lock: int) -> None:
        self.client_id: str = client_id
        self.transactional_id: str = transactional_id
        self._path: Path = path
        self._lock: int = lock

    def forget(self) -> None:
        """Note that the group has it no more."""
        self._path.unlink(missing_ok=True)

    def release(self) -> None:
        """Let others have a look."""
        os.close(self._lock)


@final
class Neighbours:
    """The members of a group on this machine, of this user. Nothing of it waits; each call is a few looks at a small directory.

    `entered` tells whether the others can see this one. A directory that cannot be used, or that others could write to, leaves everybody unseen.
    """

    def __init__(self, servers: str, group_id: str, client_id: str, transactional_id: str = "") -> None:
        self._directory: Path = Path(tempfile.gettempdir(), f"ks-actors-{os.getuid()}", _hashed(f"{servers} {group_id}"))
        self._ids: bytes = f"{client_id}\n{transactional_id}\n".encode()
        self._name: str = _hashed(client_id)
        self._lock: int | None = None

    @property
    def entered(self) -> bool:
        """Return whether this member is seen by others."""
        return self._lock is not None

    def enter(self) -> None:
        """Be seen from now on; not when somebody looks at what this process left there when it died: try again. Raises LogError."""
        try:
            self._make_directory()
            lock = _locked(self._directory / self._name, os.O_CREAT)
            if lock is not None:
                os.truncate(lock, 0)
                os.write(lock, self._ids)
                self._lock = lock
        except OSError as error:
            raise LogError(f"{self._directory} cannot be used: {error}") from error

    def _make_directory(self) -> None:
        parent = self._directory.parent
        parent.mkdir(mode=0o700, exist_ok=True)
        found = parent.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{parent} is not a directory of this user's own")
        self._directory.mkdir(mode=0o700, exist_ok=True)

    def dead(self) -> Iterator[Dead]:
        """Find those that have died, one after the other; each is to be released. Raises LogError."""
        try:
            for path in self._directory.iterdir():
                if path.name != self._name and (lock := _locked(path)) is not None:
                    yield Dead(*_ids(os.read(lock, _LONGEST)), path, lock)
        except OSError as error:
            raise LogError(f"{self._directory} cannot be looked at: {error}") from error

    def leave(self, *, known: bool) -> None:
        """Be seen no more. When the group does not know that this member has left, to others it has died: they tell the group."""
        if self._lock is not None:
            if known:
                with suppress(OSError):
                    (self._directory / self._name).unlink()
            os.close(self._lock)
            self._lock = None


def _locked(path: Path, flags: int = 0) -> int | None:
    """Open a file that nobody has locked, and lock it; None when somebody has, or when it is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(file).st_ino == path.stat().st_ino:
            return file
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(file)
        raise
    # Somebody has it, or had it and took it away.
    os.close(file)
    return None


def _ids(told: bytes) -> tuple[str, str]:
    lines = told.decode(errors="replace").split("\n")
    return (lines[0], lines[1]) if len(lines) == _LINES else ("", "")


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
