"""Names of settings: other names, forms, and those with secrets."""

from __future__ import annotations

import re
from typing import Any

from ks_actors.snapshots import without_login

ALIASES: dict[str, str] = {
    "num_workers": "num_stream_threads",
    "compression_type": "producer_compression_type",
    "dsl_store": "default_dsl_store",
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_certificate_location": "ssl_keystore_location",
    "sasl_login_callback_handler_class": "sasl_login_callback_handler",
    "default_deserialization_exception_handler": "deserialization_exception_handler",
    "default_production_exception_handler": "production_exception_handler",
    "cache_max_bytes_buffering": "statestore_cache_max_bytes",
    "default_state_isolation_level": "default_interactive_query_isolation_level",
}
"""Other names of settings."""

# The beginning of a list of servers, in the form of its repr, up to its last login.
_SERVERS = re.compile(r"([\[(]?['\"](?:kafka://)?)(?!\w+:///).*@", re.DOTALL)
# Users paste a key among its certificates.
SECRET = (
    "password",
    "secret",
    "token",
    "jaas",
    "user_info",
    "keystore_key",
    "keystore_certificate_chain",
    "truststore_certificates",
)


def canonical(name: str) -> str:
    """Return the name as a keyword: `commit.interval.ms` is `commit_interval_ms`. Aliases stay."""
    return name.replace(".", "_").replace("-", "_")


def is_secret(name: str) -> bool:
    """Return whether a setting's value must not be shown."""
    name = name.lower()
    return any(word in name for word in SECRET) and not name.endswith("endpoint_url")


def shown(name: str, value: Any) -> str:
    """Return the repr of a setting's value, without secrets."""
    if is_secret(name):
        return "***"
    text = repr(value)
    match = _SERVERS.match(text) if name.endswith(("bootstrap_servers", "log")) else None
    if match is not None:
        return f"{match[1]}***@{text[match.end() :]}"
    return without_login(text)
