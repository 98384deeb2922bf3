"""Find dead members of a group among the processes of this machine.

A group notices the death of a member only when its session times out. Processes on the same machine
notice the death earlier: a process keeps a file locked while it is a member, and the lock of a dead
process is free. A frozen process keeps its lock, and so stays a member.

    <temporary directory>/ks-actors-<user>/<hash of boot, servers and group>/<hash of client id>

The file has the member ids of the process, so that its successor does not count as dead, and the
path of a file that the process's supervisor, if it has one, keeps locked until it gives up the
process: a dead member that is started again keeps its tasks.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

from ks_actors._errors import LogError
from ks_actors.system import close_locked, open_locked

if TYPE_CHECKING:
    from collections.abc import Iterator

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_LONGEST: Final = 4096
_LINES: Final = 4
_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


@final
class Dead:
    """A dead member that has not left; until `release` no other process on this machine sees it.

    The ids are empty if the member had none.
    """

    def __init__(self, member_id: str, transactional_id: str, path: Path, lock: int) -> None:
        self.member_id: str = member_id
        self.transactional_id: str = transactional_id
        self._path: Path = path
        self._lock: int = lock

    def forget(self) -> None:
        """Remove the member's file, once the group has removed the member. Raises LogError."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as error:
            raise LogError(f"{self._path} cannot be removed: {error}") from error

    def release(self) -> None:
        """Unlock the file for other processes."""
        close_locked(self._lock)


@final
class LocalMembers:
    """The members of a group on this machine, of this user.

    No call blocks; each call does a few operations in a small directory. If the directory is
    unusable, or writable for others, the members do not see each other. As long as
    the file `awaited` of a member is locked, the member is not dead.
    """

    def __init__(
        self,
        servers: str,
        group_id: str,
        client_id: str,
        transactional_id: str = "",
        *,
        awaited: Path | None = None,
    ) -> None:
        self._group: str = f"{servers} {group_id}"
        self._name: str = _hashed(client_id)
        self._transactional_id: str = transactional_id
        self._awaited: str = "" if awaited is None else str(awaited)
        self._member_id: str = ""
        self._directory: Path | None = None
        self._lock: int | None = None

    @property
    def entered(self) -> bool:
        """Return whether this member and the other local members see each other."""
        return self._lock is not None and os.fstat(self._lock).st_nlink > 0

    def enter(self) -> None:
        """Register this member; retry later while another process handles its earlier incarnation.

        Raises LogError.
        """
        self._let_go()
        try:
            directory = self._directory = self._directory or self._find()
            _own(directory.parent)
            _own(directory)
            lock = _locked(directory / self._name, os.O_CREAT)
            if lock is not None:
                try:
                    self._write(lock)
                except BaseException:
                    close_locked(lock)
                    raise
                self._lock = lock
        except OSError as error:
            raise LogError(
                f"could not look for local members of group and cluster {self._group!r}: {error}"
            ) from error

    def _find(self) -> Path:
        # Machines may share the directory, so the boot id tells their processes apart.
        boot = _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else ""
        return Path(
            tempfile.gettempdir(), f"ks-actors-{os.getuid()}", _hashed(f"{boot} {self._group}")
        )

    def know(self, member_id: str) -> None:
        """Write the group's member id into the file. Raises LogError."""
        self._member_id = member_id
        if self._lock is not None:
            try:
                self._write(self._lock)
            except OSError as error:
                raise LogError(
                    f"could not write the member id for group and cluster {self._group!r}: {error}"
                ) from error

    def _write(self, lock: int) -> None:
        os.truncate(lock, 0)
        os.pwrite(lock, self._lines().encode(), 0)

    def _lines(self) -> str:
        return f"{self._member_id}\n{self._transactional_id}\n{self._awaited}\n"

    def dead(self) -> Iterator[Dead]:
        """Yield the dead members, one by one; the caller releases each. Raises LogError."""
        if self._directory is None or not self.entered:
            return
        try:
            paths = [path for path in self._directory.iterdir() if path.name != self._name]
        except OSError as error:
            raise LogError(f"could not list {self._directory}: {error}") from error
        for path in paths:
            with suppress(OSError):  # skip files that cannot be opened
                lock = _locked(path)
                if lock is None:
                    continue
                member_id, transactional_id, awaited = _ids(lock)
                if awaited and _is_locked(Path(awaited)):
                    close_locked(lock)
                else:
                    yield Dead(member_id, transactional_id, path, lock)

    def leave(self, *, known: bool) -> None:
        """Unregister.

        If the group does not know that this member has left (not `known`), the member looks dead,
        and other members report it.
        """
        if self._lock is not None and self._directory is not None and known:
            with suppress(OSError):
                (self._directory / self._name).unlink()
        self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            close_locked(self._lock)
            self._lock = None


def _own(directory: Path) -> None:
    """Make a directory, or check that no other user can write to it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    if not _is_own(directory.lstat(), stat.S_IFDIR):
        raise PermissionError(f"{directory} is not a directory that only this user can write to")


def _is_own(found: os.stat_result, kind: int) -> bool:
    return (
        stat.S_IFMT(found.st_mode) == kind
        and found.st_uid == os.getuid()
        and not found.st_mode & _OTHERS
    )


def _locked(path: Path, flags: int = 0) -> int | None:
    """Open and lock a file.

    Returns None if it is locked, gone, or not this user's own.
    """
    try:
        file = open_locked(path, os.O_NOFOLLOW | os.O_NONBLOCK | flags)
    except (FileNotFoundError, BlockingIOError):
        return None
    is_own = False
    try:
        found = os.fstat(file)
        # If the path has another inode, another process had the file locked and has removed it.
        is_own = _is_own(found, stat.S_IFREG) and found.st_ino == path.stat().st_ino
    except FileNotFoundError:
        return None
    finally:
        if not is_own:
            close_locked(file)
    return file if is_own else None


def _ids(lock: int) -> tuple[str, str, str]:
    """Return the member id, the transactional id and the supervisor's file; empty if unknown."""
    try:
        lines = os.pread(lock, _LONGEST, 0).decode(errors="replace").split("\n")
    except OSError:
        lines = []
    return (lines[0], lines[1], lines[2]) if len(lines) == _LINES else ("", "", "")


def _is_locked(path: Path) -> bool:
    try:
        close_locked(open_locked(path, os.O_NOFOLLOW | os.O_NONBLOCK))
    except BlockingIOError:
        return True
    except OSError:
        pass  # it is gone
    return False


def _hashed(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
