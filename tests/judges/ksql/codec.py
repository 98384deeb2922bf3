"""The form of keys and rows on the wire: JSON with marks for types that JSON lacks, equal for equal values."""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ks_actors.serdes import Serde
from tests.judges.ksql import times

if TYPE_CHECKING:
    from collections.abc import Callable


_HALF: Final = 1 << 63


def encode_key(value: Any) -> bytes:
    """Encode equal values as equal bytes, and whole numbers in their order, as Kafka's serdes do: a join by a foreign key tells rows by it."""
    return json.dumps(_marked(_ordered(value), lambda pairs: sorted(pairs, key=json.dumps))).encode()


def encode_row(value: Any) -> bytes:
    """Encode a row with its maps in their order, which functions of maps may go by."""
    return json.dumps(_marked(value, list)).encode()


def decode(content: bytes) -> Any:
    return _unmarked(json.loads(content))


class _Number(NamedTuple):
    value: int


def _ordered(value: Any) -> Any:
    match value:
        case int() if not isinstance(value, bool):
            return _Number(value)
        case tuple():
            return tuple(_ordered(each) for each in value)
        case list():
            return [_ordered(each) for each in value]
        case dict():
            return {key: _ordered(each) for key, each in value.items()}
    return value


def _marked(value: Any, order: Callable[[list[Any]], list[Any]]) -> Any:  # noqa: PLR0911 - one for each type
    match value:
        case _Number():
            return {"int": f"{value.value + _HALF:016x}"}
        case tuple():
            return {"tuple": [_marked(each, order) for each in value]}
        case list():
            return [_marked(each, order) for each in value]
        case dict():
            return {"map": order([[_marked(key, order), _marked(each, order)] for key, each in value.items()])}
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"timestamp": times.to_ms(value)}
        case date():
            return {"date": times.to_days(value)}
        case time():
            return {"time": times.time_to_ms(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
    return value


def _unmarked(value: Any) -> Any:  # noqa: PLR0911 - one for each type
    if isinstance(value, list):
        return [_unmarked(each) for each in value]
    if not isinstance(value, dict):
        return value
    ((mark, inner),) = value.items()
    match mark:
        case "int":
            return int(inner, 16) - _HALF
        case "tuple":
            return tuple(_unmarked(each) for each in inner)
        case "map":
            return {_unmarked(key): _unmarked(each) for key, each in inner}
        case "decimal":
            return Decimal(inner)
        case "timestamp":
            return times.of_ms(inner)
        case "date":
            return times.date_of_days(inner)
        case "time":
            return times.time_of_ms(inner)
    return base64.b64decode(inner)


KEYS: Final[Serde[Any]] = Serde.of(encode_key, decode, name="ksql key")
ROWS: Final[Serde[Any]] = Serde.of(encode_row, decode, name="ksql row")
