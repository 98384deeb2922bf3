"""Real names of Kafka's settings that are refused, each with the reason."""

from __future__ import annotations

from typing import Final

_NO_WARMUPS: Final = "a task moves at once: there are no warm-up replicas and probing rebalances"
_LISTS: Final = "the serde of a list names its inner serde: ks_actors.serdes.list_of"
_WINDOWS: Final = "the serde of windowed keys names both: ks_actors.serdes.windowed"
_METRICS: Final = "App.metrics() returns current values, and pushes them nowhere"
_RACKS: Final = "tasks are assigned without regard to racks"
_SOCKETS: Final = "the operating system sizes the buffers of sockets"
_BOOTSTRAP: Final = "the client always tries the bootstrap servers when no known broker answers"
_CLIENTS: Final = "one client reads and writes for all tasks: KafkaOptions has its options"

REFUSED: Final[dict[str, str]] = {
    "acceptable_recovery_lag": _NO_WARMUPS,
    "allow_os_group_write_access": (
        "state directories get the rights that the umask of the process leaves"
    ),
    "application_server": "an instance answers queries for its own partitions only",
    "built_in_metrics_version": "metrics have one version",
    "config_providers": "secrets can come from the environment: KS_ACTORS_SASL_PASSWORD",
    "default_client_supplier": "the log has the clients: App(log=…) takes another one",
    "default_list_key_serde_inner": _LISTS,
    "default_list_key_serde_type": _LISTS,
    "default_list_value_serde_inner": _LISTS,
    "default_list_value_serde_type": _LISTS,
    "dsl_store_format": "stores of the DSL do not keep headers (KIP-1285)",
    "dsl_store_suppliers_class": (
        "stores of the DSL are in RocksDB or in memory: default_dsl_store and "
        "Materialized(store_type=…) choose"
    ),
    "enable_auto_commit": "offsets are committed with state and output",
    "enable_metrics_push": "metrics are not pushed to brokers (KIP-714)",
    "group_protocol": "groups use the classic protocol, not that of KIP-1071",
    "heartbeat_interval_ms": "session_timeout_ms sets the interval",
    "isolation_level": (
        "processing_guarantee decides: exactly once reads what is committed, at least once all"
    ),
    "log_summary_interval_ms": "no summary is logged: App.metrics() has the figures",
    "max_poll_records": (
        "fetches are processed in batches, which buffered_records_per_partition limits"
    ),
    "max_warmup_replicas": _NO_WARMUPS,
    "metadata_cluster_check_enable": (
        "the client does not tell brokers which cluster and node it means to reach"
    ),
    "metadata_recovery_rebootstrap_trigger_ms": _BOOTSTRAP,
    "metadata_recovery_strategy": _BOOTSTRAP,
    "metric_reporters": _METRICS,
    "metrics_num_samples": _METRICS,
    "metrics_sample_window_ms": _METRICS,
    "probing_rebalance_interval_ms": _NO_WARMUPS,
    "processing_exception_handler_global_enabled": (
        "processing_exception_handler always decides about records of global stores too"
    ),
    "rack_aware_assignment_non_overlap_cost": _RACKS,
    "rack_aware_assignment_strategy": _RACKS,
    "rack_aware_assignment_tags": _RACKS,
    "rack_aware_assignment_traffic_cost": _RACKS,
    "receive_buffer_bytes": _SOCKETS,
    "retries": "calls are repeated until task_timeout_ms is over",
    "rocksdb_config_setter": (
        "statestore_memory_max_bytes sizes RocksDB, and its other options are fixed"
    ),
    "send_buffer_bytes": _SOCKETS,
    "task_assignor_class": "tasks are assigned by one algorithm, sticky and balanced",
    "topology_description_push_enabled": (
        "the topology is pushed to brokers by the group protocol of KIP-1071 only (KIP-1331)"
    ),
    "upgrade_from": "later versions only add to the user data of members: all can read it",
    "window_size_ms": _WINDOWS,
    "windowed_inner_class_serde": _WINDOWS,
}
"""Names that are refused, in the form of keywords, with the rest of "not supported, because …"."""

REFUSED_PREFIXES: Final[dict[str, str]] = {
    "main_consumer_": _CLIENTS,
    "restore_consumer_": _CLIENTS,
    "global_consumer_": _CLIENTS,
    "consumer_": _CLIENTS,
    "producer_": _CLIENTS,
    "admin_": _CLIENTS,
    "topic_": "Materialized(changelog_configs=…) sets the configs of a changelog",
    "client_tag_": _RACKS,
    "sasl_": "only PLAIN and SCRAM are known, with user and password",
    "ssl_": "TLS is Python's own: its settings here are those of PEM files",
}
"""Beginnings of names that are refused, with the reason."""


def refusal(name: str) -> str | None:
    """Return the message for a refused setting of Kafka; None for other names.

    `name` is in the form of a keyword.
    """
    reason = REFUSED.get(name) or next(
        (why for prefix, why in REFUSED_PREFIXES.items() if name.startswith(prefix)), None
    )
    return None if reason is None else f"not supported, because {reason}"
