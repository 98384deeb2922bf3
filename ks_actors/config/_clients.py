"""Settings of single Kafka clients, by prefix, as a Java app's properties have them."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple


class Client(Enum):
    """A client of a Kafka Streams app."""

    MAIN_CONSUMER = "the main consumer"
    RESTORE_CONSUMER = "the restore consumer"
    GLOBAL_CONSUMER = "the global consumer"
    PRODUCER = "the producer"
    ADMIN = "the admin client"


_CONSUMERS: Final = frozenset(
    {Client.MAIN_CONSUMER, Client.RESTORE_CONSUMER, Client.GLOBAL_CONSUMER}
)
_MAIN: Final = frozenset({Client.MAIN_CONSUMER})
_PRODUCER: Final = frozenset({Client.PRODUCER})
_EVERY: Final = frozenset(Client)

PREFIXES: Final[dict[str, frozenset[Client]]] = {
    "main_consumer_": _MAIN,
    "restore_consumer_": frozenset({Client.RESTORE_CONSUMER}),
    "global_consumer_": frozenset({Client.GLOBAL_CONSUMER}),
    "consumer_": _CONSUMERS,
    "producer_": _PRODUCER,
    "admin_": frozenset({Client.ADMIN}),
}
"""The clients of each prefix; if prefixes set the same setting, the first counts."""

TOPIC: Final = "topic_"
"""The prefix of configs of new internal topics."""

USERS: Final[dict[str, frozenset[Client]]] = {
    "security_protocol": _EVERY,
    "sasl_mechanism": _EVERY,
    "sasl_username": _EVERY,
    "sasl_password": _EVERY,
    "sasl_jaas_config": _EVERY,
    "sasl_login_callback_handler": _EVERY,
    "sasl_oauthbearer_token_endpoint_url": _EVERY,
    "sasl_oauthbearer_client_credentials_client_id": _EVERY,
    "sasl_oauthbearer_client_credentials_client_secret": _EVERY,
    "sasl_oauthbearer_scope": _EVERY,
    "sasl_oauthbearer_extensions": _EVERY,
    "sasl_kerberos_service_name": _EVERY,
    "sasl_kerberos_domain_name": _EVERY,
    "ssl_truststore_location": _EVERY,
    "ssl_truststore_type": _EVERY,
    "ssl_truststore_password": _EVERY,
    "ssl_truststore_certificates": _EVERY,
    "ssl_keystore_location": _EVERY,
    "ssl_keystore_type": _EVERY,
    "ssl_keystore_password": _EVERY,
    "ssl_keystore_certificate_chain": _EVERY,
    "ssl_keystore_key": _EVERY,
    "ssl_key_location": _EVERY,
    "ssl_key_password": _EVERY,
    "ssl_endpoint_identification_algorithm": _EVERY,
    "bootstrap_servers": _EVERY,
    "request_timeout_ms": _EVERY,
    "default_api_timeout_ms": _EVERY - _PRODUCER,
    "socket_connection_setup_timeout_ms": _EVERY,
    "retry_backoff_ms": _EVERY,
    "retry_backoff_max_ms": _EVERY,
    "reconnect_backoff_ms": _EVERY,
    "reconnect_backoff_max_ms": _EVERY,
    "connections_max_idle_ms": _EVERY,
    "metadata_max_age_ms": _EVERY,
    "metrics_recording_level": _EVERY,
    "group_instance_id": _MAIN,
    "auto_offset_reset": _MAIN,
    "session_timeout_ms": _MAIN,
    "max_poll_interval_ms": _MAIN,
    "fetch_max_bytes": _CONSUMERS,
    "max_partition_fetch_bytes": _CONSUMERS,
    "linger_ms": _CONSUMERS | _PRODUCER,
    "producer_compression_type": _PRODUCER,
    "compression_gzip_level": _PRODUCER,
    "compression_lz4_level": _PRODUCER,
    "compression_zstd_level": _PRODUCER,
    "delivery_timeout_ms": _PRODUCER,
    "max_in_flight_requests_per_connection": _PRODUCER,
    "batch_size": _PRODUCER,
    "transaction_timeout_ms": _PRODUCER,
}
"""The clients that each setting concerns."""

ACCEPTED: Final[dict[str, frozenset[str]]] = {
    "acks": frozenset({"all", "-1"}),
    "allow_auto_create_topics": frozenset({"false"}),
    "auto_include_jmx_reporter": frozenset({"false"}),
    "check_crcs": frozenset({"true"}),
    "client_dns_lookup": frozenset({"use_all_dns_ips"}),
    "enable_auto_commit": frozenset({"false"}),
    "enable_idempotence": frozenset({"true"}),
    "enable_metrics_push": frozenset({"false"}),
    "fetch_min_bytes": frozenset({"1"}),
    "group_protocol": frozenset({"classic"}),
    "metadata_recovery_strategy": frozenset({"rebootstrap"}),
    "receive_buffer_bytes": frozenset({"-1"}),
    "retries": frozenset({"2147483647"}),
    "sasl_client_callback_handler_class": frozenset(
        {"software.amazon.msk.auth.iam.iamclientcallbackhandler"}
    ),
    "send_buffer_bytes": frozenset({"-1"}),
}
"""Settings that cannot be chosen, with the values that equal the fixed behaviour."""


class Prefixed(NamedTuple):
    """A name with the prefix of a client, in the form of a keyword."""

    prefix: str
    name: str

    @property
    def clients(self) -> frozenset[Client]:
        """The clients that the prefix means."""
        return PREFIXES[self.prefix]

    @property
    def rank(self) -> int:
        """The precedence among settings of one source: higher for a narrower prefix."""
        # As in Kafka Streams: main.consumer. wins over consumer., in any order.
        return len(_EVERY) - len(self.clients)


def prefixed(name: str) -> Prefixed | None:
    """Split a name with the prefix of a client; return None for other names."""
    for prefix in PREFIXES:
        if name.startswith(prefix) and name != prefix:
            return Prefixed(prefix, name.removeprefix(prefix))
    return None


def is_accepted(name: str, value: object) -> bool:
    """Return whether a value of a fixed setting equals the fixed behaviour."""
    return str(value).strip().lower() in ACCEPTED.get(name, ())


def named(clients: frozenset[Client]) -> str:
    """Return the names of clients, in the order of the enum."""
    if clients >= _EVERY:
        return "all clients"
    return " and ".join(each.value for each in Client if each in clients)
