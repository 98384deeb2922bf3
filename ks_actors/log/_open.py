"""Logs by URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from ks_actors._errors import ConfigError
from ks_actors.system import Later

if TYPE_CHECKING:
    from ks_actors.log._port import Log
    from ks_actors.log.kafka import KafkaLog

if TYPE_CHECKING:
    from ks_actors.log import embedded
else:
    embedded = Later("ks_actors.log.embedded")

_KAFKA = "kafka://"


def open_log(url: str) -> Log:
    """Return the log at `url`, not started yet.

    `memory://` is a new log in memory each time: to share one, pass the object. `embedded:///path`
    is the log in the directory `/path`, created if missing. `kafka://host:port,host:port` is Kafka
    at these servers, without TLS and login; `KafkaLog` has options for these. Raises ConfigError
    for any other URL.
    """
    if url.startswith(_KAFKA):
        servers = url.removeprefix(_KAFKA)
        if not servers.strip(", ") or any(character in servers for character in "/?#@"):
            # The error must not show a password.
            told = f"{_KAFKA}***@{servers.rpartition('@')[2]}" if "@" in servers else url
            raise ConfigError(f"{told!r} names no servers: use 'kafka://host:port,host:port'")
        return kafka_log(servers)
    parts = urlsplit(url)
    if parts.scheme == "memory":
        if url != "memory://":
            raise ConfigError(
                f"{url!r} has a name, but logs in memory have none: use 'memory://', and share a "
                "log by passing the object"
            )
        return embedded.EmbeddedLog()
    if parts.scheme == "embedded":
        if parts.netloc or not parts.path or parts.query or parts.fragment:
            raise ConfigError(
                f"{url!r} names no directory: use three slashes and an absolute path, "
                "'embedded:///path'"
            )
        return embedded.EmbeddedLog(Path(unquote(parts.path)))
    raise ConfigError(
        f"{url!r} is not the URL of a log: use 'memory://', 'embedded:///path' or "
        "'kafka://host:port'"
    )


def kafka_log(servers: str, *, client_id: str | None = None, **options: Any) -> KafkaLog:
    """Return Kafka at these servers, not started yet; `options` are those of KafkaOptions.

    Raises ConfigError.
    """
    try:
        from ks_actors.log.kafka import KafkaLog, KafkaOptions  # noqa: PLC0415 - optional package
    except ModuleNotFoundError as missing:
        if missing.name != "aiokafka":
            raise
        raise ConfigError(
            "Kafka needs the package aiokafka, which is not installed: pip install "
            "'ks-actors[kafka]'"
        ) from missing
    return KafkaLog(servers, options=KafkaOptions(**options), client_id=client_id)
