"""The settings of an app."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack, final

from ks_actors._errors import ConfigError
from ks_actors.config._names import ALIASES, is_secret, unsupported
from ks_actors.config._parsers import ProcessingGuarantee
from ks_actors.config._settings import SETTINGS, contradictions
from ks_actors.config._sources import Given, from_environment, from_file, from_mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ks_actors.config._exception_handlers import DeserializationExceptionHandler, ProcessingExceptionHandler, ProductionExceptionHandler
    from ks_actors.config._settings import Keywords, Options, Settings
    from ks_actors.log import IsolationLevel
    from ks_actors.serdes import Serde
    from ks_actors.topology import TimestampExtractor

__all__ = ["ProcessingGuarantee", "StreamsConfig"]

ENVIRONMENT = "KS_ACTORS_"
Source: TypeAlias = "tuple[Given, ...]"


@final
@dataclass(frozen=True, init=False, repr=False)
class StreamsConfig:
    """The settings of an app, by Kafka Streams' names and with its meanings; what is not said here is said there.

    Made from keywords, `StreamsConfig(application_id="orders", commit_interval_ms=100)`; by `of` from a mapping; by `load` from a file, the
    environment and keywords. Names are `commit_interval_ms` or `commit.interval.ms`; what may be an object may be its dotted name, such as
    `ks_actors.serdes.STRING`.

    Raises ConfigError, with all problems at once, for values that are wrong and for names that are unknown or not supported by this version: no
    setting is accepted and ignored. Does not change once it is made; `replace` makes another.
    """

    application_id: str
    """The name of the app, the same for all its instances: that of its group, and the beginning of the names of its topics. Required."""
    client_id: str
    """The name of this instance in logs and metrics. Default: the application's id."""
    bootstrap_servers: str | None
    """The Kafka that topics are in, `host:port,host:port` or a list of these. Default: none, see `log`."""
    log: str
    """The log that topics are in: `memory://`, a new one in memory, `embedded:///path`, or `kafka://host:port,host:port`.

    Default: the Kafka at `bootstrap_servers`, and `memory://` without. Apps of one process share a log by `App(log=…)`.
    """
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """How to talk with Kafka. Default: `PLAINTEXT`."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None
    """How to log in. Required for SASL, with `sasl_username` and `sasl_password`, or `sasl_jaas_config`."""
    sasl_username: str | None
    """Who logs in."""
    sasl_password: str | None
    """The password of who logs in. Never shown."""
    sasl_jaas_config: tuple[str, str] | None
    """Both, taken from a line as Kafka's Java clients have it: `…PlainLoginModule required username="alice" password="…";`. Never shown."""
    ssl_truststore_location: Path | None
    """The certificates to trust, a PEM file; `ssl_ca_location` is another name for it. Default: the system's."""
    ssl_truststore_type: Literal["PEM"]
    """Only `PEM`, which is the default (Kafka's: JKS)."""
    ssl_keystore_location: Path | None
    """Who the client is, a PEM file with its certificate and perhaps its key; `ssl_certificate_location` is another name for it. Default: nobody."""
    ssl_keystore_type: Literal["PEM"]
    """Only `PEM`, which is the default (Kafka's: JKS)."""
    ssl_key_location: Path | None
    """The client's key, where that has a file of its own."""
    ssl_key_password: str | None
    """The password of the client's key. Never shown."""
    ssl_endpoint_identification_algorithm: Literal["https", ""]
    """`https` (the default): brokers have to have the name that their certificate says. Empty: they need not."""
    request_timeout_ms: int
    """How long one request to Kafka may take. Default: 30,000."""
    retry_backoff_ms: int
    """How long to wait before the first retry of a request to Kafka. Default: 50 (Kafka's: 100)."""
    retry_backoff_max_ms: int
    """How long to wait before a retry at most. Default: 1,000."""
    reconnect_backoff_ms: int
    """How long to wait before the second attempt to connect to a broker. Default: 50."""
    reconnect_backoff_max_ms: int
    """How long to wait before an attempt to connect at most: so long a broker that is back may be unnoticed. Default: 200 (Kafka's: 1,000)."""
    connections_max_idle_ms: int
    """How long a connection to Kafka is kept without use. Default: 540,000."""
    replication_factor: int
    """How many replicas changelogs and repartition topics have in Kafka. Default: -1, what the brokers say."""
    producer_compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """How records are compressed that are written to Kafka. Default: `none`. All but `gzip` need the package cramjam."""
    group_instance_id: str | None
    """A name for this instance that no other one of the app has: it is a static member of the group, and one that is restarted within
    `session_timeout_ms` has its tasks again without a rebalance. Default: none."""
    state_dir: Path
    """Where stores are kept, in a directory by the application's id. Default: `ks-actors` in the system's directory for temporary files."""
    state_cleanup_delay_ms: int
    """How long the directory of a task is kept that has gone to another instance. Default: 600,000."""
    state_cleanup_dir_max_age_ms: int
    """Directories of tasks that have not changed for longer are deleted on start. Default: -1, none are."""
    num_stream_threads: int
    """How many workers process tasks; `num_workers` is another name for it. Default: 1."""
    num_standby_replicas: int
    """How many other instances keep the state of each task up to date. Default: 0."""
    processing_guarantee: ProcessingGuarantee
    """`at_least_once` (the default) or `exactly_once_v2`."""
    commit_interval_ms: int
    """How often to commit. Default: 30,000, exactly once 100."""
    max_task_idle_ms: int
    """How long a task with several partitions waits for data of those that have none: -1 never, 0 (the default) only for data that the log has, more
    that long for data that may come."""
    buffered_records_per_partition: int
    """How many records of a partition wait in memory before its fetching pauses. Default: 20,000, since they come in batches (Kafka's: 1,000)."""
    input_buffer_max_bytes: int
    """How many bytes of records wait in memory, over all partitions, before fetching pauses; -1 for no limit. Default: 512 MiB."""
    statestore_uncommitted_max_bytes: int
    """How many bytes the stores hold uncommitted before a commit is forced; -1 for no limit. Default: 64 MiB."""
    statestore_memory_max_bytes: int
    """About how many bytes committed state may take in memory, of all persistent stores of the instance, RocksDB's caches included. Default: 512 MiB.

    Not known to Kafka.
    """
    statestore_cache_max_bytes: int
    """How many bytes of table updates are held back, so that of several to a row only the last one goes downstream, at each commit at the latest.

    `cache_max_bytes_buffering` is another name for it. Default: 0, every update goes downstream at once (Kafka's: 10 MiB).
    """
    default_key_serde: Serde[Any] | None
    """The serde of keys where the topology names none. Default: none, every serde has to be named."""
    default_value_serde: Serde[Any] | None
    """The serde of values where the topology names none. Default: none."""
    default_timestamp_extractor: TimestampExtractor
    """What tells the time of records, where the topology does not say. Default: the record's own, a negative one is an error."""
    deserialization_exception_handler: DeserializationExceptionHandler
    """Who decides about records that cannot be read: a handler, or `fail` (the default) or `continue`."""
    processing_exception_handler: ProcessingExceptionHandler
    """Who decides about records at which a processor raises; likewise."""
    production_exception_handler: ProductionExceptionHandler
    """Who decides about records that cannot be written; likewise."""
    errors_dead_letter_queue_topic_name: str | None
    """The topic that records go to of which `fail` and `continue` have to decide. It has to exist. Default: none."""
    topology_optimization: str
    """What `StreamsBuilder.build` makes better of a topology, if it is given this config: `none` (the default), `all`, or some of these, separated by
    commas: `reuse.ktable.source.topics`, source tables have no changelog but the topic that they are read from; `merge.repartition.topics`, one
    repartition topic behind a change of keys; `single.store.self.join`, a stream joined with itself is kept once."""
    default_dsl_store: Literal["rocksdb", "in_memory"]
    """What stores are by default: `rocksDB` (the default) or `in_memory`. `dsl_store` is another name for it."""
    default_state_isolation_level: IsolationLevel
    """What queries see: all that was put, `READ_UNCOMMITTED` (the default), or only what no failure takes back, `READ_COMMITTED` (exactly once)."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to begin where nothing is committed: `earliest` (the default), `latest`, or `none`, which is an error."""
    task_timeout_ms: int
    """How long a task may fail to make progress because the log does not answer. Default: 300,000."""
    close_timeout_ms: int
    """How long (ms) an app that closes waits for its log, in all; a warning names work that it gives up then. Default: 30,000."""
    stall_warning_ms: int
    """How long records may wait, of a partition that is assigned, before a warning says why; again after twice that, four times that and so on.
    0 or -1: there is no warning. Default: 10,000. Not known to Kafka."""
    poll_ms: int
    """How long to wait for records at most before looking at anything else. Default: 100."""
    max_decompressed_bytes: int
    """How many bytes a compressed record batch of Kafka may become in memory. Default: 268,435,456. Not known to Kafka.

    About a batch that becomes more the `deserialization_exception_handler` decides.
    """
    linger_ms: int
    """How long records that trickle are gathered before the next fetch, and half as long before their output is written, in ms; 0: not at all.

    The first record after a quiet moment is not delayed. Default: 20.
    """
    metadata_max_age_ms: int
    """How often (ms) topics in use are looked up anew: so long it may take until records go to partitions that were added. Default: 300,000."""
    max_poll_interval_ms: int
    """How long a function may not return, or hold up a rebalance, before the instance loses its tasks. Default: 300,000."""
    session_timeout_ms: int
    """How long the group waits for a sign of life. Default: 45,000."""
    transaction_timeout_ms: int
    """How long a transaction may be open, exactly once. Default: 10,000."""
    repartition_purge_interval_ms: int
    """How often records of repartition topics are deleted that have been processed. Default: 30,000."""
    snapshot_uri: str | None
    """Where snapshots are written, and looked for by tasks that begin: a URL that fsspec knows, such as `file:///var/snapshots` or
    `s3://bucket/snapshots`. Default: none, there are no snapshots. Needs the package fsspec."""
    snapshot_interval_ms: int
    """How often to take a snapshot of the tasks that are processed here; 0: only by `App.snapshot`. Default: 600,000."""
    snapshot_keep: int
    """How many snapshots of each task are kept. Default: 2."""
    snapshot_timeout_ms: int
    """How long taking a snapshot may take before it is given up. Default: 600,000."""
    snapshot_max_age_ms: int
    """How old a snapshot may be that the changelog has gone on behind: not older than changelogs keep deletions, `delete.retention.ms`, or
    what was deleted would come back. Default: 86,400,000, a day, as Kafka's."""
    windowstore_changelog_additional_retention_ms: int
    """How much longer changelogs of window stores keep records than the stores do. Default: 86,400,000, a day."""
    max_drain_ms: int
    """How long (ms) a task may take to come to rest for a commit, with async records in flight, before it fails, alone. Default: 60,000.

    Not known to Kafka.
    """
    worker_slice_ms: int
    """How long (ms) a worker stays at one task, or at several with little to do, before others have their turn. Default: 5. Not known to Kafka."""

    metrics_recording_level: Literal["INFO", "DEBUG", "TRACE"]
    """What is counted: from `DEBUG` on RocksDB counts what it does, which takes a little time of each read and write. Default: `INFO`."""

    origins: Mapping[str, str] = field(compare=False)
    """Where each setting is from: `default`, `keyword`, `mapping`, the name of the file, or `environment` and the variable."""

    _given: tuple[Source, ...] = field(compare=False)

    def __init__(self, **settings: Unpack[Settings]) -> None:
        self._resolve(from_mapping(settings, "keyword"))

    @classmethod
    def of(cls, settings: Mapping[str, Any], /) -> Self:
        """Return the config that a mapping of names to values, or to values as text, makes."""
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
        """Return the config that a file, then the environment, then keywords make: each overrides those before it.

        `file` is TOML or Java properties, by its suffix. Of `environ` (None: this process's) every variable that begins with `prefix` is a setting:
        KS_ACTORS_COMMIT_INTERVAL_MS.
        """
        return cls._made(
            from_file(Path(file)) if file is not None else (),
            from_environment(os.environ if environ is None else environ, prefix),
            from_mapping(settings, "keyword"),
        )

    def replace(self, **settings: Unpack[Options]) -> Self:
        """Return a config with other settings. Defaults are found anew: those of what was never given may change with what is."""
        return self._made(*self._given, from_mapping(settings, "keyword"))

    def __repr__(self) -> str:
        said = (f"{name}={_shown(name, getattr(self, name))}" for name in SETTINGS if self.origins[name] != "default")
        return f"StreamsConfig({', '.join(said)})"

    @classmethod
    def _made(cls, *sources: Source) -> Self:
        config = cls.__new__(cls)
        config._resolve(*sources)
        return config

    def _resolve(self, *sources: Source) -> None:
        """Set all fields; later sources override earlier ones."""
        problems: list[str] = []
        latest: dict[str, Given] = {}
        for source in sources:
            latest |= _recognized(source, problems)
        values = _parsed(latest, problems)
        if "application_id" not in latest:
            problems.append("application_id: is required")
        if not problems:
            for name, setting in SETTINGS.items():
                if name not in values:
                    values[name] = setting.default(values)
            problems = contradictions(values, latest)
        if problems:
            count = f"{len(problems)} settings are" if len(problems) > 1 else "a setting is"
            raise ConfigError("\n  ".join((f"{count} wrong:", *problems)))
        origins = {name: latest[name].origin if name in latest else "default" for name in SETTINGS}
        for name, value in {**values, "origins": MappingProxyType(origins), "_given": sources}.items():
            object.__setattr__(self, name, value)


def _recognized(source: Source, problems: list[str]) -> dict[str, Given]:
    """Return what there is among the settings, by name; tell of the others."""
    found: dict[str, Given] = {}
    for entry in source:
        name = ALIASES.get(entry.name, entry.name)
        if name not in SETTINGS:
            problems.append(f"{entry.name} ({entry.origin}): {unsupported(entry.name) or _unknown(entry.name)}")
        elif name in found and found[name].name != entry.name:
            problems.append(f"{entry.name} ({entry.origin}): is another name of {found[name].name}, which is given too")
        else:
            found[name] = entry
    return found


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, [*SETTINGS, *ALIASES], n=1)
    return f"is unknown; did you mean {close[0]}?" if close else "is unknown"


def _parsed(given: Mapping[str, Given], problems: list[str]) -> dict[str, Any]:
    """Return the values, without those that are wrong; tell of these."""
    values: dict[str, Any] = {}
    for name, entry in given.items():
        try:
            values[name] = SETTINGS[name].parse(entry.value)
        except ValueError as error:
            problems.append(f"{name} ({entry.origin}): {_shown(name, entry.value)} {error}")
    return values


def _shown(name: str, value: Any) -> str:
    return "***" if is_secret(name) else repr(value)
