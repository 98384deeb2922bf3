"""Places of snapshots: directories or object stores, accessed by fsspec."""

from __future__ import annotations

import uuid
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self, final

from ks_actors._errors import ConfigError
from ks_actors.snapshots._logins import without_login

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import IO

_PACKAGES: Final = {
    "s3": "'ks-actors[s3]'",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "az": "adlfs",
}
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
# Names of botocore's errors.
_NO_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError",
        "PartialCredentialsError",
        "CredentialRetrievalError",
        "TokenRetrievalError",
    }
)


@final
class Place:
    """A path in a file system of fsspec; all methods block.

    Examples: `file:///var/snapshots`, `memory://…`, `s3://bucket/path`. Methods raise the file
    system's errors, mostly OSError: PermissionError when credentials are missing or refused,
    FileNotFoundError when an object store has no such bucket.
    """

    def __init__(self, files: Any, path: str) -> None:
        self._files: Any = files
        self._path: str = path.rstrip("/")

    @classmethod
    def of(cls, uri: str) -> Self:
        """Return the place at `uri`.

        Raises ConfigError for a bad URI, or when fsspec or its package for that kind is missing.
        """
        try:
            files, path = import_module("fsspec.core").url_to_fs(uri)
        except ModuleNotFoundError as missing:
            if missing.name != "fsspec":
                raise
            raise ConfigError(
                "snapshots need the package fsspec, which is not installed: pip install "
                "'ks-actors[snapshots]'"
            ) from missing
        except (ImportError, ValueError) as error:
            package = _PACKAGES.get(uri.partition("://")[0])
            hint = (
                ""
                if package is None or isinstance(error, ValueError)
                else f": pip install {package}"
            )
            raise ConfigError(
                without_login(f"{uri!r} is not a place for snapshots: {error}{hint}")
            ) from error
        return cls(files, path)

    def __str__(self) -> str:
        return without_login(self.uri)

    @property
    def uri(self) -> str:
        """The URI of this place, with its login if it has one; never print it."""
        return str(self._files.unstrip_protocol(self._path))

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path.rpartition("/")[2]

    def at(self, *parts: str) -> Place:
        """Return a place below this place."""
        return Place(self._files, "/".join((self._path, *parts)))

    def names(self) -> list[str]:
        """Return the sorted names directly below, without those of files.

        Empty when the place does not exist. Raises NotADirectoryError when it is a file.
        """
        # fsspec caches listings, but other processes may have written since.
        self._files.invalidate_cache()
        with self._with_advice():
            try:
                found = self._files.ls(self._path, detail=True)
            except FileNotFoundError:
                self._check_bucket()
                return []
        names = []
        for entry in found:
            path, is_file = entry["name"].rstrip("/"), entry["type"] == "file"
            if path != self._path and not is_file:
                names.append(path.rpartition("/")[2])
            elif path == entry["name"] == self._path and is_file:
                raise NotADirectoryError(f"{self} is a file: snapshots need a directory")
        return sorted(names)

    def read_from(self) -> AbstractContextManager[IO[bytes]]:
        """Open the file for sequential reading."""
        opened: AbstractContextManager[IO[bytes]] = self._files.open(self._path, "rb")
        return opened

    def write_to(self) -> IO[bytes]:
        """Open a new file, which replaces an existing one."""
        with self._with_advice():
            self._make_parents()
            opened: IO[bytes] = self._files.open(self._path, "wb")
            return opened

    def read(self) -> bytes | None:
        """Return the whole file, or None when it does not exist."""
        with self._with_advice():
            try:
                content: bytes = self._files.cat_file(self._path)
            except NotADirectoryError:  # a part of the path is a file
                return None
            except FileNotFoundError:
                self._check_bucket()
                return None
            return content

    def write(self, content: bytes) -> None:
        """Write a file atomically: readers never see a part of it."""
        self._make_parents()
        # Object stores replace objects atomically. A local file needs a draft and a rename.
        if self._is_local:
            draft = f"{self._path}.{uuid.uuid4().hex[:8]}.tmp"
            self._files.pipe_file(draft, content)
            self._files.mv(draft, self._path)
        else:
            with self._with_advice():
                self._files.pipe_file(self._path, content)

    @property
    def _is_local(self) -> bool:
        protocols = self._files.protocol
        return "file" in ((protocols,) if isinstance(protocols, str) else protocols)

    @property
    def _bucket(self) -> str | None:
        """The bucket or container; None for file systems with directories."""
        protocols = self._files.protocol
        kinds = (protocols,) if isinstance(protocols, str) else protocols
        return self._path.partition("/")[0] if _BUCKETS.intersection(kinds) else None

    def _check_bucket(self) -> None:
        """Raise FileNotFoundError when the whole bucket is missing, not only this path."""
        bucket = self._bucket
        if bucket is None:
            return
        try:
            self._files.ls(bucket, detail=False)
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self}: bucket {bucket!r} does not exist: create it, or name another one; "
                "snapshots create none"
            ) from None
        except PermissionError:  # some credentials may list only below a path
            return

    @contextmanager
    def _with_advice(self) -> Iterator[None]:
        """Add advice to an object store's permission errors."""
        if self._bucket is None:
            yield
            return
        try:
            yield
        except Exception as error:
            if isinstance(error, PermissionError) or type(error).__name__ in _NO_CREDENTIALS:
                raise PermissionError(
                    f"{self}: access is denied ({error}): check the credentials that its package "
                    "finds, in the environment or in its own files, and that they allow to list, "
                    "read, write and delete there"
                ) from error
            raise

    def _make_parents(self) -> None:
        # Object stores have no directories, and makedirs would create a missing bucket.
        if self._bucket is None:
            self._files.makedirs(self._path.rpartition("/")[0], exist_ok=True)

    def delete(self) -> None:
        """Delete the file or directory; do nothing when it does not exist."""
        self._files.invalidate_cache()
        try:
            self._files.rm(self._path, recursive=True)
        except (FileNotFoundError, NotADirectoryError):
            return
