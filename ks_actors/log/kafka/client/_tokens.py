"""Tokens for a login by OAUTHBEARER (KIP-255, KIP-768): their sources and lifetimes."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from base64 import b64encode, urlsafe_b64decode
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import NotAuthorized
from ks_actors.lifecycle import component_log, in_thread
from ks_actors.log.kafka.login import Token

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from ks_actors.log.kafka.client._options import KafkaOptions
    from ks_actors.log.kafka.login import TokenProvider

_log = component_log(__name__)
# The part of a token's life after which the next token is fetched, as in Kafka's clients.
_REFRESH: Final = 0.8
# The time (s) for which to use a token whose end is unknown.
_UNKNOWN_LIFE_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_PATIENCE_S: Final = 15.0
_AGAIN_S: Final = 5.0
_FAULT_OF_CLIENT: Final = range(400, 500)
_TOO_MANY: Final = 429
_SHOWN: Final = 200


class TokenRefused(NotAuthorized):
    """The service that issues tokens refuses the client."""


class NoToken(OSError):
    """No token could be fetched for now."""


@final
class Tokens:
    """The current token of a login, shared by the connections of a client, on all their loops."""

    def __init__(self, options: KafkaOptions) -> None:
        self._extensions = options.sasl_oauthbearer_extensions
        self.source: str
        self._provider, self.source = _provider_of(options)
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._refresh_at = self._ends_at = 0.0

    @property
    def name(self) -> str:
        """The name of the token in messages."""
        return f"the token from {self.source}"

    async def current(self) -> Token:
        """Return a token that does not end soon.

        Raises TokenRefused; NoToken if the source fails and the last token has ended.
        """
        token = self._token
        if token is not None and time.time() < self._refresh_at:
            return token
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await in_thread(self._refresh, name="ks-actors token")
        except TimeoutError:
            return self._last(NoToken(f"it did not answer within {_PATIENCE_S:g} s"))

    def _last(self, error: Exception) -> Token:
        """After a failure return the last token; if that token has ended, raise the failure."""
        now = time.time()
        if self._token is None or now >= self._ends_at:
            if isinstance(error, NotAuthorized):
                raise error
            raise NoToken(f"{self.source} gave no token: {error}") from error
        left_s = self._ends_at - now
        # Do not ask again at each connection: a silent source would delay all connections.
        self._refresh_at = now + min(_AGAIN_S, left_s)
        _log.warning(
            "%s gave no new token, and the last one is used for another %.0f s: %s",
            self.source,
            left_s,
            error,
        )
        return self._token

    def _refresh(self) -> Token:
        # Another thread may be asking the source, for a connection on another loop.
        if not self._lock.acquire(timeout=_PATIENCE_S):
            return self._last(NoToken(f"it did not answer within {_PATIENCE_S:g} s"))
        try:
            now = time.time()
            if self._token is not None and now < self._refresh_at:
                return self._token
            try:
                token = self._fetch()
            except Exception as error:  # noqa: BLE001 - whatever a user's function raises
                return self._last(error)
            life = max(0.0, (token.expires_at or now + _UNKNOWN_LIFE_S) - now)
            self._refresh_at, self._ends_at = now + _REFRESH * life, now + life
            self._token = token
            return token
        finally:
            self._lock.release()

    def _fetch(self) -> Token:
        found: Any = self._provider()
        if inspect.isawaitable(found):
            found = asyncio.run(_awaited(found))
        if isinstance(found, str):
            found = Token(found)
        if not isinstance(found, Token) or not found.value:
            raise TypeError(f"it returned {type(found).__name__} in place of a token")
        return Token(
            found.value,
            found.expires_at or _end_of(found.value),
            {**self._extensions, **found.extensions},
        )


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def _provider_of(options: KafkaOptions) -> tuple[TokenProvider, str]:
    """Return the provider of the options, and its name in messages."""
    provider, url = options.sasl_token_provider, options.sasl_oauthbearer_token_endpoint_url
    if provider is not None:
        return provider, f"the token provider {getattr(provider, '__qualname__', provider)}"
    assert url is not None
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(urllib.parse.urlsplit(url).path))
        return lambda: path.read_text(encoding="utf-8").strip(), f"the file {path}"
    identity = f"{options.sasl_oauthbearer_client_id}:{options.sasl_oauthbearer_client_secret}"
    scope = options.sasl_oauthbearer_scope
    return partial(_client_credentials, url, identity, scope), f"the token endpoint {url}"


def _client_credentials(url: str, identity: str, scope: str | None) -> Token:
    """Return a token of an OpenID provider by the grant `client_credentials` (RFC 6749, 4.4)."""
    form = {"grant_type": "client_credentials", **({} if scope is None else {"scope": scope})}
    request = urllib.request.Request(  # noqa: S310 - https, or this machine
        url,
        data=urllib.parse.urlencode(form).encode(),
        headers={
            "Accept": "application/json",
            "Authorization": f"Basic {b64encode(identity.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - likewise
            found = json.loads(answer.read())
        token, life = found["access_token"], found.get("expires_in")
    except urllib.error.HTTPError as error:
        with error:
            told = error.read(_SHOWN).decode("utf-8", "replace")
        if error.code in _FAULT_OF_CLIENT and error.code != _TOO_MANY:
            raise TokenRefused(
                f"the token endpoint {url} refuses the client: {error.code} {error.reason} {told}; "
                "check sasl_oauthbearer_client_credentials_client_id, its secret and the scope"
            ) from error
        raise OSError(f"{error.code} {error.reason} {told}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError("its answer is no JSON object with an access_token") from error
    return Token(token, None if life is None else time.time() + float(life))


def _end_of(token: str) -> float | None:
    """Return the end of a JWT, None for another token. The broker checks the signature."""
    parts = token.split(".")
    if len(parts) != 3:  # noqa: PLR2004 - header, claims, signature
        return None
    try:
        claims = json.loads(urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return float(claims["exp"])
    except (ValueError, KeyError, TypeError):
        return None
