"""Answers as JSON, and errors as answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.responses import Response

from ks_actors._errors import (
    Fenced,
    KsActorsError,
    LogError,
    NotRunning,
    QueryFailed,
    RedriveRefused,
    TaskTimeout,
    UnknownStore,
    UnknownTopicOrPartition,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from starlette.requests import Request

_STATUS: Final[tuple[tuple[type[KsActorsError], int], ...]] = (
    (UnknownStore, 404),
    (UnknownTopicOrPartition, 404),
    (RedriveRefused, 409),
    (Fenced, 409),
    (QueryFailed, 503),
    (NotRunning, 503),
    (TaskTimeout, 504),
    (LogError, 502),
)


_MOST_DIGITS: Final = 19
_SHOWN: Final = 100


class Refusal(Exception):
    """A request that cannot be answered: the status, and the reason for the caller."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status: int = status


def plain(value: Any) -> Any:
    """Return a value in JSON's types; objects that JSON does not know become their repr."""
    try:
        return msgspec.to_builtins(value, str_keys=True, enc_hook=repr)
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def as_json(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return msgspec.json.encode(value, enc_hook=str)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value, enc_hook=str)))


def _encodable(value: Any) -> Any:
    """Return a value with escapes for lone surrogates, which UTF-8 cannot encode."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {_encodable(key): _encodable(each) for key, each in value.items()}
    return [_encodable(each) for each in value] if isinstance(value, list | tuple) else value


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response, which no cache keeps."""
    return Response(
        as_json(value),
        status,
        {"cache-control": "no-store", **(headers or {})},
        "application/json",
    )


def refused(text: str, status: int) -> Response:
    """Return an error as JSON."""
    return answer({"error": text}, status)


def told(
    handler: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that turns known errors into answers; unknown errors are raised."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except Refusal as refusal:
            return refused(str(refusal), refusal.status)
        except KsActorsError as error:
            status = next((code for kind, code in _STATUS if isinstance(error, kind)), 500)
            return refused(str(error), status)

    return handle


def number(request: Request, name: str, default: int, *, most: int) -> int:
    """Return a whole number of the query string, from 1 to `most`. Raises Refusal."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    found = whole(text)
    if found is None or not 1 <= found <= most:
        raise Refusal(400, f"{name} is {text[:_SHOWN]!r}: give a whole number from 1 to {most}")
    return found


def whole(text: str) -> int | None:
    """Return a text as a number of at most 19 digits; None when it is not one."""
    # Accept ASCII digits only: `int` also takes blanks, signs, underscores and digits of other
    # scripts, and raises a separate error for thousands of digits.
    return int(text) if len(text) <= _MOST_DIGITS and text.isascii() and text.isdigit() else None
