"""Settings: the valid values, and the errors for others."""

from __future__ import annotations

import dataclasses
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ks_actors import serdes
from ks_actors._errors import ConfigError
from ks_actors.config._config import ProcessingGuarantee, StreamsConfig
from ks_actors.config._exception_handlers import HandlerResponse, log_and_continue, log_and_fail
from ks_actors.config._names import ALIASES
from ks_actors.config._refused import REFUSED
from ks_actors.config._settings import SETTINGS, Options
from ks_actors.log import IsolationLevel, open_log
from ks_actors.topology._timestamp_extractors import FailOnInvalidTimestamp, WallclockTimestampExtractor
from tests.layouts import LAYOUT

SOME_SERDE = serdes.json(dict[str, int])
NOT_A_SERDE = 5


class TextSerde(serdes.Serde[str]):
    def serializer(self, topic: str, *, is_key: bool = False) -> Any:
        return str.encode

    def deserializer(self, topic: str, *, is_key: bool = False) -> Any:
        return bytes.decode


class Demanding(serdes.Serde[Any]):
    def __init__(self, needed: int) -> None: ...


def resume(context: object, record: object, error: Exception) -> HandlerResponse:
    return HandlerResponse.RESUME


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(**{"application_id": "app", **settings})


def test_no_instance_id_may_be_said() -> None:
    """As by programs that have one only sometimes."""
    assert config(group_instance_id=None).group_instance_id is None
    assert config(group_instance_id="one").group_instance_id == "one"


def test_omitted_options_have_defaults() -> None:
    """Kafka Streams' own, unless the documentation says why not."""
    made = StreamsConfig(application_id="app")
    assert {name: getattr(made, name) for name in SETTINGS} == {
        "application_id": "app",
        "client_id": "app",
        "bootstrap_servers": None,
        "log": "memory://",
        "security_protocol": "PLAINTEXT",
        "sasl_mechanism": None,
        "sasl_username": None,
        "sasl_password": None,
        "sasl_jaas_config": None,
        "sasl_login_callback_handler": None,
        "sasl_oauthbearer_token_endpoint_url": None,
        "sasl_oauthbearer_client_credentials_client_id": None,
        "sasl_oauthbearer_client_credentials_client_secret": None,
        "sasl_oauthbearer_scope": None,
        "sasl_oauthbearer_extensions": (),
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_domain_name": None,
        "ssl_truststore_location": None,
        "ssl_truststore_type": None,
        "ssl_truststore_password": None,
        "ssl_truststore_certificates": None,
        "ssl_keystore_location": None,
        "ssl_keystore_type": None,
        "ssl_keystore_password": None,
        "ssl_keystore_certificate_chain": None,
        "ssl_keystore_key": None,
        "ssl_key_location": None,
        "ssl_key_password": None,
        "ssl_endpoint_identification_algorithm": "https",
        "request_timeout_ms": 30_000,
        "retry_backoff_ms": 50,
        "retry_backoff_max_ms": 1_000,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 200,
        "connections_max_idle_ms": 540_000,
        "replication_factor": -1,
        "producer_compression_type": "none",
        "compression_gzip_level": None,
        "compression_lz4_level": None,
        "compression_zstd_level": None,
        "default_api_timeout_ms": 60_000,
        "socket_connection_setup_timeout_ms": 10_000,
        "fetch_max_bytes": 52_428_800,
        "max_partition_fetch_bytes": 1_048_576,
        "batch_size": 1_000_000,
        "max_in_flight_requests_per_connection": 4,
        "topic_configs": {},
        "group_instance_id": None,
        "state_dir": Path(tempfile.gettempdir()) / "ks-actors",
        "state_cleanup_delay_ms": 600_000,
        "state_cleanup_dir_max_age_ms": -1,
        "state_layout": LAYOUT,
        "num_stream_threads": 1,
        "num_standby_replicas": 0,
        "queries": (),
        "client_tags": {},
        "processing_guarantee": ProcessingGuarantee.AT_LEAST_ONCE,
        "commit_interval_ms": 30_000,
        "max_task_idle_ms": 0,
        "buffered_records_per_partition": 5_000,
        "input_buffer_max_bytes": 536_870_912,
        "statestore_cache_max_bytes": 0,
        "statestore_memory_max_bytes": 536_870_912,
        "statestore_uncommitted_max_bytes": 67_108_864,
        "default_key_serde": None,
        "default_value_serde": None,
        "default_timestamp_extractor": made.default_timestamp_extractor,
        "deserialization_exception_handler": log_and_fail,
        "processing_exception_handler": log_and_fail,
        "production_exception_handler": log_and_fail,
        "errors_dead_letter_queue_topic_name": None,
        "topology_optimization": "none",
        "ensure_explicit_internal_resource_naming": False,
        "processor_wrapper_class": None,
        "kafka_streams_faults": False,
        "default_dsl_store": "rocksdb",
        "dsl_store_format": "DEFAULT",
        "enable_transactional_statestores": True,
        "default_interactive_query_isolation_level": IsolationLevel.READ_UNCOMMITTED,
        "application_server": None,
        "query_token": None,
        "query_ssl_certificate_location": None,
        "query_ssl_key_location": None,
        "query_ssl_ca_location": None,
        "query_insecure": False,
        "auto_offset_reset": "earliest",
        "task_timeout_ms": 300_000,
        "delivery_timeout_ms": 300_000,
        "close_timeout_ms": 30_000,
        "stall_warning_ms": 10_000,
        "poll_ms": 1_000,
        "max_decompressed_bytes": 268_435_456,
        "linger_ms": 20,
        "metadata_max_age_ms": 300_000,
        "max_poll_interval_ms": 300_000,
        "session_timeout_ms": 45_000,
        "transaction_timeout_ms": 10_000,
        "repartition_purge_interval_ms": 30_000,
        "snapshot_uri": None,
        "snapshot_interval_ms": 600_000,
        "snapshot_keep": 2,
        "snapshot_timeout_ms": 600_000,
        "snapshot_max_age_ms": 86_400_000,
        "windowstore_changelog_additional_retention_ms": 86_400_000,
        "metrics_recording_level": "INFO",
        "ignored_settings": (),
        "max_drain_ms": 60_000,
        "worker_slice_ms": 5,
    }
    assert isinstance(made.default_timestamp_extractor, FailOnInvalidTimestamp)
    assert set(made.origins.values()) == {"keyword", "default"}


def test_every_setting_is_a_field_and_has_a_line_of_documentation() -> None:
    """The table, the class and the keywords know the same names."""
    fields = {each.name for each in dataclasses.fields(StreamsConfig)}
    assert fields == {*SETTINGS, "origins", "ignored", "_given"}
    keywords = {*Options.__annotations__, "application_id"}
    assert keywords >= SETTINGS.keys()
    assert keywords <= {*SETTINGS, *ALIASES}
    assert not {*SETTINGS, *ALIASES} & set(REFUSED)


@pytest.mark.parametrize(
    ("settings", "commit", "drain"),
    [
        ({}, 100, 60_000),
        ({"transaction_timeout_ms": 600}, 100, 60_000),
        ({"commit_interval_ms": 7, "max_drain_ms": 8}, 7, 8),
    ],
)
def test_exactly_once_has_defaults_of_its_own(settings: dict[str, int], commit: int, drain: int) -> None:
    """Commits are more frequent; calls may take as long as ever, since a transaction does not wait for them."""
    made = config(processing_guarantee="exactly_once_v2", **settings)
    assert (made.processing_guarantee, made.commit_interval_ms, made.max_drain_ms) == (ProcessingGuarantee.EXACTLY_ONCE_V2, commit, drain)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("processing.guarantee", ProcessingGuarantee.EXACTLY_ONCE_V2, ProcessingGuarantee.EXACTLY_ONCE_V2),
        ("processing.guarantee", "EXACTLY_ONCE_V2", ProcessingGuarantee.EXACTLY_ONCE_V2),
        ("default.dsl.store", "rocksDB", "rocksdb"),
        ("default.dsl.store", "in_memory", "in_memory"),
        ("dsl.store.format", "headers", "HEADERS"),
        ("dsl.store.format", "DEFAULT", "DEFAULT"),
        ("auto.offset.reset", "Latest", "latest"),
        ("ensure.explicit.internal.resource.naming", " True ", True),
        ("ensure.explicit.internal.resource.naming", "false", False),
        ("ensure.explicit.internal.resource.naming", True, True),
        ("topology.optimization", "None", "none"),
        ("topology.optimization", "reuse.ktable.source.topics , reuse.ktable.source.topics", "reuse.ktable.source.topics"),
        ("topology.optimization", "ALL", "all"),
        ("topology.optimization", "single.store.self.join, merge.repartition.topics", "merge.repartition.topics,single.store.self.join"),
        ("topology.optimization", ["reuse.ktable.source.topics"], "reuse.ktable.source.topics"),
        ("commit.interval.ms", " 250 ", 250),
        ("max.task.idle.ms", -1, -1),
        ("statestore.uncommitted.max.bytes", "-1", -1),
        ("state.dir", "/var/lib/app", Path("/var/lib/app")),
        ("state.dir", "~/app", Path.home() / "app"),
        ("state.dir", Path("here"), Path("here")),
        ("log", "embedded:///data", "embedded:///data"),
        ("default.key.serde", SOME_SERDE, SOME_SERDE),
        ("default.key.serde", "ks_actors.serdes.LONG", serdes.LONG),
        ("default.key.serde", "ks_actors.serdes:LONG", serdes.LONG),
        ("default.value.serde", f"{__name__}.SOME_SERDE", SOME_SERDE),
        ("default.value.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde", serdes.STRING),
        ("processing.exception.handler", resume, resume),
        ("processing.exception.handler", f"{__name__}.resume", resume),
        ("processing.exception.handler", "continue", log_and_continue),
        ("processing.exception.handler", "FAIL", log_and_fail),
        (
            "deserialization.exception.handler",
            "org.apache.kafka.streams.errors.LogAndContinueExceptionHandler",
            log_and_continue,
        ),
        ("errors.dead.letter.queue.topic.name", "app.dead", "app.dead"),
    ],
)
def test_values_have_the_types_of_the_runtime(name: str, value: Any, expected: Any) -> None:
    """In any form that was given."""
    made = StreamsConfig.of({"application.id": "app", name: value})
    assert getattr(made, name.replace(".", "_")) == expected
    assert made.origins[name.replace(".", "_")] == "mapping"


@pytest.mark.parametrize("value", [WallclockTimestampExtractor, "org.apache.kafka.streams.processor.WallclockTimestampExtractor"])
def test_a_class_is_called_for_its_object(value: Any) -> None:
    """As Kafka does with the names of classes."""
    assert isinstance(config(default_timestamp_extractor=value).default_timestamp_extractor, WallclockTimestampExtractor)
    assert isinstance(config(default_key_serde=TextSerde).default_key_serde, TextSerde)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("commit_interval_ms", "fast", "'fast' is not a whole number"),
        ("commit_interval_ms", 1.5, "1.5 is not a whole number"),
        ("commit_interval_ms", True, "True is not a whole number"),
        ("commit_interval_ms", -1, "-1 is less than 0"),
        ("commit_interval_ms", 1 << 63, "9223372036854775808 is more than 9223372036854775807"),
        ("input_buffer_max_bytes", 0, r"0 is less than 1 \(or -1 for no limit\)"),
        ("num_stream_threads", 0, "0 is less than 1"),
        ("processing_guarantee", "exactly_once", "'exactly_once' is not one of at_least_once, exactly_once_v2"),
        (
            "topology_optimization",
            "most",
            "'most' is not one of none, all, reuse.ktable.source.topics, merge.repartition.topics, single",
        ),
        ("topology_optimization", 5, "5 is not one of none, all"),
        ("topology_optimization", "none,all", "'none,all' has none or all beside other words"),
        ("topology_optimization", "reuse.ktable.source.topics,none", "has none or all beside other words"),
        ("ensure_explicit_internal_resource_naming", "yes", "'yes' is neither true nor false"),
        ("ensure_explicit_internal_resource_naming", 1, "1 is neither true nor false"),
        ("auto_offset_reset", None, "None is not one of earliest, latest, none, or a duration such as by_duration:P1D"),
        ("auto_offset_reset", "by_duration", "is not one of earliest, latest, none, or a duration such as by_duration:P1D"),
        ("auto_offset_reset", "by_duration:1 day", "has a duration that is not a duration such as PT2H"),
        ("auto_offset_reset", "by_duration:P1DT", "has a duration that is not a duration such as PT2H"),
        ("auto_offset_reset", "by_duration:P999999999999D", "has a duration that is too long"),
        ("auto_offset_reset", "by_duration:-PT1S", "has a negative duration, which lies after now"),
        ("auto_offset_reset", timedelta(days=-1), "has a negative duration, which lies after now"),
        ("client_id", " ", "' ' is not text"),
        ("state_dir", 5, "5 is not text"),
        ("application_id", "a b", "'a b' is not a valid topic name: use"),
        ("application_id", "..", "'..' is not a valid topic name: use"),
        ("application_id", "x" * 250, "is not a valid topic name: use"),
        ("log", "memory://shared", "'memory://shared' is not the URL of a log: expected memory://, embedded:///path or kafka://host:port"),
        ("log", "embedded://", "'embedded://' names no directory: use three slashes and an absolute path, embedded:///path"),
        ("log", "embedded://./data", "'embedded://./data' names no directory: use three slashes and an absolute path, embedded:///path"),
        ("log", "embedded:///data#1", "'embedded:///data#1' names no directory"),
        ("log", "localhost:9092", "'localhost:9092' is not the URL of a log"),
        ("default_key_serde", object, "is neither a serde"),
        ("default_key_serde", "STRING", "'STRING' is not a name to import: expected package.module.name, such as ks_actors.serdes.STRING$"),
        ("default_value_serde", "long", "expected package.module.name, such as ks_actors.serdes.LONG$"),
        ("default_value_serde", "text", "expected package.module.name, such as ks_actors.serdes.STRING$"),
        ("default_timestamp_extractor", "mine", "'mine' is not a name to import: expected package.module.name$"),
        ("default_key_serde", "ks_actors.serdes.SPRING", "does not exist: ks_actors.serdes has no SPRING"),
        ("default_key_serde", "no.such.module.SERDE", "cannot be imported: No module named 'no'"),
        ("default_key_serde", "..serdes.STRING", "cannot be imported: "),
        ("state_dir", "~no-such-user/state", "is not a path on this system: "),
        ("state_dir", "/state\0", "has a null character, which no path can have"),
        ("statestore_memory_max_bytes", 1 << 43, f"is more than {1 << 42}"),
        ("default_key_serde", f"{__name__}.NOT_A_SERDE", "is neither a serde"),
        ("default_key_serde", Demanding, "cannot be created without arguments"),
        ("processing_exception_handler", 5, "5 is not callable"),
        (
            "processing_exception_handler",
            "proceed",
            "'proceed' is not a name to import: expected package.module.name, or one of fail, continue, stop_after\\(10, per_seconds=60\\)$",
        ),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: Any, message: str) -> None:
    """The error names the setting, its source, the value and the mistake."""
    with pytest.raises(ConfigError, match=rf"a setting is wrong:\n  {name} \(keyword\): .*{message}"):
        config(**{name: value})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("comit_interval_ms", r"comit_interval_ms \(keyword\): is unknown; did you mean commit_interval_ms\?"),
        ("number_of_workers", r"did you mean num_workers\?"),
        ("zzz", r"zzz \(keyword\): is unknown$"),
        ("max_warmup_replicas", r"max_warmup_replicas \(keyword\): not supported, because a task moves at once: there are no warm-up replicas"),
        ("num_warmup", r"num_warmup \(keyword\): is unknown"),
        ("producer_linger_ms", r"producer_linger_ms \(keyword\): not supported, because one linger_ms is for the main consumer and"),
    ],
)
def test_a_name_that_is_not_honoured_is_refused(name: str, message: str) -> None:
    """Whether Kafka Streams knows it or not."""
    with pytest.raises(ConfigError, match=message):
        config(**{name: 1})


def test_all_problems_are_told_at_once() -> None:
    """One line each."""
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({"commit.interval.ms": "x", "pol.ms": 1, "group.protocol": "streams"})
    assert str(caught.value).splitlines() == [
        "4 settings are wrong:",
        "  pol_ms (mapping): is unknown; did you mean poll_ms?",
        "  group_protocol (mapping): not supported, because groups use the classic protocol, not that of KIP-1071",
        "  commit_interval_ms (mapping): 'x' is not a whole number",
        "  application_id: is required",
        "  (settings that are not supported are accepted, and ignored, if ignored_settings lists them)",
    ]


def test_the_application_id_is_required() -> None:
    """It names the group and the topics."""
    with pytest.raises(ConfigError, match="application_id: is required"):
        StreamsConfig()  # type: ignore[call-arg]


def test_a_transaction_must_outlive_its_commit() -> None:
    """Exactly once only."""
    assert config(commit_interval_ms=20_000).commit_interval_ms == 20_000
    with pytest.raises(ConfigError, match="commit_interval_ms: 20000 is more than transaction_timeout_ms, 10000"):
        config(processing_guarantee="exactly_once_v2", commit_interval_ms=20_000)


def test_some_settings_have_two_names() -> None:
    """Giving both names at once is an error."""
    assert config(num_workers=3).num_stream_threads == 3
    assert config(dsl_store="in_memory").default_dsl_store == "in_memory"
    with pytest.raises(ConfigError, match=r"num_stream_threads \(keyword\): is another name of num_workers, which is set, too"):
        config(num_workers=3, num_stream_threads=3)


def test_replace_makes_another_config() -> None:
    """Given values stay, defaults are found anew, the first config does not change."""
    first = config(num_workers=3, poll_ms=7)
    second = first.replace(num_stream_threads=4, processing_guarantee="exactly_once_v2")
    assert (first.num_stream_threads, first.poll_ms, first.commit_interval_ms) == (3, 7, 30_000)
    assert (second.num_stream_threads, second.poll_ms, second.commit_interval_ms) == (4, 7, 100)
    assert (second == first, second.replace() == second, hash(config()) == hash(config())) == (False, True, True)


def test_a_config_does_not_change() -> None:
    """Neither by assignment nor by deletion."""
    made = config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.poll_ms = 5  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del made.poll_ms
    with pytest.raises(TypeError):
        made.origins["poll_ms"] = "me"  # type: ignore[index]


def test_the_repr_has_the_given_options() -> None:
    """The repr leaves out defaults."""
    assert repr(config(poll_ms=5)) == "StreamsConfig(application_id='app', poll_ms=5)"


def test_a_login_in_the_place_of_snapshots_is_not_shown() -> None:
    """Neither in the repr, nor in an error about the setting."""
    made = StreamsConfig(application_id="app", snapshot_uri="sftp://ann:s3cret@host/snapshots")
    assert made.snapshot_uri == "sftp://ann:s3cret@host/snapshots"
    assert repr(made) == "StreamsConfig(application_id='app', snapshot_uri='sftp://***@host/snapshots')"
    with pytest.raises(ConfigError) as caught:
        StreamsConfig(application_id="app", log="sftp://ann:s3cret@host/log")
    assert "s3cret" not in str(caught.value)


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in errors nor in a repr, for any future setting."""
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({"ssl.key.password": "hunter2", "sasl.jaas.config": "hunter2", "my.token": "hunter2"})
    assert "hunter2" not in str(caught.value)
    monkeypatch.setitem(SETTINGS, "registry_password", SETTINGS["client_id"])
    made = config(registry_password="hunter2")  # noqa: S106 - nobody's
    assert repr(made) == "StreamsConfig(application_id='app', registry_password=***)"
    with pytest.raises(ConfigError, match=r"registry_password \(keyword\): \*\*\* is not text"):
        config(registry_password="")


def test_a_static_member_has_a_name_or_none() -> None:
    """None means the default; an empty name is none."""
    assert StreamsConfig(application_id="app", group_instance_id="one").group_instance_id == "one"
    assert StreamsConfig(application_id="app", group_instance_id=None).group_instance_id is None
    with pytest.raises(ConfigError, match="group_instance_id"):
        StreamsConfig(application_id="app", group_instance_id="")


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("memory://", True),
        ("memory://shared", False),
        ("embedded:///data", True),
        ("embedded:///data/of%20mine", True),
        ("embedded://./data", False),
        ("embedded://data", False),
        ("embedded:///data?sync=1", False),
        ("embedded:///data#1", False),
    ],
)
def test_a_config_takes_the_logs_that_can_be_opened(url: str, good: bool) -> None:
    """A wrong URL is refused at once, and not at the start."""
    for make in (lambda: config(log=url), lambda: open_log(url)):
        if good:
            make()
        else:
            with pytest.raises(ConfigError):
                make()


@pytest.mark.parametrize("given", [{"zone": "a", "disk": "fast"}, "zone=a, disk=fast", {"disk": " fast", "zone ": "a"}])
def test_tags_are_a_mapping_or_a_list_in_one_text(given: Any) -> None:
    """Spaces around names and texts do not count."""
    assert config(client_tags=given).client_tags == {"disk": "fast", "zone": "a"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("zone", "is not a mapping of names to texts"),
        ({"zone": 1}, "is not a mapping of names to texts"),
        ({"zone": " "}, "is not a mapping of names to texts"),
        ([], "is not a mapping of names to texts"),
        (dict.fromkeys("abcdef", "x"), "has more than Kafka Streams allows: 5 tags"),
        ({"x" * 21: "a"}, "20 characters of a name"),
        ({"a": "x" * 31}, "30 of its text"),
    ],
)
def test_tags_are_limited_as_in_kafka_streams(given: Any, message: str) -> None:
    """The error says the limits, and how tags are given."""
    with pytest.raises(ConfigError, match=message):
        config(client_tags=given)
