"""Names of Kafka Streams' settings: aliases, and those that this version does not support."""

from __future__ import annotations

ALIASES: dict[str, str] = {
    "num_workers": "num_stream_threads",
    "dsl_store": "default_dsl_store",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_certificate_location": "ssl_keystore_location",
    "default_deserialization_exception_handler": "deserialization_exception_handler",
    "default_production_exception_handler": "production_exception_handler",
    "cache_max_bytes_buffering": "statestore_cache_max_bytes",
}
"""Other names of settings."""

NOT_YET: dict[str, str] = {
    **dict.fromkeys(
        (
            "acceptable_recovery_lag",
            "allow_os_group_write_access",
            "application_server",
            "built_in_metrics_version",
            "config_providers",
            "default_client_supplier",
            "default_list_key_serde_inner",
            "default_list_key_serde_type",
            "default_list_value_serde_inner",
            "default_list_value_serde_type",
            "dsl_store_format",
            "dsl_store_suppliers_class",
            "enable_auto_commit",
            "enable_metrics_push",
            "ensure_explicit_internal_resource_naming",
            "group_protocol",
            "heartbeat_interval_ms",
            "isolation_level",
            "log_summary_interval_ms",
            "max_poll_records",
            "max_warmup_replicas",
            "metadata_recovery_rebootstrap_trigger_ms",
            "metadata_recovery_strategy",
            "metric_reporters",
            "metrics_num_samples",
            "metrics_sample_window_ms",
            "probing_rebalance_interval_ms",
            "processing_exception_handler_global_enabled",
            "processor_wrapper_class",
            "rack_aware_assignment_non_overlap_cost",
            "rack_aware_assignment_strategy",
            "rack_aware_assignment_tags",
            "rack_aware_assignment_traffic_cost",
            "receive_buffer_bytes",
            "retries",
            "rocksdb_config_setter",
            "send_buffer_bytes",
            "task_assignor_class",
            "upgrade_from",
            "window_size_ms",
            "windowed_inner_class_serde",
        ),
        "",
    ),
}
"""Real names that are not supported yet, each with an optional hint."""

NOT_YET_PREFIXES: tuple[str, ...] = (
    "consumer_",
    "main_consumer_",
    "restore_consumer_",
    "global_consumer_",
    "producer_",
    "admin_",
    "topic_",
    "client_tag_",
    "sasl_",
    "ssl_",
)
"""Beginnings of real names that are not supported yet."""

SECRET = ("password", "secret", "token", "jaas")


def canonical(name: str) -> str:
    """Return the name as a keyword: `commit.interval.ms` is `commit_interval_ms`. Aliases stay."""
    return name.replace(".", "_").replace("-", "_")


def is_secret(name: str) -> bool:
    """Return whether a setting's value must not be shown."""
    return any(word in name.lower() for word in SECRET)


def unsupported(name: str) -> str | None:
    """Return the message for an unsupported setting of Kafka Streams; None for other names.

    `name` is canonical.
    """
    if name in NOT_YET or name.startswith(NOT_YET_PREFIXES):
        return "; ".join(filter(None, ("not supported by this version", NOT_YET.get(name))))
    return None
