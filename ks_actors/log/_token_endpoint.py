"""URLs that tokens for a login come from."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def check_token_endpoint(url: str) -> str:
    """Return `https://host/path`, `http://` of this machine, or `file:///path`.

    Raises ValueError for any other URL, and for a URL that would reveal a secret.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ValueError("is not a URL") from None
    if parts.scheme == "file" and not parts.netloc and parts.path.startswith("/"):
        return url
    if parts.scheme not in {"http", "https"} or not host or parts.username is not None:
        raise ValueError("is neither https://host/path nor file:///path of a file with the token")
    if parts.scheme == "http" and not _is_loopback(host):
        raise ValueError("would send the client's secret in the clear: use https")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
