"""The state directory of an application: who may use it, and who it is."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING

from ks_actors._errors import StateError, StateLocked
from ks_actors.system import close_locked, open_locked

if TYPE_CHECKING:
    from pathlib import Path

PROCESS_FILE = "kafka-streams-process-metadata"


class StateDirectory:
    """`<state_dir>/<application id>`, for one instance at a time; it has a process id that lasts as long as the directory.

    It is free again when the instance closes it, and when its process ends, whatever that process has forked.
    """

    def __init__(self, path: Path) -> None:
        self.path: Path = path
        self._lock: int | None = None

    def open(self) -> str:
        """Take the directory, making it if need be; return the process id. Raises StateLocked, StateError. Blocks."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = open_locked(self.path / ".lock", os.O_CREAT)
        except BlockingIOError as error:
            raise StateLocked(
                f"the state directory {self.path} is in use by another instance: stop it, or give this one another state_dir"
            ) from error
        except OSError as error:
            raise StateError(f"the state directory {self.path} cannot be used: {error}; set state_dir to one that can be written") from error
        return self._process_id()

    def _process_id(self) -> str:
        try:
            return str(json.loads((self.path / PROCESS_FILE).read_text())["processId"])
        except (OSError, ValueError, KeyError, TypeError):
            # Not there yet, or cut off by a crash: a new identity costs nothing but the memory of which tasks are warm.
            found = str(uuid.uuid4())
        _write(self.path, found)
        return found

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock is not None:
            close_locked(self._lock)
            self._lock = None


def write_process_id(path: Path, process_id: str) -> None:
    """Say what the process id of a new directory is to be; one that has an id keeps it. Blocks."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / PROCESS_FILE).exists():
        _write(path, process_id)


def _write(path: Path, process_id: str) -> None:
    fresh = path / f"{PROCESS_FILE}.tmp"
    fresh.write_text(json.dumps({"processId": process_id}))
    fresh.replace(path / PROCESS_FILE)
