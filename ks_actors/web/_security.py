"""The token for writes, the headers of all answers, and the names of a loopback page."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Final

from starlette.datastructures import MutableHeaders

from ks_actors.web._answers import Refusal, told

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
"""The host names of a page on loopback; a foreign page may send others (DNS rebinding)."""
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class SecureHeaders:
    """ASGI middleware that sets the security headers of each answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


def checked(token: str) -> str:
    """Return a token as requests have it, without blanks around. Raises ValueError."""
    # A file or a variable often ends with a line end, which no header can have.
    found = token.strip()
    # An empty token, from a variable that is not set, would let everybody in.
    if not found:
        raise ValueError("token is empty: give one that cannot be guessed, or None")
    if not found.isascii() or not found.isprintable():
        raise ValueError("token has characters that no header can have: give ASCII alone")
    return found


def writes(
    token: str, handler: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler for callers with the bearer token alone; others get 401."""

    async def handle(request: Request) -> Response:
        check_token(request, token, "this changes something, so it needs the token of the page")
        return await handler(request)

    return told(handle)


def check_token(request: Request, token: str | None, reason: str) -> None:
    """Raise Refusal (401) with the reason for a request without the token; all, if it is None."""
    given = request.headers.get("authorization", "").encode()
    if token is None or not hmac.compare_digest(given, f"Bearer {token}".encode()):
        raise Refusal(401, reason)
