"""The log that a configuration names."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from ks_actors._errors import ConfigError, LogTimeout
from ks_actors.config._jaas import IamLogin
from ks_actors.config._kafka import LEVELS, MSK, SCHEME

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AsyncExitStack
    from pathlib import Path

    from ks_actors.config._config import StreamsConfig
    from ks_actors.log import Log


def open_configured(config: StreamsConfig) -> Log:
    """Return the log that a config names, not yet started. Raises ConfigError."""
    from ks_actors.log import open_log  # noqa: PLC0415 - a config is made before there is a log

    if config.origins["log"] == "default" and config.bootstrap_servers is None:
        raise ConfigError(
            f"app {config.application_id} has no bootstrap_servers: name the brokers of its Kafka; "
            "or set log to embedded:///path, or to memory:// for a log that ends with the process"
        )
    if not config.log.startswith(SCHEME):
        return open_log(config.log)
    from ks_actors.log import kafka_log  # noqa: PLC0415 - likewise

    log = kafka_log(config.log.removeprefix(SCHEME), **kafka_options(config))
    # Use this client id until the process id is known, which is in the state directory.
    log.take_client_id(f"{config.client_id}-admin")
    return log


def kafka_options(config: StreamsConfig) -> dict[str, Any]:
    """Return a config's connection and login as the fields of KafkaOptions. Raises ConfigError."""
    line = config.sasl_jaas_config
    mechanism, provider = config.sasl_mechanism, config.sasl_login_callback_handler
    if mechanism == MSK:
        from ks_actors.log.kafka import MskTokens  # noqa: PLC0415 - optional package

        mechanism = "OAUTHBEARER"
        identity = line._asdict() if isinstance(line, IamLogin) else {}
        provider = MskTokens.for_servers(config.log, **identity)
    name, password = config.sasl_username, config.sasl_password
    if line is not None and not isinstance(line, IamLogin):
        name, password = line
    compression = config.producer_compression_type
    return {
        "tls": config.security_protocol.endswith("SSL"),
        "tls_ca_file": config.ssl_truststore_location,
        "tls_ca_type": config.ssl_truststore_type,
        "tls_ca_password": config.ssl_truststore_password,
        "tls_ca_pem": config.ssl_truststore_certificates,
        "tls_cert_file": config.ssl_keystore_location,
        "tls_cert_type": config.ssl_keystore_type,
        "tls_cert_password": config.ssl_keystore_password,
        "tls_cert_pem": config.ssl_keystore_certificate_chain,
        "tls_key_pem": config.ssl_keystore_key,
        "tls_key_file": config.ssl_key_location,
        "tls_key_password": config.ssl_key_password,
        "tls_check_hostname": config.ssl_endpoint_identification_algorithm == "https",
        "sasl_mechanism": mechanism,
        "sasl_username": name,
        "sasl_password": password,
        "sasl_token_provider": provider,
        "sasl_oauthbearer_token_endpoint_url": config.sasl_oauthbearer_token_endpoint_url,
        "sasl_oauthbearer_client_id": config.sasl_oauthbearer_client_credentials_client_id,
        "sasl_oauthbearer_client_secret": config.sasl_oauthbearer_client_credentials_client_secret,
        "sasl_oauthbearer_scope": config.sasl_oauthbearer_scope,
        "sasl_oauthbearer_extensions": dict(config.sasl_oauthbearer_extensions),
        "sasl_kerberos_service_name": config.sasl_kerberos_service_name,
        "sasl_kerberos_domain_name": config.sasl_kerberos_domain_name,
        "request_timeout_ms": config.request_timeout_ms,
        "api_timeout_ms": config.default_api_timeout_ms,
        "connect_timeout_ms": config.socket_connection_setup_timeout_ms,
        "delivery_timeout_ms": config.delivery_timeout_ms,
        "retry_backoff_ms": config.retry_backoff_ms,
        "retry_backoff_max_ms": config.retry_backoff_max_ms,
        "reconnect_backoff_ms": config.reconnect_backoff_ms,
        "reconnect_backoff_max_ms": config.reconnect_backoff_max_ms,
        "connections_max_idle_ms": config.connections_max_idle_ms,
        "metadata_max_age_ms": config.metadata_max_age_ms,
        "replication_factor": config.replication_factor,
        "compression": compression,
        "compression_level": getattr(config, f"compression_{compression}_level")
        if compression in LEVELS
        else None,
        "batch_bytes": config.batch_size,
        "max_in_flight": config.max_in_flight_requests_per_connection,
        "max_partition_fetch_bytes": config.max_partition_fetch_bytes,
        "fetch_max_bytes": config.fetch_max_bytes,
        "linger_ms": config.linger_ms,
        "max_decompressed_bytes": config.max_decompressed_bytes,
    }


def missing_directory(config: StreamsConfig) -> Path | None:
    """Return the directory of a config's embedded log, if there is no log in it yet.

    Raises ConfigError.
    """
    if not config.log.startswith("embedded:"):
        return None
    from ks_actors.log.embedded import EmbeddedLog  # noqa: PLC0415 - as above

    log = open_configured(config)
    directory = log.directory if isinstance(log, EmbeddedLog) else None
    # The file that RocksDB looks for, too.
    return None if directory is None or (directory / "CURRENT").exists() else directory


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
    try:
        # A failed start may leave connections half open.
        await own.start()
        yield own
    finally:
        await own.close()


async def open_patiently(
    stack: AsyncExitStack,
    config: StreamsConfig,
    log: Log | None = None,
    made: Callable[[Log], None] | None = None,
) -> Log:
    """Open the log of an app on an exit stack, as `opened` does.

    Like all calls of an app, the opening is repeated until `task_timeout_ms` have passed.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + config.task_timeout_ms / 1000
    while True:
        try:
            return await stack.enter_async_context(opened(config, log, made))
        except LogTimeout:
            if clock() >= deadline or log is not None:
                raise
