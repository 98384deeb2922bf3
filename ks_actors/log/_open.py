"""Logs by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ks_actors._errors import ConfigError
from ks_actors.log.embedded import EmbeddedLog

if TYPE_CHECKING:
    from ks_actors.log._port import Log


def open_log(url: str) -> Log:
    """Return the log that `url` names, not started yet.

    `memory://` is a new log in memory each time: to share one, hand on the object. `embedded:///path` is the log in the directory `/path`, which is
    made if need be. Raises ConfigError for anything else.
    """
    parts = urlsplit(url)
    if parts.scheme == "memory":
        if url != "memory://":
            raise ConfigError(f"logs in memory have no names, and {url!r} has one: use 'memory://', and share a log by handing on the object")
        return EmbeddedLog()
    if parts.scheme == "embedded":
        if parts.netloc or not parts.path or parts.query or parts.fragment:
            raise ConfigError(f"{url!r} names no directory: use three slashes and an absolute path, 'embedded:///path'")
        return EmbeddedLog(Path(unquote(parts.path)))
    raise ConfigError(f"{url!r} is no log that can be opened: use 'memory://' or 'embedded:///path'; Kafka is not supported yet")
