"""Settings of Kafka: their effect on the log, and contradictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config._kafka import CONNECTION
from ks_actors.config._open_log import open_configured
from ks_actors.log import open_log
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.log.kafka import KafkaLog, KafkaOptions

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
TOKENS = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="hunt\\"er 2";'


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig.of({"application.id": "app", **{name.replace("_", "."): value for name, value in settings.items()}})


def options(made: StreamsConfig) -> KafkaOptions:
    log = open_configured(made)
    assert isinstance(log, KafkaLog)
    return log._options


@pytest.mark.parametrize(
    ("servers", "log"),
    [
        ("localhost:9092", "kafka://localhost:9092"),
        ("a:1, b:2", "kafka://a:1,b:2"),
        (["a:1", "b"], "kafka://a:1,b"),
        ("[::1]:9092", "kafka://[::1]:9092"),
        ("SASL_SSL://a:1,PLAINTEXT://b:2", "kafka://a:1,b:2"),
        ("kafka://a:1,kafka://b:2", "kafka://a:1,b:2"),
        ("SSL://[::1]:1", "kafka://[::1]:1"),
        ("a:1,,b:1,", "kafka://a:1,b:1"),
    ],
)
def test_servers_make_the_log_a_kafka(servers: Any, log: str) -> None:
    """As text or a list, also with protocols and empty entries, as Kafka's clients take them; `log` can say the same."""
    made = config(bootstrap_servers=servers)
    assert (made.bootstrap_servers, made.log) == (log.removeprefix("kafka://"), log)
    assert repr(open_configured(made)) == f"<KafkaLog at {log.removeprefix('kafka://')}, not started>"
    assert config(log=log).log == log


def test_without_servers_no_log_is_opened_unless_one_is_named() -> None:
    """An app that has lost its settings must not run on an empty log of its own."""
    with pytest.raises(ConfigError, match="app app has no bootstrap_servers: name the brokers of its Kafka; or set log to"):
        open_configured(config())
    assert isinstance(open_configured(config(log="memory://")), EmbeddedLog)


@pytest.mark.parametrize("value", ["", ",", "a:b", "a:0", "a:70000", "kafka:/a:1", "http://a:1", "TLS://a:1", "SSL://", " , ", 9092, [9092]])
def test_servers_are_hosts_and_ports(value: Any) -> None:
    """Anything else is told at once, not when nobody answers."""
    with pytest.raises(ConfigError, match=r"bootstrap_servers \(mapping\): .* is not a list of servers"):
        config(bootstrap_servers=value)
    if isinstance(value, str):
        with pytest.raises(ConfigError, match=r"log \(mapping\): .* is not (text|a list of servers|the URL of a log)"):
            config(log=f"kafka://{value}")


def test_all_settings_reach_the_log() -> None:
    """None is accepted and ignored."""
    made = options(
        config(
            bootstrap_servers="localhost:9092",
            security_protocol="sasl_ssl",
            sasl_mechanism="scram-sha-512",
            sasl_username="alice",
            sasl_password="hunter2",  # noqa: S106 - nobody's
            ssl_ca_location="ca.pem",
            ssl_certificate_location="me.pem",
            ssl_key_location="me.key",
            ssl_key_password="hunter3",  # noqa: S106 - likewise
            ssl_truststore_type="PKCS12",
            ssl_truststore_password="hunter4",  # noqa: S106 - likewise
            ssl_keystore_type="pem",
            ssl_endpoint_identification_algorithm="",
            request_timeout_ms=1,
            retry_backoff_ms=2,
            retry_backoff_max_ms=3,
            reconnect_backoff_ms=5,
            reconnect_backoff_max_ms=6,
            connections_max_idle_ms=4,
            replication_factor=3,
            producer_compression_type="zstd",
            linger_ms=7,
            max_decompressed_bytes=8,
            compression_zstd_level=9,
            default_api_timeout_ms=10,
            socket_connection_setup_timeout_ms=11,
            delivery_timeout_ms=12,
            fetch_max_bytes=13,
            max_partition_fetch_bytes=14,
            batch_size=15,
            max_in_flight_requests_per_connection=2,
        )
    )
    assert made == KafkaOptions(
        tls=True,
        tls_ca_file=Path("ca.pem"),
        tls_ca_type="PKCS12",
        tls_ca_password="hunter4",  # noqa: S106 - likewise
        tls_cert_file=Path("me.pem"),
        tls_cert_type="PEM",
        tls_key_file=Path("me.key"),
        tls_key_password="hunter3",  # noqa: S106 - likewise
        tls_check_hostname=False,
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password="hunter2",  # noqa: S106 - likewise
        request_timeout_ms=1,
        retry_backoff_ms=2,
        retry_backoff_max_ms=3,
        reconnect_backoff_ms=5,
        reconnect_backoff_max_ms=6,
        connections_max_idle_ms=4,
        replication_factor=3,
        compression="zstd",
        linger_ms=7,
        max_decompressed_bytes=8,
        compression_level=9,
        api_timeout_ms=10,
        connect_timeout_ms=11,
        delivery_timeout_ms=12,
        fetch_max_bytes=13,
        max_partition_fetch_bytes=14,
        batch_bytes=15,
        max_in_flight=2,
    )


@pytest.mark.parametrize(
    "name",
    [
        "session_timeout_ms", "max_poll_interval_ms", "transaction_timeout_ms", "request_timeout_ms", "delivery_timeout_ms", "poll_ms",
        "default_api_timeout_ms", "fetch_max_bytes", "max_partition_fetch_bytes", "batch_size", "replication_factor",
    ],
)  # fmt: skip
def test_numbers_that_kafkas_requests_cannot_hold_are_refused(name: str) -> None:
    """With the config, as in Kafka: a request that cannot be written comes much later."""
    most = 32_767 if name == "replication_factor" else 2_147_483_647
    with pytest.raises(ConfigError, match=f"{name} .* is more than {most}"):
        StreamsConfig.of({"application_id": "a", "bootstrap_servers": "a:1", name: most + 1})


def test_defaults_are_those_of_the_log() -> None:
    """An app on Kafka by config is as one on a KafkaLog of its own."""
    assert options(config(bootstrap_servers="localhost:9092")) == KafkaOptions()


def test_the_line_of_a_java_client_is_understood() -> None:
    """With quotes in the password, too."""
    made = options(StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", **LOGIN, "sasl.jaas.config": JAAS}))
    assert (made.security_protocol, made.sasl_username, made.sasl_password) == ("SASL_PLAINTEXT", "alice", 'hunt"er 2')


@pytest.mark.parametrize(
    "line",
    [
        "",
        5,
        "hunter2",
        "com.sun.security.auth.module.UnixLoginModule required useKeyTab=true;",
        'org.apache.kafka.common.security.plain.PlainLoginModule required password="hunter2";',
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="hunter2" tokenauth=true;',
    ],
)
def test_other_logins_are_refused(line: Any) -> None:
    """Without telling the password."""
    with pytest.raises(ConfigError, match=r"sasl_jaas_config \(mapping\): \*\*\* (is not a known login|must have|has options besides)") as caught:
        StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", **LOGIN, "sasl.jaas.config": line})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"log": "memory://", "bootstrap.servers": "a:1"}, "bootstrap_servers and log, memory://, are both set: set one of them"),
        ({"log": "kafka://b:1", "bootstrap.servers": "a:1"}, "bootstrap_servers and log are both set: set one of them"),
        ({"bootstrap.servers": "a:1", "sasl.username": "x"}, "sasl_username: is a setting of SASL, but security_protocol is PLAINTEXT"),
        (
            {"bootstrap.servers": "a:1", "ssl.ca.location": "x"},
            "ssl_truststore_location: is a setting of TLS, but security_protocol is PLAINTEXT: set it to SSL",
        ),
        ({"bootstrap.servers": "a:1", "security.protocol": "SASL_SSL"}, "sasl_mechanism: is required for SASL"),
        ({"bootstrap.servers": "a:1", **LOGIN}, "sasl_username: is required for SASL, or sasl_jaas_config"),
        ({"bootstrap.servers": "a:1", **LOGIN, "sasl.username": "a"}, "sasl_password: is required for SASL, or sasl_jaas_config"),
        (
            {"bootstrap.servers": "a:1", **LOGIN, "sasl.jaas.config": JAAS, "sasl.password": "x"},
            "sasl_password: is set, and so is sasl_jaas_config: set one of them",
        ),
        (
            {"bootstrap.servers": "a:1", **LOGIN, "sasl.jaas.config": JAAS, "ssl.key.password": "x"},
            "ssl_key_password: is a setting of TLS, but security_protocol is SASL_PLAINTEXT: set it to SASL_SSL",
        ),
        ({"bootstrap.servers": "a:1", "security.protocol": "SSL", "ssl.key.location": "x"}, "ssl_key_location: needs ssl_keystore_location"),
        (
            {"bootstrap.servers": "a:1", **LOGIN, "sasl.username": "a", "sasl.password": "b", "sasl.oauthbearer.scope": "x"},
            "sasl_oauthbearer_scope: does not belong to sasl_mechanism PLAIN",
        ),
        ({"bootstrap.servers": "a:1", **TOKENS, "sasl.username": "a"}, "sasl_username: does not belong to sasl_mechanism OAUTHBEARER"),
        ({"bootstrap.servers": "a:1", **TOKENS}, "set it or sasl_login_callback_handler, because OAUTHBEARER needs one of them"),
        (
            {"bootstrap.servers": "a:1", **TOKENS, ENDPOINT: "https://i/t", "sasl.login.callback.handler": "os.getcwd"},
            "set it or sasl_login_callback_handler",
        ),
        (
            {"bootstrap.servers": "a:1", **TOKENS, ENDPOINT: "https://i/t"},
            "client_id: is required by sasl_oauthbearer_token_endpoint_url",
        ),
        (
            {"bootstrap.servers": "a:1", **TOKENS, ENDPOINT: "file:///t", "sasl.oauthbearer.scope": "x"},
            "sasl_oauthbearer_scope: needs sasl_oauthbearer_token_endpoint_url, https://…",
        ),
        (
            {"bootstrap.servers": "a:1", **TOKENS, ENDPOINT: "http://issuer/t"},
            "'http://issuer/t' would send the client's secret in the clear",
        ),
        ({"bootstrap.servers": "a:1", **TOKENS, ENDPOINT: "issuer"}, "'issuer' is neither https://host/path nor file:///path"),
        ({"bootstrap.servers": "a:1", **TOKENS, "sasl.oauthbearer.extensions": "auth=x"}, "is not name=value,name=value"),
        (
            {"bootstrap.servers": "a:1", **TOKENS, "sasl.jaas.config": "a.OAuthBearerLoginModule required clientId='a';"},
            "is a login by OAUTHBEARER: set sasl_oauthbearer_client_credentials_client_id",
        ),
        (
            {
                "bootstrap.servers": "a:1",
                **TOKENS,
                "sasl.login.callback.handler.class": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
            },
            "is a class of Java: remove it if sasl_oauthbearer_token_endpoint_url is set",
        ),
        ({"bootstrap.servers": "a:1", "security.protocol": "TLS"}, "'TLS' is not one of plaintext, ssl, sasl_plaintext, sasl_ssl"),
        ({"bootstrap.servers": "a:1", "sasl.mechanism": "NTLM"}, "'NTLM' is not one of plain, scram-sha-256, scram-sha-512"),
        (
            {"bootstrap.servers": "a:1", **LOGIN, "sasl.mechanism": "GSSAPI", "sasl.username": "a"},
            "sasl_username: does not belong to sasl_mechanism GSSAPI",
        ),
        (
            {"bootstrap.servers": "a:1", **LOGIN, "sasl.kerberos.service.name": "a"},
            "sasl_kerberos_service_name: does not belong to sasl_mechanism PLAIN",
        ),
        (
            {"bootstrap.servers": "a:1", **LOGIN, "sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required keyTab='a';"},
            "is a login by GSSAPI: run kinit in its place, or name the keytab by the environment variable KRB5_CLIENT_KTNAME",
        ),
        (
            {"bootstrap.servers": "a:1", "compression.type": "lz4", "compression.zstd.level": 3},
            "compression_zstd_level: needs compression_type=zstd, and that is lz4",
        ),
        (
            {"bootstrap.servers": "a:1", "ssl.truststore.type": "JKS"},
            "'JKS' is Java's own type: convert the store with keytool -importkeystore -srckeystore store.jks",
        ),
        ({"bootstrap.servers": "a:1", "ssl.truststore.type": "DER"}, "'DER' is neither PEM nor PKCS12"),
        ({"bootstrap.servers": "a:1", "ssl.endpoint.identification.algorithm": "ldaps"}, "'ldaps' is neither https nor empty"),
    ],
)
def test_contradictions_are_told(settings: dict[str, Any], message: str) -> None:
    """With the remedy."""
    with pytest.raises(ConfigError, match=r"setting(s are| is) wrong") as caught:
        StreamsConfig.of({"application.id": "app", **settings})
    assert message in str(caught.value)


def test_extensions_of_a_token_come_in_all_forms(tmp_path: Path) -> None:
    """As text, as a mapping, and as a table of TOML."""
    text, mapping = "logicalCluster=lkc-1, identityPoolId=pool", {"identityPoolId": "pool", "logicalCluster": "lkc-1"}
    file = tmp_path / "app.toml"
    file.write_text('[sasl.oauthbearer.extensions]\nidentityPoolId = "pool"\nlogicalCluster = "lkc-1"\n')
    base: dict[str, Any] = {"application.id": "app", "bootstrap.servers": "a:1", **TOKENS, "sasl.login.callback.handler": Path.cwd}
    for made in (
        StreamsConfig.of({**base, "sasl.oauthbearer.extensions": text}),
        StreamsConfig.of({**base, "sasl.oauthbearer.extensions": mapping}),
        StreamsConfig.of({**base, "sasl": {"oauthbearer": {"extensions": mapping}}}),
        StreamsConfig.load(
            file, application_id="app", bootstrap_servers="a:1", security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER",
            sasl_login_callback_handler=Path.cwd,
        ),
        StreamsConfig.of(base).replace(sasl_oauthbearer_extensions=mapping),
    ):  # fmt: skip
        assert options(made).sasl_oauthbearer_extensions == mapping


VALUES = {
    "security_protocol": "SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_jaas_config": JAAS,
    "sasl_login_callback_handler": "os.getcwd",
    "sasl_oauthbearer_token_endpoint_url": "https://issuer/token",
    "sasl_oauthbearer_extensions": "logicalCluster=lkc-1",
    "ssl_truststore_type": "PEM",
    "ssl_truststore_certificates": "-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----",
    "ssl_keystore_type": "PEM",
    "ssl_keystore_certificate_chain": "-----BEGIN CERTIFICATE----- MIIB -----END CERTIFICATE-----",
    "ssl_keystore_key": "-----BEGIN PRIVATE KEY----- MIIB -----END PRIVATE KEY-----",
    "ssl_endpoint_identification_algorithm": "https",
    "producer_compression_type": "lz4",
    "compression_type": "lz4",
}


@pytest.mark.parametrize("name", CONNECTION)
def test_settings_of_kafka_need_a_kafka(name: str) -> None:
    """On the embedded log they would be ignored."""
    with pytest.raises(ConfigError, match=f"{name}: is a setting of Kafka, but log is memory://: set bootstrap_servers, or remove it"):
        config(**{name: VALUES.get(name, "5")})


def test_passwords_are_never_shown() -> None:
    """Neither in the config nor in the log's repr."""
    made = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", **LOGIN, "sasl.username": "alice", "sasl.password": "hunter2"})
    assert "sasl_username='alice', sasl_password=***" in repr(made)
    assert "hunter2" not in f"{made!r} {open_configured(made)!r} {options(made)!r}"
    line = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", **LOGIN, "sasl.jaas.config": JAAS})
    assert "hunt" not in repr(line)


@pytest.mark.parametrize(
    "settings",
    [
        {"log": "kafka://user:hunter2@host:9092"},
        {"log": "kafka://user:hunt/er2@host:9092,other:1"},
        {"bootstrap_servers": "user:hunter2@host:9092"},
        {"bootstrap_servers": "user:hunt/er2@host:9092"},
        {"bootstrap_servers": "other:1,user:x,hunter2@host:9092"},
        {"bootstrap_servers": ["SASL_SSL://user:hunter2@host:9092"]},
        {"bootstrap_servers": ("user:hunter2@host:9092", "other:1")},
        {"consumer.bootstrap.servers": "user:hunter2@host:9092"},
    ],
)
def test_a_login_among_servers_is_never_shown(settings: dict[str, Any]) -> None:
    """The error says where logins belong, and shows the server, but no part of a login."""
    with pytest.raises(ConfigError, match=r"'(kafka://)?\*\*\*@host:9092") as caught:
        StreamsConfig.of({"application_id": "a", **settings})
    for secret in ("hunt", "er2", "user:"):
        assert secret not in str(caught.value)
    if "consumer.bootstrap.servers" not in settings:
        assert "it has a login, which belongs into sasl_username and sasl_password" in str(caught.value)


def test_a_login_in_the_url_of_a_log_is_never_shown() -> None:
    """`open_log` shows the servers without it."""
    with pytest.raises(ConfigError, match=r"'kafka://\*\*\*@host:9092' names no servers"):
        open_log("kafka://user:hunt/er2@host:9092")


@pytest.mark.parametrize("value", [None, ["compact", "delete"], b"5"])
@pytest.mark.parametrize("name", ["topic_configs", "topic.cleanup.policy"])
def test_a_topic_config_is_a_text_or_a_number(name: str, value: Any) -> None:
    """Other values would become texts that Kafka refuses at the start."""
    given = {"cleanup.policy": value} if name == "topic_configs" else value
    with pytest.raises(ConfigError, match=r"cleanup.policy=.* which is neither a text nor a number"):
        StreamsConfig.of({"application_id": "a", name: given})


def test_a_topic_config_has_one_name() -> None:
    """`retention_ms` is `retention.ms`, as it is behind `topic.`; both together are refused."""
    made = StreamsConfig(application_id="a", topic_configs={"retention_ms": 5, "unclean.leader.election.enable": False})
    assert made.topic_configs == {"retention.ms": "5", "unclean.leader.election.enable": "false"}
    with pytest.raises(ConfigError, match=r"has retention.ms twice"):
        StreamsConfig(application_id="a", topic_configs={"retention_ms": 5, "retention.ms": 6})


@pytest.mark.parametrize("name", ["environment.properties", "keywords.toml", "environment KS.properties"])
def test_a_placeholder_in_a_file_is_refused_whatever_the_name_of_the_file(name: str, tmp_path: Path) -> None:
    """Only the environment and keywords may have such a text."""
    path = tmp_path / name
    path.write_text('application_id = "${NAME}"\n')
    with pytest.raises(ConfigError, match="has a placeholder"):
        StreamsConfig.load(path, environ={})


def test_tokens_come_from_an_endpoint_a_file_or_a_function() -> None:
    """By Kafka's names; the secret is never shown, the endpoint is."""
    clients = "sasl.oauthbearer.client.credentials.client"
    endpoint = {ENDPOINT: "https://i/t", f"{clients}.id": "me", f"{clients}.secret": "hunter2", "sasl.oauthbearer.scope": "kafka"}
    made = StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", **TOKENS, **endpoint, "sasl.oauthbearer.extensions": "a=b, c=d"})
    found = options(made)
    assert (found.sasl_mechanism, found.sasl_oauthbearer_client_id, found.sasl_oauthbearer_client_secret) == ("OAUTHBEARER", "me", "hunter2")
    assert (found.sasl_oauthbearer_scope, found.sasl_oauthbearer_extensions) == ("kafka", {"a": "b", "c": "d"})
    assert "hunter2" not in f"{made!r} {found!r}"
    assert "https://i/t" in repr(made)
    for given in (
        {ENDPOINT: "file:///run/token"},
        {"sasl.login.callback.handler.class": "os.getcwd"},
        {**endpoint, ENDPOINT: "http://127.0.0.1:9/t"},
    ):
        options(StreamsConfig.of({"application.id": "app", "bootstrap.servers": "a:1", **TOKENS, **given}))
