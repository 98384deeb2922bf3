"""Forms of keys and values on the command line."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from math import isfinite
from typing import TYPE_CHECKING, Any, Final

from ks_actors import serdes
from ks_actors._errors import SerializationError

if TYPE_CHECKING:
    from collections.abc import Callable

FORMATS: Final = ("text", "json", "base64", "short", "integer", "long", "float", "double")
_NUMBERS: Final[dict[str, tuple[Any, Callable[[str], Any]]]] = {
    "short": (serdes.SHORT, int),
    "integer": (serdes.INTEGER, int),
    "long": (serdes.LONG, int),
    "float": (serdes.FLOAT, float),
    "double": (serdes.DOUBLE, float),
}


def _json(text: str | bytes) -> Any:
    """Parse JSON without NaN and infinities, which Python accepts and other parsers refuse."""
    return json.loads(text, parse_constant=_no_number, parse_float=_finite)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _no_number(text)


def to_bytes(text: str, form: str) -> bytes:
    """Return the bytes of a text in one of the FORMATS. Raises ValueError."""
    if form == "text":
        return text.encode()
    if form == "json":
        return json.dumps(_json(text), separators=(",", ":"), ensure_ascii=False).encode()
    if form == "base64":
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError(f"{text!r} is not base64: {error}") from None
    serde, number = _NUMBERS[form]
    try:
        made: bytes = serde.serializer("")(number(text))
    except (SerializationError, struct.error) as error:
        raise ValueError(str(error)) from error
    return made


def from_bytes(data: bytes | None, form: str) -> Any:
    """Return bytes as a value of JSON; bytes that do not fit the form are base64, marked so."""
    if data is None:
        return None
    try:
        if form == "text":
            return data.decode()
        if form == "json":
            return _json(data)
        if form in _NUMBERS:
            number = _NUMBERS[form][0].deserializer("")(data)
            # JSON has no form for NaN and the infinities.
            return number if isfinite(number) else str(number)
    except (ValueError, RecursionError, SerializationError):
        return f"base64:{base64.b64encode(data).decode()}"
    return base64.b64encode(data).decode()
