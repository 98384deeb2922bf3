"""Where snapshots are: a directory, or what stands for one in an object store, by fsspec."""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, final

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import IO


@final
class Place:
    """A path in a file system that fsspec knows, such as `file:///var/snapshots`, `memory://…`, `s3://bucket/path`. All methods block.

    Raises whatever the file system raises: OSError, mostly.
    """

    def __init__(self, files: Any, path: str) -> None:
        self._files: Any = files
        self._path: str = path.rstrip("/")

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the place that `uri` names; raises ConfigError when fsspec, or what it needs for that kind of place, is not installed."""
        try:
            files, path = import_module("fsspec.core").url_to_fs(uri)
        except ModuleNotFoundError as missing:
            if missing.name != "fsspec":
                raise
            raise ConfigError(
                "snapshots are written and read by the package fsspec, which is not installed: pip install 'ks-actors[snapshots]'"
            ) from missing
        except (ImportError, ValueError) as error:
            raise ConfigError(f"{uri!r} is no place for snapshots: {error}") from error
        return cls(files, path)

    def __str__(self) -> str:
        return str(self._files.unstrip_protocol(self._path))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path.rpartition("/")[2]

    def at(self, *parts: str) -> Place:
        """Return a place below this one."""
        return Place(self._files, "/".join((self._path, *parts)))

    def names(self) -> list[str]:
        """Return the names of what is directly below, in order; nothing when there is no such place."""
        self._files.invalidate_cache()
        try:
            return sorted(path.rstrip("/").rpartition("/")[2] for path in self._files.ls(self._path, detail=False))
        except FileNotFoundError:
            return []

    def read_from(self) -> AbstractContextManager[IO[bytes]]:
        """Open the file to be read from its beginning to its end."""
        opened: AbstractContextManager[IO[bytes]] = self._files.open(self._path, "rb")
        return opened

    def write_to(self) -> IO[bytes]:
        """Open a new file; what there was of that name is gone."""
        self._make_parents()
        opened: IO[bytes] = self._files.open(self._path, "wb")
        return opened

    def read(self) -> bytes | None:
        """Return all of the file, None when there is none."""
        try:
            content: bytes = self._files.cat_file(self._path)
        except FileNotFoundError:
            return None
        return content

    def write(self, content: bytes) -> None:
        """Write a file in one go: nobody finds a part of it."""
        self._make_parents()
        if self._is_local:
            draft = f"{self._path}.{uuid.uuid4().hex[:8]}.tmp"
            self._files.pipe_file(draft, content)
            self._files.mv(draft, self._path)
        else:
            self._files.pipe_file(self._path, content)

    @property
    def _is_local(self) -> bool:
        protocols = self._files.protocol
        return "file" in ((protocols,) if isinstance(protocols, str) else protocols)

    def _make_parents(self) -> None:
        self._files.makedirs(self._path.rpartition("/")[0], exist_ok=True)

    def delete(self) -> None:
        """Delete all that is here; nothing happens when nothing is."""
        self._files.invalidate_cache()
        try:
            self._files.rm(self._path, recursive=True)
        except FileNotFoundError:
            return
