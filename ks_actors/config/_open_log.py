"""The log that a configuration names."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ks_actors.config._kafka import _DELIVERY_MS, SCHEME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from ks_actors.config._config import StreamsConfig
    from ks_actors.log import Log


def open_configured(config: StreamsConfig) -> Log:
    """Return the log that a config names, not yet started. Raises ConfigError."""
    from ks_actors.log import open_log  # noqa: PLC0415 - a config is made before there is a log

    if not config.log.startswith(SCHEME):
        return open_log(config.log)
    from ks_actors.log import kafka_log  # noqa: PLC0415 - likewise

    return kafka_log(
        config.log.removeprefix(SCHEME), client_id=config.client_id, **kafka_options(config)
    )


def kafka_options(config: StreamsConfig) -> dict[str, Any]:
    """Return a config's connection and login as the fields of KafkaOptions."""
    name, password = config.sasl_jaas_config or (config.sasl_username, config.sasl_password)
    return {
        "tls": config.security_protocol.endswith("SSL"),
        "tls_ca_file": config.ssl_truststore_location,
        "tls_cert_file": config.ssl_keystore_location,
        "tls_key_file": config.ssl_key_location,
        "tls_key_password": config.ssl_key_password,
        "tls_check_hostname": config.ssl_endpoint_identification_algorithm == "https",
        "sasl_mechanism": config.sasl_mechanism,
        "sasl_username": name,
        "sasl_password": password,
        "request_timeout_ms": config.request_timeout_ms,
        # Retry writes for at least as long as the app's other requests.
        "delivery_timeout_ms": max(_DELIVERY_MS, config.task_timeout_ms),
        "retry_backoff_ms": config.retry_backoff_ms,
        "retry_backoff_max_ms": config.retry_backoff_max_ms,
        "reconnect_backoff_ms": config.reconnect_backoff_ms,
        "reconnect_backoff_max_ms": config.reconnect_backoff_max_ms,
        "connections_max_idle_ms": config.connections_max_idle_ms,
        "replication_factor": config.replication_factor,
        "compression": config.producer_compression_type,
        "linger_ms": config.linger_ms,
        "max_decompressed_bytes": config.max_decompressed_bytes,
    }


@asynccontextmanager
async def opened(
    config: StreamsConfig, log: Log | None = None, made: Callable[[Log], None] | None = None
) -> AsyncIterator[Log]:
    """Yield the given log as it is, or else the config's, open during the block.

    Calls `made` with the log before its start. Raises ConfigError, and the errors of the start.
    """
    own = log or open_configured(config)
    if made is not None:
        made(own)
    if log is not None:
        yield log
        return
    await own.start()
    try:
        yield own
    finally:
        await own.close()
