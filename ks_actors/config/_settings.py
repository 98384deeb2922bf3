"""The table of settings: the parser and the default of each."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Required, TypedDict

from ks_actors.config._exception_handlers import log_and_fail
from ks_actors.config._jaas import jaas
from ks_actors.config._kafka import (
    SCHEME,
    extensions,
    host_check,
    kafka_contradictions,
    servers,
    token_endpoint,
)
from ks_actors.config._keys import certificates, key, store_kind
from ks_actors.config._parsers import (
    INT16,
    INT32,
    ProcessingGuarantee,
    always,
    client_tags,
    directory,
    extractor,
    handler,
    log_url,
    milliseconds,
    names,
    offset_reset,
    one_of,
    optional,
    serde,
    store_type,
    switch,
    text,
    token_callback,
    topic_configs,
    topic_name,
    whole_number,
    wrapper,
)
from ks_actors.config._queries import query_contradictions, query_token, server
from ks_actors.log import IsolationLevel
from ks_actors.topology import FailOnInvalidTimestamp, optimization

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import timedelta

    from ks_actors.config._exception_handlers import (
        DeserializationExceptionHandler,
        ProcessingExceptionHandler,
        ProductionExceptionHandler,
    )
    from ks_actors.processors.api import ProcessorWrapper
    from ks_actors.serdes import SerdeOrType
    from ks_actors.topology import StoreType, TimestampExtractor

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
# At least as long as a task waits for the log: writes are retried as long as other requests.
_DELIVERY_MS = 300_000
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
# fsspec's names of the local file system, with or without slashes.
_LOCAL: Final = re.compile(r"(file|local):(//)?")


class OptionsOfApp(TypedDict, total=False):
    """Settings as keywords, except those that `App` names itself.

    Type checkers read the names and types of keywords from a class as it is written, so SETTINGS
    cannot make it. A test compares their names.
    """

    client_id: str
    security_protocol: str
    sasl_mechanism: str
    sasl_username: str
    sasl_password: str
    sasl_jaas_config: str
    sasl_login_callback_handler: Callable[[], Any] | str
    sasl_oauthbearer_token_endpoint_url: str
    sasl_oauthbearer_client_credentials_client_id: str
    sasl_oauthbearer_client_credentials_client_secret: str
    sasl_oauthbearer_scope: str
    sasl_oauthbearer_extensions: Mapping[str, str] | str
    sasl_kerberos_service_name: str
    sasl_kerberos_domain_name: str
    ssl_truststore_location: str | Path
    ssl_ca_location: str | Path
    ssl_truststore_type: str
    ssl_truststore_password: str
    ssl_truststore_certificates: str
    ssl_keystore_location: str | Path
    ssl_certificate_location: str | Path
    ssl_keystore_type: str
    ssl_keystore_password: str
    ssl_keystore_certificate_chain: str
    ssl_keystore_key: str
    ssl_key_location: str | Path
    ssl_key_password: str
    ssl_endpoint_identification_algorithm: str
    request_timeout_ms: int | timedelta
    retry_backoff_ms: int | timedelta
    retry_backoff_max_ms: int | timedelta
    reconnect_backoff_ms: int | timedelta
    reconnect_backoff_max_ms: int | timedelta
    connections_max_idle_ms: int | timedelta
    replication_factor: int
    producer_compression_type: str
    group_instance_id: str | None
    state_dir: str | Path
    state_cleanup_delay_ms: int | timedelta
    state_cleanup_dir_max_age_ms: int | timedelta
    state_layout: str
    num_stream_threads: int
    num_workers: int
    num_standby_replicas: int
    queries: Sequence[str] | str
    client_tags: Mapping[str, str] | str
    processing_guarantee: ProcessingGuarantee | str
    commit_interval_ms: int | timedelta
    max_task_idle_ms: int | timedelta
    buffered_records_per_partition: int
    input_buffer_max_bytes: int
    statestore_uncommitted_max_bytes: int
    statestore_memory_max_bytes: int
    statestore_cache_max_bytes: int
    cache_max_bytes_buffering: int
    default_key_serde: SerdeOrType[Any] | str
    default_value_serde: SerdeOrType[Any] | str
    default_timestamp_extractor: TimestampExtractor | str
    deserialization_exception_handler: DeserializationExceptionHandler | str
    processing_exception_handler: ProcessingExceptionHandler | str
    production_exception_handler: ProductionExceptionHandler | str
    errors_dead_letter_queue_topic_name: str
    topology_optimization: str | Collection[str]
    ensure_explicit_internal_resource_naming: bool | str
    processor_wrapper_class: ProcessorWrapper | type[ProcessorWrapper] | str | None
    kafka_streams_faults: bool | str
    default_dsl_store: StoreType | str
    dsl_store_format: str
    enable_transactional_statestores: bool | str
    default_interactive_query_isolation_level: IsolationLevel | str
    default_state_isolation_level: IsolationLevel | str
    application_server: str | None
    query_token: str | None
    query_ssl_certificate_location: str | Path | None
    query_ssl_key_location: str | Path | None
    query_ssl_ca_location: str | Path | None
    query_insecure: bool | str
    dsl_store: str
    auto_offset_reset: str | timedelta
    task_timeout_ms: int | timedelta
    close_timeout_ms: int | timedelta
    stall_warning_ms: int | timedelta
    poll_ms: int | timedelta
    default_api_timeout_ms: int | timedelta
    socket_connection_setup_timeout_ms: int | timedelta
    delivery_timeout_ms: int | timedelta
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    batch_size: int
    max_in_flight_requests_per_connection: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    topic_configs: Mapping[str, Any]
    ignored_settings: str | Sequence[str]
    max_decompressed_bytes: int
    linger_ms: int | timedelta
    metadata_max_age_ms: int | timedelta
    max_poll_interval_ms: int | timedelta
    session_timeout_ms: int | timedelta
    transaction_timeout_ms: int | timedelta
    repartition_purge_interval_ms: int | timedelta
    snapshot_uri: str | None
    snapshot_interval_ms: int | timedelta
    snapshot_keep: int
    snapshot_timeout_ms: int | timedelta
    snapshot_max_age_ms: int | timedelta
    windowstore_changelog_additional_retention_ms: int | timedelta
    max_drain_ms: int | timedelta
    worker_slice_ms: int | timedelta
    metrics_recording_level: str


class SettingsOfApp(OptionsOfApp, total=False):
    """Settings as keywords of `App`."""

    application_id: str


class Options(OptionsOfApp, total=False):
    """Settings as keywords, except the application's id."""

    bootstrap_servers: str | Sequence[str]
    log: str


class Keywords(Options, total=False):
    """Settings as keywords that add to other sources."""

    application_id: str


class Settings(Options):
    """Settings as keywords without other sources."""

    application_id: Required[str]


class Setting(NamedTuple):
    """One setting: `parse` returns its value or raises ValueError, `default` computes its default.

    Defaults are computed last, from settings earlier in the table.
    """

    parse: Callable[[Any], Any]
    default: Callable[[Mapping[str, Any]], Any]


def _exactly_once(values: Mapping[str, Any]) -> bool:
    return values["processing_guarantee"] is ProcessingGuarantee.EXACTLY_ONCE_V2


def _is(value: Any) -> Callable[[Mapping[str, Any]], Any]:
    return lambda _: value


SETTINGS: dict[str, Setting] = {
    "application_id": Setting(topic_name, _is(None)),
    "client_id": Setting(text, lambda values: values["application_id"]),
    "bootstrap_servers": Setting(servers, _is(None)),
    "log": Setting(
        log_url,
        lambda values: (
            f"{SCHEME}{values['bootstrap_servers']}" if values["bootstrap_servers"] else "memory://"
        ),
    ),
    "security_protocol": Setting(
        one_of(**{name.lower(): name for name in _PROTOCOLS}), _is("PLAINTEXT")
    ),
    "sasl_mechanism": Setting(one_of(**{name.lower(): name for name in _MECHANISMS}), _is(None)),
    "sasl_username": Setting(text, _is(None)),
    "sasl_password": Setting(text, _is(None)),
    "sasl_jaas_config": Setting(jaas, _is(None)),
    "sasl_login_callback_handler": Setting(token_callback, _is(None)),
    "sasl_oauthbearer_token_endpoint_url": Setting(token_endpoint, _is(None)),
    "sasl_oauthbearer_client_credentials_client_id": Setting(text, _is(None)),
    "sasl_oauthbearer_client_credentials_client_secret": Setting(text, _is(None)),
    "sasl_oauthbearer_scope": Setting(text, _is(None)),
    "sasl_oauthbearer_extensions": Setting(extensions, _is(())),
    "sasl_kerberos_service_name": Setting(text, _is("kafka")),
    "sasl_kerberos_domain_name": Setting(text, _is(None)),
    "ssl_truststore_location": Setting(directory, _is(None)),
    "ssl_truststore_type": Setting(store_kind, _is(None)),
    "ssl_truststore_password": Setting(text, _is(None)),
    "ssl_truststore_certificates": Setting(certificates, _is(None)),
    "ssl_keystore_location": Setting(directory, _is(None)),
    "ssl_keystore_type": Setting(store_kind, _is(None)),
    "ssl_keystore_password": Setting(text, _is(None)),
    "ssl_keystore_certificate_chain": Setting(certificates, _is(None)),
    "ssl_keystore_key": Setting(key, _is(None)),
    "ssl_key_location": Setting(directory, _is(None)),
    "ssl_key_password": Setting(text, _is(None)),
    "ssl_endpoint_identification_algorithm": Setting(host_check, _is("https")),
    "request_timeout_ms": Setting(milliseconds(1, most=INT32), _is(30_000)),
    "retry_backoff_ms": Setting(milliseconds(0), _is(50)),
    "retry_backoff_max_ms": Setting(milliseconds(0), _is(1_000)),
    "reconnect_backoff_ms": Setting(milliseconds(0), _is(50)),
    "reconnect_backoff_max_ms": Setting(milliseconds(0), _is(200)),
    "connections_max_idle_ms": Setting(milliseconds(1), _is(540_000)),
    "replication_factor": Setting(whole_number(1, most=INT16, unlimited=True), _is(-1)),
    "producer_compression_type": Setting(
        one_of(**{name: name for name in _COMPRESSIONS}), _is("none")
    ),
    "compression_gzip_level": Setting(whole_number(1, most=9), _is(None)),
    "compression_lz4_level": Setting(whole_number(1, most=17), _is(None)),
    "compression_zstd_level": Setting(whole_number(-131_072, most=22), _is(None)),
    "default_api_timeout_ms": Setting(milliseconds(1, most=INT32), _is(60_000)),
    "socket_connection_setup_timeout_ms": Setting(milliseconds(1), _is(10_000)),
    "fetch_max_bytes": Setting(whole_number(1, most=INT32), _is(52_428_800)),
    "max_partition_fetch_bytes": Setting(whole_number(1, most=INT32), _is(1_048_576)),
    "batch_size": Setting(whole_number(1, most=INT32), _is(1_000_000)),
    "max_in_flight_requests_per_connection": Setting(whole_number(1, most=5), _is(4)),
    "topic_configs": Setting(topic_configs, _is(MappingProxyType({}))),
    "group_instance_id": Setting(optional(text), _is(None)),
    "state_dir": Setting(directory, lambda _: Path(tempfile.gettempdir()) / "ks-actors"),
    "state_cleanup_delay_ms": Setting(milliseconds(1), _is(600_000)),
    "state_cleanup_dir_max_age_ms": Setting(milliseconds(0, unlimited=True), _is(-1)),
    "state_layout": Setting(one_of(task="task", shared="shared"), _is("task")),
    "num_stream_threads": Setting(whole_number(1), _is(1)),
    "num_standby_replicas": Setting(whole_number(0), _is(0)),
    "queries": Setting(names, _is(())),
    "client_tags": Setting(client_tags, _is(MappingProxyType({}))),
    "processing_guarantee": Setting(
        one_of(**{each.value: each for each in ProcessingGuarantee}),
        _is(ProcessingGuarantee.AT_LEAST_ONCE),
    ),
    "commit_interval_ms": Setting(
        milliseconds(0), lambda values: 100 if _exactly_once(values) else 30_000
    ),
    "max_task_idle_ms": Setting(milliseconds(-1), _is(0)),
    "buffered_records_per_partition": Setting(whole_number(1), _is(5_000)),
    "input_buffer_max_bytes": Setting(whole_number(1, unlimited=True), _is(512 << 20)),
    "statestore_uncommitted_max_bytes": Setting(whole_number(1, unlimited=True), _is(64 << 20)),
    "statestore_memory_max_bytes": Setting(
        # RocksDB ends the process if its cache is larger than any machine's memory.
        whole_number(1 << 20, most=1 << 42),
        _is(512 << 20),
    ),
    "statestore_cache_max_bytes": Setting(whole_number(0), _is(0)),
    "default_key_serde": Setting(serde, _is(None)),
    "default_value_serde": Setting(serde, _is(None)),
    "default_timestamp_extractor": Setting(extractor, _is(FailOnInvalidTimestamp())),
    "deserialization_exception_handler": Setting(handler, _is(log_and_fail)),
    "processing_exception_handler": Setting(handler, _is(log_and_fail)),
    "production_exception_handler": Setting(handler, _is(log_and_fail)),
    "errors_dead_letter_queue_topic_name": Setting(topic_name, _is(None)),
    "topology_optimization": Setting(optimization, _is("none")),
    "ensure_explicit_internal_resource_naming": Setting(switch, _is(False)),
    "processor_wrapper_class": Setting(optional(wrapper), _is(None)),
    "kafka_streams_faults": Setting(switch, _is(False)),
    "default_dsl_store": Setting(store_type, _is("rocksdb")),
    "dsl_store_format": Setting(one_of(default="DEFAULT", headers="HEADERS"), _is("DEFAULT")),
    "enable_transactional_statestores": Setting(always, _is(True)),
    "default_interactive_query_isolation_level": Setting(
        one_of(**{each.value: each for each in IsolationLevel}),
        lambda values: (
            IsolationLevel.READ_COMMITTED
            if _exactly_once(values)
            else IsolationLevel.READ_UNCOMMITTED
        ),
    ),
    "application_server": Setting(optional(server), _is(None)),
    "query_token": Setting(optional(query_token), _is(None)),
    "query_ssl_certificate_location": Setting(optional(directory), _is(None)),
    "query_ssl_key_location": Setting(optional(directory), _is(None)),
    "query_ssl_ca_location": Setting(optional(directory), _is(None)),
    "query_insecure": Setting(switch, _is(False)),
    "auto_offset_reset": Setting(offset_reset, _is("earliest")),
    "task_timeout_ms": Setting(milliseconds(0), _is(300_000)),
    "delivery_timeout_ms": Setting(
        milliseconds(1, most=INT32), lambda values: max(_DELIVERY_MS, values["task_timeout_ms"])
    ),
    "close_timeout_ms": Setting(milliseconds(0), _is(30_000)),
    "stall_warning_ms": Setting(milliseconds(-1), _is(10_000)),
    "poll_ms": Setting(milliseconds(0, most=INT32), _is(1_000)),
    "max_decompressed_bytes": Setting(whole_number(1), _is(268_435_456)),
    "linger_ms": Setting(milliseconds(0), _is(20)),
    "metadata_max_age_ms": Setting(milliseconds(1), _is(300_000)),
    "max_poll_interval_ms": Setting(milliseconds(1, most=INT32), _is(300_000)),
    "session_timeout_ms": Setting(milliseconds(1, most=INT32), _is(45_000)),
    "transaction_timeout_ms": Setting(milliseconds(1, most=INT32), _is(10_000)),
    "repartition_purge_interval_ms": Setting(milliseconds(0), _is(30_000)),
    "snapshot_uri": Setting(optional(text), _is(None)),
    "snapshot_interval_ms": Setting(milliseconds(0), _is(600_000)),
    "snapshot_keep": Setting(whole_number(1), _is(2)),
    "snapshot_timeout_ms": Setting(milliseconds(1), _is(600_000)),
    "snapshot_max_age_ms": Setting(milliseconds(0), _is(86_400_000)),
    "windowstore_changelog_additional_retention_ms": Setting(milliseconds(0), _is(86_400_000)),
    "max_drain_ms": Setting(milliseconds(0), _is(60_000)),
    "worker_slice_ms": Setting(milliseconds(1), _is(5)),
    "metrics_recording_level": Setting(
        one_of(info="INFO", debug="DEBUG", trace="TRACE"), _is("INFO")
    ),
    "ignored_settings": Setting(names, _is(())),
}


def contradictions(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Return the contradictions among settings that are each valid."""
    wrong = (
        kafka_contradictions(values, given)
        + snapshot_contradictions(values)
        + query_contradictions(values, given)
    )
    if _exactly_once(values):
        timeout, interval = values["transaction_timeout_ms"], values["commit_interval_ms"]
        if interval > timeout:
            reason = (
                f"is more than transaction_timeout_ms, {timeout}: transactions would be aborted "
                "before they are committed"
            )
            wrong.append(f"commit_interval_ms: {interval} {reason}")
    return wrong


def snapshot_contradictions(values: Mapping[str, Any]) -> list[str]:
    """Return the contradiction between the place of snapshots and the state directory, if any.

    Local state may be deleted at any time (by a reset, or by hand), and snapshots with it. Old
    snapshots are deleted too, and state beside them could be mistaken for a snapshot.
    """
    uri, name = values["snapshot_uri"], values["application_id"]
    local = None if uri is None else local_directory(uri)
    if local is None:
        return []
    snapshots = _resolved(local / name)
    state = _resolved(values["state_dir"] / name)
    if not (snapshots.is_relative_to(state) or state.is_relative_to(snapshots)):
        return []
    problem = (
        f"snapshot_uri: the snapshots of {name} would be in {snapshots}, which overlaps {state}, "
        "where state_dir has its local state: deleting one would delete the other. Name another "
        "directory"
    )
    return [problem]


def local_directory(uri: str) -> Path | None:
    """Return the directory of a URI as fsspec understands it; None if it is not on this machine."""
    # In a chain such as `simplecache::file:///path`, the last link has the files.
    last = uri.rpartition("::")[2]
    path = _LOCAL.sub("", last, count=1) if _LOCAL.match(last) else last
    if "://" in path or "\0" in path:
        return None
    return Path(os.path.expanduser(path))  # noqa: PTH111 - unlike Path, leaves unknown users as they are


def _resolved(path: Path) -> Path:
    # Links count: two names of one directory overlap.
    return Path(os.path.realpath(path))
