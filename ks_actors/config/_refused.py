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
_CLIENTS: Final = "a client here has no such setting"
_SERDES: Final = "topologies name their serdes: Consumed, Produced, or default_key_serde"
_BUFFERS: Final = (
    "records wait in the output of their tasks, which task_timeout_ms and "
    "statestore_uncommitted_max_bytes bound"
)
_REGISTRY: Final = "SchemaRegistry(…) of ks_actors.registry takes address, login and options"
_PARTITIONER: Final = "Produced(partitioner=…) and Repartitioned choose partitions"

REFUSED: Final[dict[str, str]] = {
    "acceptable_recovery_lag": _NO_WARMUPS,
    "acks": "writes always wait for all replicas in sync",
    "allow_auto_create_topics": "no topic is created by reading it",
    "allow_os_group_write_access": (
        "state directories get the rights that the umask of the process leaves"
    ),
    "auto_commit_interval_ms": "commit_interval_ms is the interval",
    "auto_include_jmx_reporter": _METRICS,
    "auto_register_schemas": _REGISTRY,
    "bootstrap_controllers": "brokers are asked, not controllers: bootstrap_servers names them",
    "buffer_memory": _BUFFERS,
    "built_in_metrics_version": "metrics have one version",
    "check_crcs": "checksums of batches are always checked",
    "client_dns_lookup": "all addresses of a name are tried",
    "client_rack": "records are fetched from leaders",
    "config_providers": "secrets can come from the environment: KS_ACTORS_SASL_PASSWORD",
    "default_client_supplier": "the log has the clients: App(log=…) takes another one",
    "default_list_key_serde_inner": _LISTS,
    "default_list_key_serde_type": _LISTS,
    "default_list_value_serde_inner": _LISTS,
    "default_list_value_serde_type": _LISTS,
    "dsl_store_suppliers_class": (
        "it names a Java class: default_dsl_store and Materialized(store_type=…) choose RocksDB, "
        "memory, or a function that makes a StoreEngine"
    ),
    "enable_auto_commit": "offsets are committed with state and output",
    "enable_idempotence": "writes are always idempotent",
    "enable_metrics_push": "metrics are not pushed to brokers (KIP-714)",
    "exclude_internal_topics": "patterns never match Kafka's own topics",
    "fetch_max_wait_ms": "poll_ms is the longest wait of a fetch",
    "fetch_min_bytes": (
        "a fetch is answered as soon as there is a record: linger_ms lets them gather"
    ),
    "group_id": (
        "application_id is the group's name; a member with group.protocol=consumer in it is an "
        "error"
    ),
    "group_protocol": "groups use the classic protocol, not that of KIP-1071",
    "group_remote_assignor": "the leader of the group assigns tasks, by App(assignor=…)",
    "heartbeat_interval_ms": "session_timeout_ms sets the interval",
    "interceptor_classes": "clients have no interceptors: processor_wrapper_class wraps processors",
    "internal_leave_group_on_close": "App.close(leave_group=…) says it",
    "isolation_level": (
        "processing_guarantee decides: exactly-once reads committed records, at-least-once all"
    ),
    "key_deserializer": _SERDES,
    "key_serializer": _SERDES,
    "key_subject_name_strategy": _REGISTRY,
    "log_summary_interval_ms": "no summary is logged: App.metrics() has the figures",
    "max_block_ms": _BUFFERS,
    "max_poll_records": (
        "fetches are processed in batches, which buffered_records_per_partition limits"
    ),
    "max_request_size": "a record may be as large as its topic permits, by max.message.bytes",
    "max_warmup_replicas": _NO_WARMUPS,
    "metadata_cluster_check_enable": (
        "the client does not tell brokers which cluster and node it means to reach"
    ),
    "metadata_max_idle_ms": "metadata of topics in use is kept",
    "metadata_recovery_rebootstrap_trigger_ms": _BOOTSTRAP,
    "metadata_recovery_strategy": _BOOTSTRAP,
    "metric_reporters": _METRICS,
    "metrics_num_samples": _METRICS,
    "metrics_sample_window_ms": _METRICS,
    "partition_assignment_strategy": "the leader of the group assigns tasks, by App(assignor=…)",
    "partitioner_adaptive_partitioning_enable": _PARTITIONER,
    "partitioner_availability_timeout_ms": _PARTITIONER,
    "partitioner_class": _PARTITIONER,
    "partitioner_ignore_keys": _PARTITIONER,
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
    "sasl_client_callback_handler_class": "each mechanism answers brokers by itself",
    "security_providers": "TLS is Python's own",
    "send_buffer_bytes": _SOCKETS,
    "socket_connection_setup_timeout_max_ms": (
        "each attempt to connect has the same timeout, socket_connection_setup_timeout_ms"
    ),
    "specific_avro_reader": _REGISTRY,
    "task_assignor_class": "an assignor is an object: App(assignor=…)",
    "topology_description_push_enabled": (
        "the topology is pushed to brokers by the group protocol of KIP-1071 only (KIP-1331)"
    ),
    "transaction_two_phase_commit_enable": "a transaction ends with the commit of its app",
    "transactional_id": "application_id and the id of the process make it",
    "upgrade_from": "later versions only add to the user data of members: all can read it",
    "use_latest_version": _REGISTRY,
    "value_deserializer": _SERDES,
    "value_serializer": _SERDES,
    "value_subject_name_strategy": _REGISTRY,
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
    "client_tag_": "all tags of an instance are one setting: client_tags={'zone': 'a'}",
    "sasl_": "a login has the settings that are listed with sasl_mechanism",
    "basic_auth_": _REGISTRY,
    "schema_registry_": _REGISTRY,
    "confluent_": "Java's clients have it of Confluent",
    "share_": "there are no share groups: a task reads its partitions alone",
    "ssl_": "TLS is Python's own: its settings here are those of keys and certificates",
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
