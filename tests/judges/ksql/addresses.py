"""ksql's functions of URLs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, unquote_plus, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


def parameter(url: str, name: str) -> str | None:
    for pair in urlsplit(url).query.split("&"):
        key, equal, value = pair.partition("=")
        if unquote_plus(key) == name:
            return unquote_plus(value) if equal else ""
    return None


def fragment(url: str) -> str | None:
    return unquote_plus(urlsplit(url).fragment) or None if "#" in url else None


def query(url: str) -> str | None:
    return urlsplit(url).query if re.search(r"\?", url.partition("#")[0]) else None


def host(url: str) -> str | None:
    return urlsplit(url).netloc.rpartition("@")[2].partition(":")[0] or None


ADDRESSES: Final[dict[str, Callable[..., Any]]] = {
    "DECODE_PARAM": unquote_plus,
    "ENCODE_PARAM": lambda text: quote_plus(text, safe="*"),
    "EXTRACT_FRAGMENT": fragment,
    "EXTRACT_HOST": host,
    "EXTRACT_PARAMETER": parameter,
    "EXTRACT_PATH": lambda url: urlsplit(url).path,
    "EXTRACT_PORT": lambda url: urlsplit(url).port,
    "EXTRACT_PROTOCOL": lambda url: urlsplit(url).scheme or None,
    "EXTRACT_QUERY": query,
}
