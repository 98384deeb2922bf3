"""The settings of an app."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, TypeAlias, Unpack, final

from ks_actors._errors import ConfigError
from ks_actors._hints import Hinted
from ks_actors.config._clients import TOPIC
from ks_actors.config._members import settings_of_member
from ks_actors.config._names import shown
from ks_actors.config._parsers import ProcessingGuarantee
from ks_actors.config._placeholders import ENVIRONMENT, unfilled
from ks_actors.config._recognize import HINT, Recognized
from ks_actors.config._settings import SETTINGS, contradictions
from ks_actors.config._sources import Given, from_environment, from_file, from_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from ks_actors.config._exception_handlers import (
        DeserializationExceptionHandler,
        ProcessingExceptionHandler,
        ProductionExceptionHandler,
    )
    from ks_actors.config._jaas import IamLogin
    from ks_actors.config._settings import Keywords, Options, Settings
    from ks_actors.log import IsolationLevel
    from ks_actors.processors.api import ProcessorWrapper
    from ks_actors.serdes import Serde
    from ks_actors.topology import StoreType, TimestampExtractor

__all__ = ["ProcessingGuarantee", "StreamsConfig"]

Source: TypeAlias = "tuple[Given, ...]"


@final
@dataclass(frozen=True, init=False, repr=False)
class StreamsConfig(metaclass=Hinted):
    """The settings of an app, with Kafka Streams' names and meanings unless documented here.

    Build it from keywords, `StreamsConfig(application_id="orders", commit_interval_ms=100)`; by
    `of` from a mapping; by `load` from a file, the environment and keywords. Names are
    `commit_interval_ms` or `commit.interval.ms`. Objects may be given by their dotted names, such
    as `ks_actors.serdes.STRING`. Times are in ms, or a `timedelta`; sizes are in bytes.

    Raises ConfigError, with all problems at once, for wrong values and for names that are unknown
    or not supported: no setting is silently ignored. A config is immutable; `replace` makes
    another config.
    """

    application_id: str
    """The name of the app, the same for all its instances. Required.

    Names the consumer group, and begins the names of internal topics.
    """
    client_id: str
    """The name of this instance in logs and metrics. Default: the application's id."""
    bootstrap_servers: str | None
    """The Kafka brokers, `host:port,host:port` or a list of these. Default: none, see `log`."""
    log: str
    """The log with the app's topics.

    One of `memory://`, a new log in memory, `embedded:///path`, or `kafka://host:port,host:port`.
    Default: the Kafka at `bootstrap_servers`; an app needs one of the two, or `App(log=…)`, by
    which apps of one process share a log.
    """
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """The protocol of connections to Kafka. Default: `PLAINTEXT`."""
    sasl_mechanism: (
        Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"]
        | None
    )
    """The login mechanism.

    Required for SASL: with `sasl_username` and `sasl_password`, or `sasl_jaas_config`. OAUTHBEARER
    takes a token endpoint or a callback. AWS_MSK_IAM is the mechanism of Amazon MSK; it needs the
    extra `msk`, which has AWS's signer. GSSAPI takes the Kerberos ticket of the process; it needs
    the extra `gssapi`.
    """
    sasl_username: str | None
    """The user name for SASL."""
    sasl_password: str | None
    """The password for SASL. Never shown."""
    sasl_jaas_config: tuple[str, str] | IamLogin | None
    """User name and password, from a line as Kafka's Java clients have it. Never shown.

    Example: `…PlainLoginModule required username="alice" password="…";`. For AWS_MSK_IAM, the
    profile or the role: `…IAMLoginModule required awsProfileName="orders";`.
    """
    sasl_login_callback_handler: Callable[[], Any] | None
    """A function, plain or async, that returns a token for OAUTHBEARER, or its name.

    The token is a `str`, or a `ks_actors.log.kafka.Token` with expiry and extensions. The function
    is called in a thread, at the first connection and when 80 % of a token's lifetime have passed.
    """
    sasl_oauthbearer_token_endpoint_url: str | None
    """The service that issues tokens for OAUTHBEARER (OpenID Connect, client credentials).

    `https://host/path`, `http://` on this machine, or `file:///path` of a file with the token.
    """
    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client's id at the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str | None
    """The client's secret at the token endpoint. Never shown."""
    sasl_oauthbearer_scope: str | None
    """The scope to ask for at the token endpoint."""
    sasl_oauthbearer_extensions: tuple[tuple[str, str], ...]
    """Names and values sent along with the token, as `name=value,name=value` or a mapping.

    Example, of Confluent Cloud: `logicalCluster=lkc-1,identityPoolId=pool-1`.
    """
    sasl_kerberos_service_name: str
    """The service in the brokers' Kerberos principals. Default: `kafka`."""
    sasl_kerberos_domain_name: str | None
    """The host in the brokers' Kerberos principals. Default: that of the address."""
    ssl_truststore_location: Path | None
    """The trusted certificates, a file in PEM or PKCS#12. Default: the system's.

    `ssl_ca_location` is another name for it. PKCS#12 needs the package cryptography.
    """
    ssl_truststore_type: Literal["PEM", "PKCS12"] | None
    """`PEM` or `PKCS12`. Default: the file's content tells (Kafka's: JKS)."""
    ssl_truststore_password: str | None
    """The password of a PKCS#12 truststore. Never shown."""
    ssl_truststore_certificates: str | None
    """The trusted certificates themselves, as PEM, in place of a file. Never shown."""
    ssl_keystore_location: Path | None
    """The client's certificate, and optionally its key, in PEM or PKCS#12. Default: none.

    `ssl_certificate_location` is another name for it. PKCS#12 needs the package cryptography.
    """
    ssl_keystore_type: Literal["PEM", "PKCS12"] | None
    """`PEM` or `PKCS12`. Default: the file's content tells (Kafka's: JKS)."""
    ssl_keystore_password: str | None
    """The password of a PKCS#12 keystore. Never shown."""
    ssl_keystore_certificate_chain: str | None
    """The client's certificate itself, as PEM, in place of a file. Never shown."""
    ssl_keystore_key: str | None
    """The key of that certificate, as PEM, perhaps encrypted by `ssl_key_password`. Never shown."""
    ssl_key_location: Path | None
    """The client's key, if it has a file of its own."""
    ssl_key_password: str | None
    """The password of the client's key. Never shown."""
    ssl_endpoint_identification_algorithm: Literal["https", ""]
    """`https` (the default): check brokers' names against their certificates. Empty: do not."""
    request_timeout_ms: int
    """Timeout of one request to Kafka. Default: 30,000."""
    retry_backoff_ms: int
    """Delay before the first retry of a request to Kafka. Default: 50 (Kafka's: 100)."""
    retry_backoff_max_ms: int
    """Maximum delay before a retry. Default: 1,000."""
    reconnect_backoff_ms: int
    """Delay before the second attempt to connect to a broker. Default: 50."""
    reconnect_backoff_max_ms: int
    """Maximum delay before an attempt to connect. Default: 200 (Kafka's: 1,000).

    A broker that is back may go unnoticed for that long.
    """
    connections_max_idle_ms: int
    """Time after which an unused connection to Kafka is closed. Default: 540,000."""
    replication_factor: int
    """Replicas of changelogs and repartition topics in Kafka. Default: -1, the brokers' default."""
    producer_compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Compression of records written to Kafka. Default: `none`.

    All but `gzip` need the package cramjam.
    """
    compression_gzip_level: int | None
    """The level of `gzip`, 1 to 9. Default: none, the library's."""
    compression_lz4_level: int | None
    """The level of `lz4`, 1 to 17. Default: none, which means 1."""
    compression_zstd_level: int | None
    """The level of `zstd`, up to 22. Default: none, the library's."""
    default_api_timeout_ms: int
    """Timeout of one call to Kafka with all its retries. Default: 60,000."""
    socket_connection_setup_timeout_ms: int
    """Timeout of one attempt to connect to a broker. Default: 10,000."""
    fetch_max_bytes: int
    """Maximum bytes of one response to a fetch. Default: 52,428,800."""
    max_partition_fetch_bytes: int
    """Maximum bytes of one partition in a response to a fetch. Default: 1,048,576."""
    batch_size: int
    """Bytes of records that one batch takes, before compression. Default: 1,000,000.

    A larger record has a batch of its own. Kafka's default is 16,384; here, records come in
    batches.
    """
    max_in_flight_requests_per_connection: int
    """Writes to one broker that may be under way, at most 5. Default: 4 (Kafka's: 5)."""
    topic_configs: Mapping[str, str] = field(hash=False)
    """Configs of new changelogs and repartition topics, by their names. Default: none.

    In files they have the prefix `topic.`, such as `topic.segment.bytes`. The configs that a store
    asks for by `Materialized(changelog_configs=…)` override them.
    """
    group_instance_id: str | None
    """A name for this instance, unique among the app's instances. Default: none.

    Makes it a static member of the group: restarted within `session_timeout_ms`, it has its tasks
    again without a rebalance.
    """
    state_dir: Path
    """The directory of stores; it contains a directory named by the application's id.

    Default: `ks-actors` in the system's directory for temporary files.
    """
    state_cleanup_delay_ms: int
    """Time until an unused task directory is deleted. Default: 600,000.

    A directory is unused while its task is neither processed nor a standby here.
    """
    state_cleanup_dir_max_age_ms: int
    """Age beyond which unchanged task directories are deleted on start. Default: -1, never."""
    state_layout: Literal["task", "shared"]
    """The number of databases on disk: one per task (`task`), or one for all (`shared`).

    Default: `task`. With `shared`, many tasks start fast and need few open files; a damaged disk
    block costs the state of all tasks. The state of the other layout is converted.
    """
    num_stream_threads: int
    """Number of workers that process tasks. Default: 1.

    `num_workers` is another name for it.
    """
    num_standby_replicas: int
    """Number of other instances that keep a copy of each task's state. Default: 0."""
    queries: tuple[str, ...]
    """Named queries that the instance runs; `rest` is all outside of them. Default: all of them."""
    client_tags: Mapping[str, str] = field(hash=False)
    """Tags of this instance, such as `{"zone": "a"}`, that a task assignor sees. Default: none."""
    processing_guarantee: ProcessingGuarantee
    """`at_least_once` (the default) or `exactly_once_v2`."""
    commit_interval_ms: int
    """Interval of commits. Default: 30,000; 100 under exactly-once."""
    max_task_idle_ms: int
    """Time that a task with several partitions waits for data of empty partitions. Default: 0.

    -1: do not wait. 0: wait only for data that the log has. More: also wait that long for data that
    may come.
    """
    buffered_records_per_partition: int
    """Records of a partition that may wait in memory before its fetching pauses. Default: 5,000.

    Kafka's default is 1,000; here, records come in batches.
    """
    input_buffer_max_bytes: int
    """Bytes of waiting records, over all partitions, before fetching pauses. Default: 512 MiB.

    -1 for no limit.
    """
    statestore_uncommitted_max_bytes: int
    """Uncommitted bytes in stores that force a commit; -1 for no limit. Default: 64 MiB."""
    statestore_memory_max_bytes: int
    """Approximate bytes of committed state in memory. Default: 512 MiB.

    Counts all persistent stores of the instance, and includes RocksDB's caches. Not known to Kafka.
    """
    statestore_cache_max_bytes: int
    """Bytes of cached table updates. Default: 0, no cache (Kafka's: 10 MiB).

    Without a cache, every update is forwarded at once. Of several cached updates to a row, only the
    last one is forwarded, at each commit at the latest. `cache_max_bytes_buffering` is another name
    for it.
    """
    default_key_serde: Serde[Any] | None
    """The serde of keys, or a type, where the topology names none. Default: none.

    It takes precedence over serdes that follow from annotations.
    """
    default_value_serde: Serde[Any] | None
    """The serde of values, or a type, where the topology names none. Default: none."""
    default_timestamp_extractor: TimestampExtractor
    """The extractor of record times, unless the topology names one.

    Default: the record's own time; a negative one is an error.
    """
    deserialization_exception_handler: DeserializationExceptionHandler
    """The handler of unreadable records: a function, or `fail` (the default) or `continue`."""
    processing_exception_handler: ProcessingExceptionHandler
    """The handler of records that make a processor raise. Default: `fail`."""
    production_exception_handler: ProductionExceptionHandler
    """The handler of records that cannot be written. Default: `fail`."""
    errors_dead_letter_queue_topic_name: str | None
    """The dead letter queue of the handlers `fail` and `continue`, a topic. Default: none.

    It must exist.
    """
    topology_optimization: str
    """The optimizations that `StreamsBuilder.build` applies if given this config.

    `none` (the default), `all`, or some of these, separated by commas:
    `reuse.ktable.source.topics`, a source table's own topic is its changelog;
    `merge.repartition.topics`, one repartition topic after a change of keys;
    `single.store.self.join`, a self-join of a stream stores it once.
    """
    ensure_explicit_internal_resource_naming: bool
    """True: generated names of stores and internal topics are an error (KIP-1111). Default: False.

    False: `StreamsBuilder.build` with this config logs them as a warning.
    """
    processor_wrapper_class: ProcessorWrapper | None
    """The wrapper of all processors' functions (KIP-1112). Default: none.

    An object, a class, or the name of either. Tasks with a wrapper process records one at a time.
    """
    kafka_streams_faults: bool
    """True: results have the known faults of Kafka Streams, as its own do. Default: False.

    Use it to compare results, or to replace a Kafka Streams app whose readers expect the faults.
    The documentation lists the faults ("What differs on purpose"). Not known to Kafka.
    """
    default_dsl_store: StoreType
    """The default type of stores: `rocksDB` (the default), `in_memory`, or an engine of one's own.

    For an engine, give a function that makes a `StoreEngine` from a `StoreEngineContext`, or the
    function's name. `dsl_store` is another name for the setting.
    """
    dsl_store_format: Literal["DEFAULT", "HEADERS"]
    """The format of the DSL's stores: `DEFAULT`, or `HEADERS`, which keep headers (KIP-1285).

    As in Kafka Streams it is for stores on disk. Operators of the DSL put no headers; processors
    that use the stores of the DSL may.
    """
    enable_transactional_statestores: Literal[True]
    """Only True, which is the default (Kafka Streams': False).

    A failure undoes the writes to stores since the last commit, and nothing else (KIP-892).
    """
    default_interactive_query_isolation_level: IsolationLevel
    """The isolation of queries. Default: `READ_UNCOMMITTED`; `READ_COMMITTED` under exactly-once.

    `READ_UNCOMMITTED` sees all writes, `READ_COMMITTED` only those that no failure can undo. Kafka
    Streams' default is always `READ_UNCOMMITTED` (KIP-892). `default_state_isolation_level` is
    another name for it.
    """
    application_server: str | None
    """The address, `host:port`, at which other instances and clients read this one's stores.

    Every instance has its own. Default: none, and nothing listens. Port 0 is any free port. An
    address that other machines can reach needs `query_token` and a certificate.
    """
    query_token: str | None
    """The secret that callers must send, the same for all instances. Never shown. Default: none."""
    query_ssl_certificate_location: Path | None
    """The certificate of `application_server`, with its chain, in PEM. Default: none, no TLS."""
    query_ssl_key_location: Path | None
    """The key of that certificate, in PEM. Default: in the file of the certificate."""
    query_ssl_ca_location: Path | None
    """The certificates, in PEM, by which other instances are checked. Default: the system's."""
    query_insecure: bool
    """True: serve other machines without token or TLS, and send them the token. Default: False."""
    auto_offset_reset: Literal["earliest", "latest", "none"] | timedelta
    """The start of partitions without a commit: `earliest` (the default), `latest` or `none`.

    `none` is an error. A timedelta, or `by_duration:P1D` in a file, leads to the first record of at
    most that age, and to the end if there is none (KIP-1106).
    """
    task_timeout_ms: int
    """Time that a task may make no progress because the log does not answer. Default: 300,000."""
    delivery_timeout_ms: int
    """Time in which a record must be written. Default: 300,000, or a longer `task_timeout_ms`."""
    close_timeout_ms: int
    """Total time (ms) that a closing app waits for its log. Default: 30,000.

    A warning names the work that it abandons then.
    """
    stall_warning_ms: int
    """Time that records of an assigned partition wait before a warning names the reason.

    The warning repeats after twice that time, four times and so on. 0 or -1: no warning.
    Default: 10,000. Not known to Kafka.
    """
    poll_ms: int
    """Maximum wait (ms) of a fetch; the first record ends it. Default: 1,000.

    Kafka Streams' default is 100, because its threads wait for the fetch.
    """
    max_decompressed_bytes: int
    """Maximum bytes in memory of a compressed record batch of Kafka. Default: 268,435,456.

    The `deserialization_exception_handler` decides about a larger batch. Not known to Kafka.
    """
    linger_ms: int
    """Time (ms) to gather slowly arriving records before the next fetch; 0: none. Default: 20.

    Under at-least-once, their output gathers half as long before it is written. The first record
    after an idle period is not delayed.
    """
    metadata_max_age_ms: int
    """Interval (ms) of new lookups of the topics in use. Default: 300,000.

    Records may not go to added partitions for that long.
    """
    max_poll_interval_ms: int
    """Time that a function may block or delay a rebalance before the tasks are lost.

    The commit before a rebalance may take half of it. Default: 300,000.
    """
    session_timeout_ms: int
    """Time without heartbeats after which the group removes a member. Default: 45,000."""
    transaction_timeout_ms: int
    """Timeout of a transaction, under exactly-once. Default: 10,000."""
    repartition_purge_interval_ms: int
    """Interval of deleting processed records from repartition topics. Default: 30,000."""
    snapshot_uri: str | None
    """The place of snapshots, also searched by starting tasks. Default: none, no snapshots.

    A URL that fsspec knows, such as `file:///var/snapshots` or `s3://bucket/snapshots`. Must not
    overlap the state directory of the app. Needs the package fsspec.
    """
    snapshot_interval_ms: int
    """Interval of snapshots of the local active tasks. Default: 600,000.

    0: only by `App.snapshot`.
    """
    snapshot_keep: int
    """Number of snapshots kept of each task. Default: 2."""
    snapshot_timeout_ms: int
    """Time after which an unfinished snapshot is abandoned. Default: 600,000."""
    snapshot_max_age_ms: int
    """Maximum age of a snapshot if its changelog has newer records. Default: 86,400,000, a day.

    It must not exceed the time that changelogs keep deletions (`delete.retention.ms`, with the same
    default in Kafka), or deleted rows would return.
    """
    windowstore_changelog_additional_retention_ms: int
    """Extra retention of window stores' changelogs. Default: 86,400,000, a day."""
    max_drain_ms: int
    """Time (ms) in which a call of a draining task has to end. Default: 60,000.

    If the call takes longer, the task fails, and only that task. Not known to Kafka.
    """
    worker_slice_ms: int
    """Time (ms) that a worker spends at a task before it yields. Default: 5. Not known to Kafka.

    Tasks with little to do share one such slice.
    """

    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"]
    """The level of metrics. Default: `INFO`.

    `App.metrics()` has the metrics of this level and lower levels. From `DEBUG` on, RocksDB counts
    its operations, at a small cost per read and write.
    """

    ignored_settings: tuple[str, ...]
    """Settings that are not supported, and accepted without effect. Default: none.

    A list, or one text with commas. `schema.registry.*` stands for all names that begin with
    `schema.registry.`. An app logs the names of ignored settings.
    """

    ignored: tuple[str, ...] = field(compare=False)
    """The given settings that have no effect, as `ignored_settings` allows."""

    origins: Mapping[str, str] = field(compare=False)
    """The origin of each setting.

    One of `default`, `keyword`, `mapping`, the file's name, or `environment` and the variable.
    """

    _given: tuple[Source, ...] = field(compare=False)

    def __init__(self, *places: Never, **settings: Unpack[Settings]) -> None:
        if places:
            given: tuple[Any, ...] = places
            names = zip(("application_id", "bootstrap_servers"), given, strict=False)
            said = ", ".join(f"{name}={value!r}" for name, value in names)
            raise TypeError(f"settings have names: give StreamsConfig({said}, …)")
        self._resolve(from_mapping(settings, "keyword"))

    @classmethod
    def of(cls, settings: Mapping[str, Any], /) -> Self:
        """Return the config of a mapping of names to values or texts."""
        return cls._made(from_mapping(settings, "mapping"))

    @classmethod
    def load(
        cls,
        file: str | Path | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        prefix: str = ENVIRONMENT,
        **settings: Unpack[Keywords],
    ) -> Self:
        """Return the config of a file, the environment and keywords, each overriding the earlier.

        `file` is TOML or Java properties, by its suffix. Every variable of `environ` (None: this
        process's) that begins with `prefix` is a setting: KS_ACTORS_COMMIT_INTERVAL_MS.
        """
        return cls._made(
            from_file(Path(file)) if file is not None else (),
            from_environment(os.environ if environ is None else environ, prefix),
            from_mapping(settings, "keyword"),
        )

    def replace(self, **settings: Unpack[Options]) -> Self:
        """Return a config with other settings.

        Defaults are computed again, since some depend on other settings.
        """
        return self._made(*self._given, from_mapping(settings, "keyword"))

    def for_member(self, number: int, count: int) -> Self:
        """Return the config of one of `count` processes that run this app on one machine.

        Members are numbered from 1. Each has its own `client_id`, `group_instance_id` (if there is
        one), place below `state_dir` and port of `application_server`, and an equal share of the
        four limits of memory. Member 1 keeps the client id and the place. `App.main(processes=…)`
        does this by itself. Raises ConfigError.
        """
        changed = settings_of_member(vars(self), number, count)
        return self.replace(**changed) if changed else self

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the parts to make the config again, for copies and for other processes."""
        return type(self)._made, self._given

    def __repr__(self) -> str:
        said = (
            f"{name}={shown(name, getattr(self, name))}"
            for name in SETTINGS
            if self.origins[name] != "default"
        )
        return f"StreamsConfig({', '.join(said)})"

    @classmethod
    def _made(cls, *sources: Source) -> Self:
        config = cls.__new__(cls)
        config._resolve(*sources)
        return config

    def _resolve(self, *sources: Source) -> None:
        """Set all fields; later sources override earlier sources."""
        found = Recognized()
        for source in sources:
            found.add(source)
        latest = found.latest
        values = _parsed(latest, found.problems)
        configs: dict[str, str] = {}
        for config, entry in found.topics.items():
            found.problems += unfilled(f"{TOPIC}{config.replace('.', '_')}", entry)
            try:
                configs |= SETTINGS["topic_configs"].parse({config: entry.value})
            except ValueError as error:
                found.problems.append(f"{entry.name} ({entry.origin}): {error}")
        if found.topics:
            values["topic_configs"] = SETTINGS["topic_configs"].parse(configs)
            latest["topic_configs"] = list(found.topics.values())[-1]
        if "application_id" not in latest:
            found.problems.append("application_id: is required")
        ignored = found.ignore(values.get("ignored_settings", ()))
        # Defaults depend on other settings, and only valid settings can contradict each other.
        if not found.wrong():
            for name, setting in SETTINGS.items():
                if name not in values:
                    values[name] = setting.default(values)
            found.check_shared(values)
            ignored += found.ignore(values["ignored_settings"])
            found.problems += contradictions(values, latest)
        if problems := found.wrong():
            count = f"{len(problems)} settings are" if len(problems) > 1 else "a setting is"
            hint = [f"({HINT})"] if found.has_unsupported() else []
            raise ConfigError("\n  ".join((f"{count} wrong:", *problems, *hint)))
        origins = {name: latest[name].origin if name in latest else "default" for name in SETTINGS}
        for name, value in {
            **values,
            "ignored": ignored,
            "origins": MappingProxyType(origins),
            "_given": sources,
        }.items():
            # The dataclass is frozen.
            object.__setattr__(self, name, value)


def _parsed(given: Mapping[str, Given], problems: list[str]) -> dict[str, Any]:
    """Return the valid values; append the problems of wrong values to `problems`."""
    values: dict[str, Any] = {}
    for name, entry in given.items():
        if problem := unfilled(name, entry):
            problems += problem
            continue
        try:
            values[name] = SETTINGS[name].parse(entry.value)
        except ValueError as error:
            problems.append(f"{name} ({entry.origin}): {shown(name, entry.value)} {error}")
    return values
