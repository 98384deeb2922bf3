"""The state directory of an application: its lock and its process id."""

from __future__ import annotations

import errno
import json
import os
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from ks_actors._errors import ConfigError, StateError, StateFull, StateLocked
from ks_actors.system import close_locked, open_locked

if TYPE_CHECKING:
    from pathlib import Path

PROCESS_FILE = "kafka-streams-process-metadata"
CLUSTER_FILE = ".cluster"
"""The file with the id of the cluster whose topics the state was made from."""


class StateDirectory:
    """`<state_dir>/<application id>`, locked for one instance at a time.

    Its process id lasts as long as the directory. The lock ends when the instance closes it or its
    process ends, even if that process has forked others.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._lock: int | None = None

    def open(self, cluster: str = "") -> str:
        """Create the directory if needed, lock it, and return the process id. Blocks.

        The directory keeps the cluster's id, if known. Raises ConfigError for another id, and
        StateLocked if another instance has the directory. Raises StateFull if there is no room for
        its files, and StateError if it cannot be used.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open_locked(self.path / ".lock", os.O_CREAT)
            if not check_cluster(self.path, cluster) and cluster:
                _write(self.path / CLUSTER_FILE, cluster)
            return self._process_id()
        except ConfigError:
            self.close()
            raise
        except BlockingIOError as error:
            raise StateLocked(
                f"the state directory {self.path} is in use by another instance: stop it, or give "
                "this one another state_dir"
            ) from error
        except OSError as error:
            self.close()
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StateFull(
                    f"the state directory {self.path} cannot be written, because the disk is full: "
                    f"free space ({error})"
                ) from error
            raise StateError(
                f"the state directory {self.path} cannot be used: {error}; set state_dir to a "
                "directory that the app can write"
            ) from error

    def _process_id(self) -> str:
        try:
            return str(json.loads((self.path / PROCESS_FILE).read_text())["processId"])
        except (OSError, ValueError, KeyError, TypeError):
            # The file is missing or cut off by a crash. With a new id, the group only loses the
            # information which tasks have state here.
            found = str(uuid.uuid4())
        _write_process_id(self.path, found)
        return found

    def forget_process_id(self) -> None:
        """Remove the process id, so that the next start makes another id."""
        with suppress(OSError):  # the next start has the same id, and the same error
            (self.path / PROCESS_FILE).unlink(missing_ok=True)

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            close_locked(self._lock)
            self._lock = None


def write_process_id(path: Path, process_id: str) -> None:
    """Set the process id of a new directory; an existing id stays. Blocks."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / PROCESS_FILE).exists():
        _write_process_id(path, process_id)


def check_cluster(path: Path, cluster: str) -> str:
    """Return the id of the cluster that a directory's state belongs to; empty if unknown.

    Raises ConfigError if `cluster` is known and differs. Blocks.
    """
    file = path / CLUSTER_FILE
    try:
        kept = file.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        kept = ""
    if kept and cluster and kept != cluster:
        raise ConfigError(
            f"the state in {path} is of cluster {kept!r}, and the bootstrap servers are of cluster "
            f"{cluster!r}: name the servers of cluster {kept!r}, or another state_dir; if cluster "
            f"{cluster!r} has replaced it for good, delete {file}: stores are then filled again"
        )
    return kept


def _write_process_id(path: Path, process_id: str) -> None:
    _write(path / PROCESS_FILE, json.dumps({"processId": process_id}))


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.tmp")
    fresh.write_text(text)
    fresh.replace(path)
