"""A properties file of a Java app loads: settings of single clients, of topics, and those that are ignored."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config import ClientIds
from ks_actors.config._clients import ACCEPTED, PREFIXES, USERS
from ks_actors.config._names import ALIASES, canonical
from ks_actors.config._open_log import open_configured
from ks_actors.config._refused import REFUSED, REFUSED_PREFIXES
from ks_actors.config._settings import SETTINGS
from ks_actors.log.kafka import KafkaLog

HERE = Path(__file__).parent
CLOUD = HERE / "confluent_cloud.properties"
IGNORED = "schema.registry.url, basic.auth.*, confluent.monitoring.interceptor.bootstrap.servers, producer.confluent.batch.expiry.ms"
CLIENTS = {
    line.partition(" ")[2]: set(line.partition(" ")[0].split(","))
    for line in (HERE / "client_config_4_4_0.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
}


def of(**settings: Any) -> StreamsConfig:
    return StreamsConfig.of({"application.id": "app", "log": "kafka://a:1", **settings})


def loaded(**settings: Any) -> StreamsConfig:
    return StreamsConfig.load(CLOUD, environ={}, **settings)


def test_a_file_of_confluent_cloud_loads() -> None:
    """Its connection, login and all that its clients' settings say are in effect."""
    made = loaded(ignored_settings=IGNORED)
    log = open_configured(made)
    assert isinstance(log, KafkaLog)
    options = log._options
    assert (made.log, options.security_protocol) == ("kafka://pkc-12345.eu-west-1.aws.confluent.cloud:9092", "SASL_SSL")
    assert (options.sasl_mechanism, options.sasl_username, options.sasl_password) == ("PLAIN", "ABCDEFGHIJ", "s3cr3t/+=")
    assert (options.compression, options.fetch_max_bytes, options.delivery_timeout_ms, options.replication_factor) == ("lz4", 10_000_000, 600_000, 3)
    assert (made.session_timeout_ms, made.max_poll_interval_ms, made.auto_offset_reset) == (30_000, 600_000, "latest")
    assert made.topic_configs == {"segment.bytes": "104857600", "min.insync.replicas": "2"}
    assert made.ignored == (
        "basic_auth_credentials_source",
        "basic_auth_user_info",
        "confluent_monitoring_interceptor_bootstrap_servers",
        "producer_confluent_batch_expiry_ms",
        "schema_registry_url",
    )


def test_what_cannot_be_honoured_is_refused_by_name_unless_it_is_ignored() -> None:
    """Each with its reason, and no secret is told."""
    with pytest.raises(ConfigError) as caught:
        loaded()
    said = str(caught.value)
    assert "5 settings are wrong" in said
    for name in ("schema_registry_url", "basic_auth_user_info", "producer_confluent_batch_expiry_ms"):
        assert f"{name} (confluent_cloud.properties): not supported, because " in said
    assert "s3cr3t" not in said
    assert "REGISTRYSECRET" not in said
    assert "ignored_settings" in said


def test_secrets_are_in_no_repr_of_a_config_and_its_parts() -> None:
    """Tracebacks with local variables show no secrets either."""
    made = loaded(ignored_settings=IGNORED)
    assert "s3cr3t" not in f"{made!r} {made._given!r} {open_configured(made)!r}"
    assert "REGISTRYSECRET" not in f"{made!r} {made._given!r}"


@pytest.mark.parametrize("name", sorted(CLIENTS))
def test_a_setting_of_a_kafka_client_is_honoured_or_refused_with_its_reason(name: str) -> None:
    """None of them is unknown, for any client that has it."""
    keyword = canonical(name)
    known = ALIASES.get(keyword, keyword) in SETTINGS or keyword in REFUSED or keyword.startswith(tuple(REFUSED_PREFIXES))
    assert known, keyword
    for client in CLIENTS[name]:
        if keyword == "group_instance_id":  # any text will do
            assert of(**{f"{client}.{name}": "one"}).group_instance_id == "one"
            continue
        with pytest.raises(ConfigError) as caught:
            of(**{f"{client}.{name}": "no such value"})
        assert "is unknown" not in str(caught.value)


def test_tables_of_clients_name_settings_that_exist() -> None:
    """Each setting of clients is one of the config, and what is accepted with one value is refused with others."""
    assert set(USERS) <= set(SETTINGS)
    assert set(ACCEPTED) <= set(REFUSED)


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_a_value_that_holds_anyway_is_accepted_and_others_are_refused(name: str) -> None:
    """With and without the prefix of a client."""
    for each in (name, f"producer_{name}", f"consumer_{name}"):
        for value in ACCEPTED[name]:
            assert of(**{each: value}).ignored == ()
        with pytest.raises(ConfigError, match=rf"{each} \(mapping\): not supported, because {re.escape(REFUSED[name])}"):
            of(**{each: "0"})


def test_the_narrower_prefix_overrides_the_wider_one() -> None:
    """As in Kafka Streams, whatever the order."""
    names = ("session.timeout.ms", "consumer.session.timeout.ms", "main.consumer.session.timeout.ms")
    for number in range(1, 4):
        given = {name: str(at) for at, name in enumerate(names[:number], start=1)}
        assert of(**given).session_timeout_ms == number
        assert of(**dict(reversed(given.items()))).session_timeout_ms == number


def test_a_later_source_overrides_any_prefix_of_an_earlier_one(tmp_path: Path) -> None:
    """Sources have their order, and prefixes one within a source."""
    file = tmp_path / "app.properties"
    file.write_text("application.id=app\nmain.consumer.session.timeout.ms=1\n")
    assert StreamsConfig.load(file, environ={"KS_ACTORS_SESSION_TIMEOUT_MS": "2"}).session_timeout_ms == 2
    environ = {"KS_ACTORS_CONSUMER_SESSION_TIMEOUT_MS": "3"}
    assert StreamsConfig.load(file, environ=environ).session_timeout_ms == 3


def test_a_setting_of_one_client_is_honoured_where_it_is_that_of_all() -> None:
    """Connections have one set of settings: another value for one client is refused."""
    assert of(**{"restore.consumer.request.timeout.ms": "7", "request.timeout.ms": 7}).request_timeout_ms == 7
    assert of(**{"admin.retry.backoff.ms": "50"}).retry_backoff_ms == 50
    with pytest.raises(ConfigError, match="not supported, because one request_timeout_ms is for all clients: give it without a prefix"):
        of(**{"restore.consumer.request.timeout.ms": "7"})
    with pytest.raises(ConfigError, match=r"admin_session_timeout_ms .* not supported, because session_timeout_ms is of the main consumer only"):
        of(**{"admin.session.timeout.ms": "7"})
    with pytest.raises(ConfigError, match=r"main_consumer_fetch_max_bytes \(mapping\): 'x' is not a whole number"):
        of(**{"main.consumer.fetch.max.bytes": "x"})
    assert of(**{"restore.consumer.request.timeout.ms": "7", "ignored.settings": "restore.consumer.*"}).request_timeout_ms == 30_000


@pytest.mark.parametrize("prefix", sorted(PREFIXES))
def test_a_name_that_no_client_has_is_refused(prefix: str) -> None:
    """Behind any prefix, also if the config has it."""
    for name in ("zzz", "state_dir", "processing_guarantee"):
        with pytest.raises(ConfigError, match=f"{prefix}{name} .*: not supported, because a client here has no such setting"):
            of(**{f"{prefix}{name}": "1"})


def test_topic_configs_of_a_file_need_no_quotes(tmp_path: Path) -> None:
    """TOML reads a name with dots as tables in tables."""
    file = tmp_path / "app.toml"
    file.write_text('application_id = "app"\n[topic_configs]\nretention.ms = 7\n"segment.bytes" = 5\n', encoding="utf-8")
    assert StreamsConfig.load(file, environ={}).topic_configs == {"retention.ms": "7", "segment.bytes": "5"}


def test_topic_configs_come_by_prefix_or_as_a_mapping() -> None:
    """Each config by its name; later sources add to earlier ones."""
    made = of(**{"topic.retention.ms": 5, "topic_configs": {"retention.ms": 4, "preallocate": True}})
    assert made.topic_configs == {"preallocate": "true", "retention.ms": "4"}
    assert made.replace(topic_configs={"retention.ms": "6"}).topic_configs == {"preallocate": "true", "retention.ms": "6"}
    assert StreamsConfig(application_id="app", topic_configs={"a.b": 1}).topic_configs == {"a.b": "1"}
    assert hash(made) == hash(made.replace())
    with pytest.raises(ConfigError, match=r"topic_configs \(mapping\): 5 is not a mapping of configs"):
        of(topic_configs=5)


@pytest.mark.parametrize("value", ["max.warmup.replicas,zz.*", ["max_warmup_replicas", "zz.*"]])
def test_ignored_settings_are_names_or_beginnings_of_names(value: Any) -> None:
    """Whether Kafka knows them or not."""
    made = of(**{"ignored.settings": value, "max.warmup.replicas": 2, "zz.a": 1, "zz.b": 2})
    assert made.ignored == ("max_warmup_replicas", "zz_a", "zz_b")
    assert made.replace(poll_ms=1).ignored == made.ignored


def test_a_setting_that_is_supported_cannot_be_ignored() -> None:
    """A list of ignored names must not hide that one of them has an effect."""
    for name in ("commit.interval.ms", "num.workers"):
        with pytest.raises(ConfigError, match=f"ignored_settings: {canonical(name)} is supported: remove it from the list"):
            of(**{"ignored.settings": name})
    with pytest.raises(ConfigError, match=r"ignored_settings \(mapping\): 5 is not a list of names"):
        of(**{"ignored.settings": 5})


def test_client_ids_are_those_of_kafka_streams() -> None:
    """The application's id, or the client's, and the process id begin them."""
    ids = ClientIds.of(of(), "1-2")
    assert ids.consumer == "app-1-2-StreamThread-1-consumer"
    assert ids.restore_consumer == "app-1-2-StreamThread-1-restore-consumer"
    assert ids.producer == "app-1-2-StreamThread-1-producer"
    assert (ids.global_consumer, ids.admin) == ("app-1-2-global-consumer", "app-1-2-admin")
    assert ClientIds.of(of(**{"client.id": "mine"}), "1-2").admin == "mine-1-2-admin"
