"""Requests to a registry over HTTP, in threads."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from functools import partial
from ipaddress import ip_address
from itertools import count
from random import random
from typing import TYPE_CHECKING, Any, Final, NoReturn, final
from urllib.parse import urlencode, urlsplit

import msgspec

from ks_actors._errors import ConfigError, RegistryError, RegistryUnavailable
from ks_actors.lifecycle import component_log, in_thread
from ks_actors.registry._answers import checked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

_log = component_log(__name__)
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"
_RETRIED: Final = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 2.0
_LARGEST_ANSWER: Final = 64 << 20
_SHOWN: Final = 200


class _NoAnswer(Exception):
    """The registry cannot be reached for now."""


@final
class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuse redirects: they would take the login to another host."""

    def redirect_request(
        self,
        req: Any,
        fp: Any,
        code: int,
        msg: str,  # noqa: ARG002 - urllib gives it
        headers: Any,  # noqa: ARG002 - likewise
        newurl: str,
    ) -> NoReturn:
        fp.close()
        raise RegistryError(
            f"{req.full_url} redirects to {newurl}: give that address as the registry's url",
            status=code,
        )


@final
class HttpTransport:
    """The way to a registry over HTTP; `token` returns the current token of a login.

    A request is tried again, at the next address, while the registry cannot be reached or is not
    ready, for `deadline_s` in all.
    """

    at_once: bool = False

    def __init__(
        self,
        urls: Sequence[str],
        *,
        basic_auth: tuple[str, str] | None,
        token: Callable[[], Awaitable[str]] | None,
        headers: Mapping[str, str],
        ssl_context: ssl.SSLContext | None,
        request_timeout_s: float,
        deadline_s: float,
    ) -> None:
        self._urls = tuple(checked_url(url, login=bool(basic_auth or token)) for url in urls)
        self.address: str = ", ".join(self._urls)
        self._headers = {"Accept": f"{_CONTENT}, application/json", **headers}
        if basic_auth is not None:
            login = b64encode(":".join(basic_auth).encode()).decode()
            self._headers["Authorization"] = f"Basic {login}"
        self._token = token
        self._timeout_s = request_timeout_s
        self._deadline_s = deadline_s
        self._next = 0
        self._opener = urllib.request.build_opener(
            _NoRedirects, urllib.request.HTTPSHandler(context=ssl_context)
        )

    async def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None,
    ) -> Any:
        """Return the answer, decoded from JSON. Raises RegistryError."""
        target = path + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else msgspec.json.encode(body)
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self._deadline_s, _FIRST_PAUSE_S
        for attempt in count(1):
            base = self._urls[self._next % len(self._urls)]
            headers = dict(self._headers)
            if self._token is not None:
                headers["Authorization"] = f"Bearer {await self._token()}"
            send = partial(self._send, method, f"{base}/{target}", headers, data)
            try:
                status, answer = await in_thread(send, name="ks-actors registry")
                if status not in _RETRIED:
                    return checked(base, f"{method} {target}", status, answer)
                reason = f"{status} {str(answer)[:_SHOWN]}"
            except _NoAnswer as error:
                reason = str(error)
            self._next += 1
            left = end - loop.time()
            if left <= 0:
                raise RegistryUnavailable(
                    f"{base} gave no answer to {method} {target} within {self._deadline_s:g} s: "
                    f"{reason}; check the url, and that the registry runs"
                )
            if attempt == len(self._urls):
                _log.warning(
                    "%s does not answer, and is asked again for %.0f s: %s", base, left, reason
                )
            if attempt % len(self._urls) == 0:
                await asyncio.sleep(min(left, pause * (0.5 + random() / 2)))  # noqa: S311 - no secret
                pause = min(2 * pause, _LONGEST_PAUSE_S)
        raise AssertionError

    def _send(
        self, method: str, url: str, headers: dict[str, str], data: bytes | None
    ) -> tuple[int, Any]:
        """Send a request; return status and answer. Blocks. Raises RegistryError, _NoAnswer."""
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310 - checked
        if data is not None:
            request.add_header("Content-Type", _CONTENT)
        try:
            with self._opener.open(request, timeout=self._timeout_s) as answer:
                return answer.status, _decoded(url, answer.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                told = error.read(_LARGEST_ANSWER)
            try:
                return error.code, msgspec.json.decode(told)
            except msgspec.DecodeError:
                return error.code, {"message": told[:_SHOWN].decode("utf-8", "replace")}
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLError):
                raise _tls(url, error.reason) from error
            raise _NoAnswer(str(error.reason)) from error
        except ssl.SSLError as error:
            raise _tls(url, error) from error
        except (OSError, http.client.HTTPException) as error:
            raise _NoAnswer(f"{type(error).__name__}: {error}") from error


def _decoded(url: str, data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError as error:
        raise RegistryError(
            f"{url} answers {data[:_SHOWN]!r}, which is no JSON: is this a schema registry?"
        ) from error


def _tls(url: str, error: ssl.SSLError) -> RegistryError:
    remedy = (
        "give its CA: ssl_context=ssl.create_default_context(cafile=...)"
        if isinstance(error, ssl.SSLCertVerificationError)
        else "check that it speaks https, and the certificate of the client"
    )
    return RegistryError(f"TLS with {url} failed: {error}; {remedy}")


def checked_url(url: str, *, login: bool) -> str:
    """Return the address of a registry without a slash at its end.

    Raises ConfigError for another URL, and for a URL by which a login would leak.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        parts, host = urlsplit(""), ""
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the url of a registry has a login in it: give it as basic_auth")
    if parts.scheme not in {"http", "https"} or not host or parts.query or parts.fragment:
        raise ConfigError(
            f"the url of a registry is {url!r}: give https://host:port, or mock://name in tests"
        )
    if login and parts.scheme == "http" and not _is_loopback(host):
        raise ConfigError(
            f"the registry {url} would get the login in the clear: give its https address"
        )
    return url.rstrip("/")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
