"""Keys, values and errors as text, and back, by the serdes of a topic."""

from __future__ import annotations

import json
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any, final

import msgspec

from ks_actors.cli._output import printable, readable
from ks_actors.records import Windowed
from ks_actors.serdes import writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ks_actors.serdes import MutableHeaders, Serde


def to_bytes(
    text: str,
    serde: Serde[Any] | None,
    topic: str,
    headers: MutableHeaders,
    *,
    is_key: bool = False,
) -> bytes:
    """Return a text as the bytes of a key or value; the serde may change the headers.

    `text` may be a string, a number as JSON writes it, or the JSON of any type that msgspec knows.
    Without a serde, encode it as UTF-8. Raises ValueError.
    """
    if serde is None:
        return text.encode()
    serialize = writer(serde, topic, is_key=is_key)
    deserialize = serde.deserializer(topic, is_key=is_key)
    parsed: Any = None
    with suppress(ValueError):
        parsed = json.loads(text)
    errors: list[str] = []
    for read in _readings(text, parsed, deserialize):
        written = list(headers)
        try:
            found: bytes = serialize(read(), written)
        except Exception as error:  # noqa: BLE001 - a serde may raise any error about other objects
            errors.append(str(error))
        else:
            headers[:] = written
            return found
    raise ValueError(f"{serde!r} does not write {text!r}: {errors[0]}")


def _readings(
    text: str, parsed: Any, deserialize: Callable[[bytes], Any]
) -> Iterator[Callable[[], Any]]:
    """Yield the objects that a text may mean, the likeliest first."""

    def of_its_bytes() -> Any:
        value = deserialize(text.encode())
        # Serdes of numbers read any text of the right length.
        if value is None or isinstance(value, int | float):
            raise ValueError(f"{text!r} is not the text of this type")
        return value

    yield of_its_bytes
    if parsed is not None:
        yield lambda: parsed
        # A type in MessagePack is read from its own bytes alone.
        yield lambda: deserialize(msgspec.msgpack.encode(parsed))
    yield lambda: text


def to_text(
    data: bytes | None,
    deserialize: Callable[[bytes, MutableHeaders], Any] | None,
    headers: MutableHeaders,
) -> str:
    """Return bytes of a record in one line: text as it is, other types as JSON, `-` for None.

    Bytes that cannot be decoded are shown as text, or as Python writes them.
    """
    if data is None:
        return "-"
    value: Any = data
    if deserialize is not None:
        # A serde may raise any error about foreign bytes.
        with suppress(Exception):
            value = deserialize(data, headers)
    return printable(_shown(value), keep="")


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return str(readable(value))
    if isinstance(value, str):
        return value
    if isinstance(value, Windowed):
        return f"[{_shown(value.key)}@{value.window.start}/{value.window.end}]"
    try:
        return msgspec.json.encode(value, enc_hook=str).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


@final
class Tracebacks:
    """Short tracebacks of the causes of errors: frames of the user's code only, each cause once."""

    def __init__(self) -> None:
        self._last: BaseException | None = None

    def of(self, error: BaseException) -> str:
        """Return the traceback; an empty text if the previous call had the same cause."""
        chain: list[BaseException] = []
        each: BaseException | None = error
        while each is not None and each not in chain:
            chain.append(each)
            each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
        found = ((one, frames) for one in reversed(chain) if (frames := _frames(one)))
        cause, frames = next(found, (error, []))
        if cause is self._last:
            return ""
        self._last = cause
        lines = traceback.format_list(frames)
        head = ["Traceback (most recent call last):\n"] if lines else []
        return "".join([*head, *lines, *traceback.format_exception_only(cause)]).rstrip()


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    walked = traceback.walk_tb(error.__traceback__)
    summaries = traceback.extract_tb(error.__traceback__)
    return [
        summary
        for (frame, _), summary in zip(walked, summaries, strict=True)
        if _is_users(str(frame.f_globals.get("__name__", "")))
    ]


def _is_users(module: str) -> bool:
    top = module.partition(".")[0]
    return top not in {"ks_actors", "actors"} and top not in sys.stdlib_module_names
