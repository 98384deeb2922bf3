"""Options of a Kafka log: connections, timeouts, batches."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from ks_actors._errors import ConfigError
from ks_actors.log._token_endpoint import check_token_endpoint
from ks_actors.log.kafka.login import StoreType, TokenProvider, load_identity, load_trusted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

Mechanism: TypeAlias = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
Compression: TypeAlias = Literal["none", "gzip", "snappy", "lz4", "zstd"]
# The fields for keys and certificates, each with the fields of which at least one must be set.
_TLS_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "tls_ca_file": (),
    "tls_ca_type": ("tls_ca_file", "tls_ca_pem"),
    "tls_ca_password": ("tls_ca_file",),
    "tls_ca_pem": (),
    "tls_cert_file": (),
    "tls_cert_type": ("tls_cert_file", "tls_cert_pem"),
    "tls_cert_password": ("tls_cert_file",),
    "tls_cert_pem": (),
    "tls_key_file": ("tls_cert_file",),
    "tls_key_pem": ("tls_cert_pem",),
    "tls_key_password": ("tls_cert_file", "tls_cert_pem"),
}
_TLS_PAIRS: Final = (("tls_ca_file", "tls_ca_pem"), ("tls_cert_file", "tls_cert_pem"))


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """All options of a `KafkaLog`; times in ms, sizes in bytes.

    Secrets appear neither in its repr nor in logs. Raises ConfigError for contradictory options.

    `tls` is True for TLS with the system's certificates, or an `ssl.SSLContext` of your own.
    `tls_ca_file` names the certificates to trust instead; `tls_cert_file` and `tls_key_file`
    (`tls_key_password`) authenticate the client. These files are PEM, or PKCS#12 stores with
    `tls_ca_password` and `tls_cert_password`. The content shows the format, unless `tls_ca_type`
    and `tls_cert_type` name it. When a file changes, new connections use its new content.
    `tls_ca_pem`, `tls_cert_pem` and `tls_key_pem` are PEM texts in place of files.
    `sasl_mechanism` logs in with `sasl_username` and `sasl_password`.

    OAUTHBEARER logs in with tokens instead. The function `sasl_token_provider`, plain or async,
    returns a token; it is called in a thread, again after 80 % of the token's lifetime. Or
    `sasl_oauthbearer_token_endpoint_url` names a service that issues tokens to
    `sasl_oauthbearer_client_id` with `sasl_oauthbearer_client_secret` (OpenID Connect, client
    credentials; https, unless on this machine), or a file with a token, `file:///path`.
    `sasl_oauthbearer_extensions` are sent with each token.

    GSSAPI logs in with Kerberos, at the service `sasl_kerberos_service_name` of the broker's host,
    or of `sasl_kerberos_domain_name`. The process must have a ticket, from `kinit` or from a keytab
    that the environment variable KRB5_CLIENT_KTNAME names. Needs the package gssapi.

    `request_timeout_ms` limits one request, `api_timeout_ms` a call with all its retries, and
    `delivery_timeout_ms` the attempts to write records; then the call raises LogTimeout.
    `missing_topic_wait_ms` is the wait for a topic that no broker knows. Leaders are looked up
    again within `metadata_max_age_ms`: a leader that is cut off does not know its successor. A
    retry follows after `retry_backoff_ms`, then twice that, up to `retry_backoff_max_ms`. Without a
    connection the pause is `reconnect_backoff_ms` up to `reconnect_backoff_max_ms`: an attempt to
    connect costs next to nothing, and soon finds a returning broker. 0 counts as 1 ms.

    `compression` applies to written records; `compression_level` None means 1 for lz4 and the
    library's default for others. `batch_bytes` limits a batch before compression. `max_in_flight`
    limits the unanswered requests per broker (at most 5; beyond that Kafka cannot detect
    duplicates).

    `linger_ms` is how long a broker gathers slowly arriving records before the next fetch; 0
    disables this. After an answer with records of many partitions it is up to twice as long, but no
    more than 20 ms longer. `max_decompressed_bytes` limits a decompressed record batch, and the
    memory of one record with its headers; above this limit, reading raises LogCorrupted. Created
    topics get `replication_factor`; with -1 the brokers decide.
    """

    tls: bool | ssl.SSLContext = False
    tls_ca_file: str | Path | None = None
    tls_ca_type: StoreType | None = None
    tls_ca_password: str | None = field(default=None, repr=False)
    tls_ca_pem: str | None = field(default=None, repr=False)
    tls_cert_file: str | Path | None = None
    tls_cert_type: StoreType | None = None
    tls_cert_password: str | None = field(default=None, repr=False)
    tls_cert_pem: str | None = field(default=None, repr=False)
    tls_key_file: str | Path | None = None
    tls_key_pem: str | None = field(default=None, repr=False)
    tls_key_password: str | None = field(default=None, repr=False)
    tls_check_hostname: bool = True
    sasl_mechanism: Mechanism | None = None
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    sasl_token_provider: TokenProvider | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: str | None = field(default=None, repr=False)
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_extensions: Mapping[str, str] = field(default_factory=dict, hash=False)
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 300_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 200
    missing_topic_wait_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    connections_max_idle_ms: int = 540_000
    compression: Compression = "none"
    compression_level: int | None = None
    batch_bytes: int = 1_000_000
    max_in_flight: int = 4
    max_partition_fetch_bytes: int = 1_048_576
    fetch_max_bytes: int = 52_428_800
    max_decompressed_bytes: int = 268_435_456
    linger_ms: int = 20
    replication_factor: int = -1

    def __post_init__(self) -> None:
        if self.sasl_mechanism is not None and self.sasl_mechanism not in get_args(Mechanism):
            raise ConfigError(
                f"sasl_mechanism is {self.sasl_mechanism!r}: use one of "
                f"{', '.join(get_args(Mechanism))}"
            )
        self._check_login()
        if self.compression not in get_args(Compression):
            raise ConfigError(
                f"compression is {self.compression!r}: use one of "
                f"{', '.join(get_args(Compression))}"
            )
        self._check_tls()
        if not 1 <= self.max_in_flight <= 5:  # noqa: PLR2004 - brokers remember the last 5 batches
            raise ConfigError(f"max_in_flight is {self.max_in_flight}: give 1 to 5")
        for name in (
            "request_timeout_ms",
            "api_timeout_ms",
            "delivery_timeout_ms",
            "connect_timeout_ms",
            "metadata_max_age_ms",
            "batch_bytes",
            "max_decompressed_bytes",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: give a positive number")
        backoffs = (
            "retry_backoff_ms",
            "retry_backoff_max_ms",
            "reconnect_backoff_ms",
            "reconnect_backoff_max_ms",
        )
        for name in (*backoffs, "missing_topic_wait_ms", "linger_ms"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}: give 0 or more")

    def _check_login(self) -> None:
        of_users = (self.sasl_username, self.sasl_password)
        of_clients = (self.sasl_oauthbearer_client_id, self.sasl_oauthbearer_client_secret)
        url = self.sasl_oauthbearer_token_endpoint_url
        named = None not in of_users
        if not self.takes_token:
            if self.sasl_mechanism == "GSSAPI":
                if any(of_users):
                    raise ConfigError(
                        "sasl_username and sasl_password are for PLAIN and SCRAM; GSSAPI takes the "
                        "Kerberos ticket of the process"
                    )
            elif named != (self.sasl_mechanism is not None) or named != any(of_users):
                raise ConfigError(
                    "sasl_mechanism, sasl_username and sasl_password belong together: set all of "
                    "them, or none"
                )
            if url or self.sasl_token_provider or any(of_clients):
                raise ConfigError(
                    f"settings of tokens need sasl_mechanism OAUTHBEARER, and it is "
                    f"{self.sasl_mechanism}"
                )
            return
        if any(of_users):
            raise ConfigError(
                "sasl_username and sasl_password are for PLAIN and SCRAM; OAUTHBEARER takes "
                "sasl_oauthbearer_client_id and its secret"
            )
        if (url is None) == (self.sasl_token_provider is None):
            raise ConfigError(
                "OAUTHBEARER needs sasl_oauthbearer_token_endpoint_url or a function that returns "
                "tokens (sasl_token_provider, sasl_login_callback_handler), one of the two"
            )
        try:
            serves = url is not None and check_token_endpoint(url).startswith("http")
        except ValueError as error:
            raise ConfigError(f"sasl_oauthbearer_token_endpoint_url {error}") from None
        if (serves and not all(of_clients)) or (not serves and any(of_clients)):
            raise ConfigError(
                "sasl_oauthbearer_client_id and its secret are for a token endpoint, https://…: "
                "set both with it, and none without"
            )

    def _check_tls(self) -> None:
        given = [name for name in _TLS_KEYS if getattr(self, name) is not None]
        if not self.tls and given:
            raise ConfigError(f"{', '.join(given)} set, but tls is off: set tls=True")
        if isinstance(self.tls, ssl.SSLContext) and given:
            raise ConfigError(
                f"tls is an SSLContext: load keys and certificates into it, and do not set "
                f"{', '.join(given)}"
            )
        for name, needed in _TLS_KEYS.items():
            if name in given and needed and not any(each in given for each in needed):
                raise ConfigError(f"{name} needs {' or '.join(needed)}")
        for one, other in _TLS_PAIRS:
            if one in given and other in given:
                raise ConfigError(f"{one} and {other} are both set: set one of them")
        if (self.tls_ca_pem is not None and self.tls_ca_type == "PKCS12") or (
            self.tls_cert_pem is not None and self.tls_cert_type == "PKCS12"
        ):
            raise ConfigError("tls_ca_pem and tls_cert_pem are PEM, and their type is PKCS12")

    @property
    def takes_token(self) -> bool:
        """Whether the login uses tokens."""
        return self.sasl_mechanism == "OAUTHBEARER"

    @property
    def missing_topic_wait_s(self) -> float:
        """`missing_topic_wait_ms` in seconds, but at most half of `api_timeout_ms`."""
        return min(self.missing_topic_wait_ms, self.api_timeout_ms / 2) / 1000

    @property
    def security_protocol(self) -> str:
        """Kafka's name of the protocol."""
        if self.sasl_mechanism is not None:
            return "SASL_SSL" if self.tls else "SASL_PLAINTEXT"
        return "SSL" if self.tls else "PLAINTEXT"

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return the context for connections, None without TLS.

        Reads files; raises ConfigError if a file cannot be used.
        """
        if not self.tls:
            return None
        if isinstance(self.tls, ssl.SSLContext):
            return self.tls
        context = load_trusted(
            self.tls_ca_file, self.tls_ca_pem, self.tls_ca_password, self.tls_ca_type
        )
        if self.tls_cert_file is not None or self.tls_cert_pem is not None:
            load_identity(
                context,
                self.tls_cert_file,
                self.tls_cert_pem,
                self.tls_cert_password,
                self.tls_cert_type,
                (self.tls_key_file, self.tls_key_pem, self.tls_key_password),
            )
        context.check_hostname = self.tls_check_hostname
        return context
