"""TLS contexts whose files are renewed while the process runs."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, NamedTuple, final

from ks_actors._errors import ConfigError
from ks_actors.lifecycle import component_log, in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.log.kafka.client._options import KafkaOptions

_log = component_log(__name__)
# The least seconds between two checks of the files.
_LOOK_EACH_S: Final = 1.0
# Seconds that a connection waits for a check, as a file system may hang.
_PATIENCE_S: Final = 1.0


class _Identity(NamedTuple):
    """The identity of a file's content, from its directory entry."""

    modified_ns: int
    size: int
    inode: int


@final
class TlsFiles:
    """The TLS context for new connections; the clients of a log share one instance.

    Certificates expire and are renewed on disk. So a new connection first checks the files, at most
    once a second, and loads changed files again. If files cannot be loaded, since they may be half
    written, the old context stays in use: each such change is logged as a warning, and the next
    connection tries the files again. A context from the user stays unchanged. Any thread may use
    this class. `clock` is in seconds.
    """

    def __init__(self, options: KafkaOptions, clock: Callable[[], float] = monotonic) -> None:
        self._options: KafkaOptions = options
        self._clock: Callable[[], float] = clock
        self._lock = Lock()
        self._context: ssl.SSLContext | None = None
        self._files: tuple[str, ...] = ()
        self._loaded: dict[str, _Identity | None] = {}
        self._refused: dict[str, _Identity | None] | None = None
        self._look_at: float = 0.0

    async def context(self) -> ssl.SSLContext | None:
        """Return the context for a new connection, None without TLS.

        Raises ConfigError if files that were never loaded cannot be used.
        """
        options = self._options
        if not options.tls or isinstance(options.tls, ssl.SSLContext):
            return options.ssl_context()
        if self._context is not None and self._clock() < self._look_at:
            return self._context
        looking = in_thread(self._look, name="look at the TLS files")
        await asyncio.wait([looking], timeout=None if self._context is None else _PATIENCE_S)
        return looking.result() if looking.done() else self._context

    def _look(self) -> ssl.SSLContext | None:
        if not self._lock.acquire(timeout=-1 if self._context is None else _PATIENCE_S):
            # Another connection's check of the files hangs.
            return self._context
        try:
            if self._context is None:
                self._files = _files(self._options)
                # Read the identities before the load: then files that change during the load are
                # loaded again.
                self._loaded = self._identities()
                self._context = self._options.ssl_context()
            elif self._clock() >= self._look_at:
                self._renew(self._identities())
            self._look_at = self._clock() + _LOOK_EACH_S
            return self._context
        finally:
            self._lock.release()

    def _identities(self) -> dict[str, _Identity | None]:
        """Return the identity of each file, None for a missing one; links are followed."""
        found: dict[str, _Identity | None] = dict.fromkeys(self._files)
        for file in self._files:
            with suppress(OSError):
                state = Path(file).stat()
                found[file] = _Identity(state.st_mtime_ns, state.st_size, state.st_ino)
        return found

    def _renew(self, identities: Mapping[str, _Identity | None]) -> None:
        if identities == self._loaded:
            self._refused = None
            return
        changed = ", ".join(
            file for file, identity in identities.items() if identity != self._loaded[file]
        )
        try:
            missing = [file for file, identity in identities.items() if identity is None]
            if missing:
                raise ConfigError(f"{' and '.join(missing)} cannot be found")
            self._context = self._options.ssl_context()
        except ConfigError as error:
            if identities != self._refused:
                self._refused = dict(identities)
                _log.warning(
                    "%s changed, but %s. New connections go on with the certificates that were "
                    "loaded before, and try the files again",
                    changed,
                    error,
                )
            return
        self._loaded, self._refused = dict(identities), None
        _log.info("%s changed: new connections use the new certificates", changed)


def _files(options: KafkaOptions) -> tuple[str, ...]:
    trusted = options.tls_ca_file
    if trusted is None and options.tls_ca_pem is None:
        trusted = ssl.get_default_verify_paths().cafile
    files = (trusted, options.tls_cert_file, options.tls_key_file)
    return tuple(str(file) for file in files if file is not None)
