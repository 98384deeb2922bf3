"""Settings of a Kafka log: connection and login."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from ks_actors.config._jaas import IamLogin
from ks_actors.config._keys import KEYS, key_contradictions
from ks_actors.log import check_token_endpoint

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


SCHEME = "kafka://"
MSK = "AWS_MSK_IAM"
# Consoles of managed Kafka show addresses with the protocol, which clients of Kafka ignore.
# Other libraries have the scheme of a URL there.
_SERVER = re.compile(
    r"(?:(?:(?:SASL_)?(?:PLAINTEXT|SSL)|kafka)://)?(([\w.-]+|\[[0-9a-fA-F:.]+\])(?::([0-9]{1,5}))?)"
)
_LAST_PORT = 65_535
# RFC 7628, 3.1.
_EXTENSION = re.compile(r"[A-Za-z]+")
_KERBEROS = ("sasl_kerberos_service_name", "sasl_kerberos_domain_name")
CONNECTION = (
    "security_protocol",
    "sasl_mechanism",
    "sasl_username",
    "sasl_password",
    "sasl_jaas_config",
    "sasl_login_callback_handler",
    "sasl_oauthbearer_token_endpoint_url",
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    *_KERBEROS,
    *KEYS,
    "ssl_endpoint_identification_algorithm",
    "request_timeout_ms",
    "retry_backoff_ms",
    "retry_backoff_max_ms",
    "reconnect_backoff_ms",
    "reconnect_backoff_max_ms",
    "connections_max_idle_ms",
    "replication_factor",
    "producer_compression_type",
    "compression_gzip_level",
    "compression_lz4_level",
    "compression_zstd_level",
    "default_api_timeout_ms",
    "socket_connection_setup_timeout_ms",
    "delivery_timeout_ms",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "batch_size",
    "max_in_flight_requests_per_connection",
    "max_decompressed_bytes",
)
"""Settings that only a Kafka log uses."""

LEVELS = ("gzip", "lz4", "zstd")
"""Compressions with a level."""

_SASL = tuple(name for name in CONNECTION if name.startswith("sasl_"))
_USERS = ("sasl_username", "sasl_password", "sasl_jaas_config")
_TOKENS = tuple(name for name in _SASL if name not in {"sasl_mechanism", *_USERS, *_KERBEROS})
_CLIENTS = (
    "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_credentials_client_secret",
)
# The settings that do not belong to a mechanism; the last row is for PLAIN and SCRAM.
_OTHERS = {
    "OAUTHBEARER": (*_USERS, *_KERBEROS),
    MSK: (*_TOKENS, *_KERBEROS, "sasl_username", "sasl_password"),
    "GSSAPI": (*_TOKENS, *_USERS),
    None: (*_TOKENS, *_KERBEROS),
}
_SSL = tuple(name for name in CONNECTION if name.startswith("ssl_"))


def servers(value: Any) -> str:
    """Parse `host:port,host:port`, or a list of such; the default port is 9092.

    As in Kafka, a protocol before a host is ignored, and an empty entry is skipped.
    """
    text = (
        ",".join(value)
        if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
        else value
    )
    if not isinstance(text, str) or not text.strip():
        raise ValueError("is not a list of servers: expected host:port,host:port")
    if "@" in text:
        # Name no entry: a password may have a comma of its own.
        raise ValueError(
            "is not a list of servers: it has a login, which belongs into sasl_username and "
            "sasl_password"
        )
    found = []
    for each in filter(None, map(str.strip, text.split(","))):
        match = _SERVER.fullmatch(each)
        if match is None or not 0 < int(match[3] or 1) <= _LAST_PORT:
            raise ValueError(f"is not a list of servers: {each!r} is not host:port")
        found.append(match[1])
    if not found:
        raise ValueError("is not a list of servers: expected host:port,host:port")
    return ",".join(found)


def host_check(value: Any) -> str:
    """Accept `https`, or an empty text for certificates of any host."""
    if not isinstance(value, str) or value.lower() not in {"https", ""}:
        raise ValueError("is neither https nor empty")
    return value.lower()


def kafka_contradictions(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Return the contradictions among Kafka's settings."""
    if not values["log"].startswith(SCHEME):
        where = values["log"]
        wrong = (
            [f"bootstrap_servers and log, {where}, are both set: set one of them"]
            if "bootstrap_servers" in given
            else []
        )
        return wrong + [
            f"{name}: is a setting of Kafka, but log is {where}: set bootstrap_servers, or remove "
            "it"
            for name in CONNECTION
            if name in given
        ]
    wrong = []
    if "bootstrap_servers" in given and "log" in given:
        wrong.append("bootstrap_servers and log are both set: set one of them")
    protocol = values["security_protocol"]
    if not protocol.startswith("SASL"):
        wrong += [
            f"{name}: is a setting of SASL, but security_protocol is {protocol}: set it to SASL_SSL"
            for name in _SASL
            if name in given
        ]
    else:
        wrong += _login(values, given)
    if not protocol.endswith("SSL"):
        other = "SASL_SSL" if protocol.startswith("SASL") else "SSL"
        wrong += [
            f"{name}: is a setting of TLS, but security_protocol is {protocol}: set it to {other}"
            for name in _SSL
            if name in given
        ]
    compression = values["producer_compression_type"]
    wrong += [
        f"compression_{each}_level: needs compression_type={each}, and that is {compression}"
        for each in LEVELS
        if f"compression_{each}_level" in given and each != compression
    ]
    wrong += key_contradictions(values, given)
    return wrong


def _login(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    mechanism = values["sasl_mechanism"]
    if mechanism is None:
        known = "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, AWS_MSK_IAM or GSSAPI"
        return [f"sasl_mechanism: is required for SASL: {known}"]
    others = _OTHERS.get(mechanism, _OTHERS[None])
    if wrong := [
        f"{name}: does not belong to sasl_mechanism {mechanism}" for name in others if name in given
    ]:
        return wrong
    if mechanism == "OAUTHBEARER":
        return _tokens(values, given)
    if mechanism == "GSSAPI":
        return []
    return _identity(values, given)


def _identity(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Return the contradictions of a login with a user's name, or with an identity of Amazon's."""
    mechanism, line = values["sasl_mechanism"], values["sasl_jaas_config"]
    if line is not None and isinstance(line, IamLogin) != (mechanism == MSK):
        return [f"sasl_jaas_config: is a login by another mechanism than {mechanism}"]
    if mechanism == MSK:
        protocol = values["security_protocol"]
        return [] if protocol == "SASL_SSL" else [f"security_protocol: {MSK} needs SASL_SSL"]
    pair = {"sasl_username", "sasl_password"} & set(given)
    if "sasl_jaas_config" in given:
        return [
            f"{name}: is set, and so is sasl_jaas_config: set one of them" for name in sorted(pair)
        ]
    return [
        f"{name}: is required for SASL, or sasl_jaas_config"
        for name in ("sasl_username", "sasl_password")
        if name not in pair
    ]


def _tokens(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    url, callback = "sasl_oauthbearer_token_endpoint_url", "sasl_login_callback_handler"
    if (url in given) == (callback in given):
        return [f"{url}: set it or {callback}, because OAUTHBEARER needs one of them"]
    if url in given and not values[url].startswith("file:"):
        return [f"{name}: is required by {url}" for name in _CLIENTS if name not in given]
    return [
        f"{name}: needs {url}, https://…"
        for name in (*_CLIENTS, "sasl_oauthbearer_scope")
        if name in given
    ]


def token_endpoint(value: Any) -> str:
    """Accept `https://…`, `file:///…`, and `http://` of this machine."""
    if not isinstance(value, str):
        raise ValueError("is not a URL")  # noqa: TRY004 - one error type for bad values
    return check_token_endpoint(value)


def extensions(value: Any) -> tuple[tuple[str, str], ...]:
    """Parse `name=value,name=value`, or a mapping of such."""
    if isinstance(value, str):
        pairs = [each.partition("=") for each in value.split(",") if each.strip()]
        value = {name.strip(): text.strip() for name, _, text in pairs}
    if (
        not isinstance(value, dict)
        or not all(isinstance(each, str) and each for pair in value.items() for each in pair)
        or not all(_EXTENSION.fullmatch(name) and name != "auth" for name in value)
        or any("\1" in text for text in value.values())
    ):
        raise ValueError("is not name=value,name=value, with letters in the names")
    return tuple(sorted(value.items()))
