"""The settings of queries across instances."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_SERVER: Final = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_LAST_PORT: Final = 65_535
_PARTS: Final = ("query_ssl_certificate_location", "query_ssl_key_location")


def split_server(value: str) -> tuple[str, int] | None:
    """Return the host, without brackets, and the port of `host:port`; None for anything else."""
    match = _SERVER.fullmatch(value)
    if match is None or int(match[3]) > _LAST_PORT:
        return None
    return match[1] or match[2], int(match[3])


def server(value: Any) -> str:
    """Accept `host:port`, with brackets around an IPv6 address; port 0 is any free port.

    Others call this address, so it cannot be that of all interfaces.
    """
    found = split_server(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not host:port, such as 10.0.0.5:7070 or [::1]:7070")
    if _is_unspecified(found[0]):
        raise ValueError(
            "means all interfaces, and others cannot call it: give the address at which other "
            "machines reach this one, such as 10.0.0.5:7070"
        )
    return str(value).strip()


def query_token(value: Any) -> str:
    """Accept a secret that an HTTP header can have; blanks around it, as of a file, do not count.

    The error does not show it.
    """
    found = value.strip() if isinstance(value, str) else ""
    if not found or not found.isascii() or not found.isprintable():
        raise ValueError("is not a token: give text of ASCII characters that cannot be guessed")
    return found


def is_loopback(host: str) -> bool:
    """Return whether only processes on this machine can reach a host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _is_unspecified(host: str) -> bool:
    try:
        found = ip_address(host)
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def query_contradictions(values: Mapping[str, Any], given: Collection[str]) -> list[str]:
    """Return the contradictions of the settings of queries: no open port without a secret."""
    at = values["application_server"]
    if at is None:
        return [
            f"{name}: has no effect without application_server" for name in _PARTS if name in given
        ]
    wrong = []
    certificate, key = values["query_ssl_certificate_location"], values["query_ssl_key_location"]
    if key is not None and certificate is None:
        wrong.append(
            "query_ssl_key_location: its certificate is missing: set query_ssl_certificate_location"
        )
    if values["query_insecure"] or is_loopback((split_server(at) or ("", 0))[0]):
        return wrong
    missing = [
        name
        for name, found in (
            ("query_token", values["query_token"]),
            ("query_ssl_certificate_location", certificate),
        )
        if found is None
    ]
    if missing:
        wrong.append(
            f"application_server: {at} can be reached from other machines, and "
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: stores would "
            "be open to others; query_insecure=True allows it, in a network that you trust"
        )
    return wrong
