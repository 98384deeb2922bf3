"""Values of ksql: comparing, arithmetic, text and casts."""

from __future__ import annotations

import json
import math
import re
from datetime import date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TYPE_CHECKING, Any, Final

from tests.judges.ksql import times
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable

EXACT: Final = Context(prec=80, rounding=ROUND_HALF_UP)
WHOLE: Final = {"INTEGER": 32, "INT": 32, "BIGINT": 64}


def text(value: Any) -> str:  # noqa: PLR0911 - one for each type
    """Return a value as Java's `String.valueOf` has it."""
    match value:
        case str():
            return value
        case bool():
            return str(value).lower()
        case float():
            return double_text(value)
        case Decimal():
            return f"{value:f}"
        case datetime() | date() | time():
            return times.write(value)
        case list():
            return "[" + ", ".join("null" if each is None else text(each) for each in value) + "]"
        case dict():
            return "{" + ", ".join(f"{key}={'null' if each is None else text(each)}" for key, each in value.items()) + "}"
        case bytes():
            raise LeftOut("text of BYTES")
    return str(value)


def double_text(value: float) -> str:
    """Return a double as Java's `Double.toString` has it."""
    if math.isinf(value) or math.isnan(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        plain = f"{Decimal(repr(value)):f}"
        return plain if "." in plain else f"{plain}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = digits[0], "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"


def json_text(value: Any) -> str:
    """Return a value as JSON without blanks."""
    return json.dumps(value, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else text(value)


def alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Bring two values that are compared or calculated with to one type, as ksql does."""
    for one, other, turned in ((left, right, False), (right, left, True)):
        if isinstance(one, float) and isinstance(other, Decimal):
            return (float(other), one) if turned else (one, float(other))
        if isinstance(other, str) and isinstance(one, (date, time)):
            moment = _of_text(other, one)
            return (moment, one) if turned else (one, moment)
        if isinstance(one, datetime) and isinstance(other, date) and not isinstance(other, datetime):
            day = datetime.combine(other, time())
            return (day, one) if turned else (one, day)
    return left, right


def _of_text(written: str, like: date | time) -> date | time:
    if isinstance(like, datetime):
        return times.read_timestamp(written)
    return times.read_time(written) if isinstance(like, time) else times.read_date(written)


def compared(test: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return a comparison as ksql has it: with a null it is false."""

    def compare(left: Any, right: Any) -> bool:
        return left is not None and right is not None and test(*alike(left, right))

    return compare


def calculated(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return an operation as ksql has it: with a null it is null."""

    def calculate(left: Any, right: Any) -> Any:
        return None if left is None or right is None else operation(*alike(left, right))

    return calculate


def add(left: Any, right: Any) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        return text(left) + text(right)
    return EXACT.add(left, right) if _exact(left, right) else left + right


def subtract(left: Any, right: Any) -> Any:
    return EXACT.subtract(left, right) if _exact(left, right) else left - right


def multiply(left: Any, right: Any) -> Any:
    return EXACT.multiply(left, right) if _exact(left, right) else left * right


def divide(left: Any, right: Any) -> Any:
    """Divide as Java does: whole numbers toward zero, doubles by zero to infinity."""
    if _exact(left, right):
        return EXACT.divide(left, right)
    if isinstance(left, int) and isinstance(right, int):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if right == 0:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1, right)
    return left / right


def remainder(left: Any, right: Any) -> Any:
    if _exact(left, right):
        return EXACT.remainder(left, right)
    if isinstance(left, int) and isinstance(right, int):
        return left - right * divide(left, right)
    return math.fmod(left, right) if right else math.nan


def _exact(left: Any, right: Any) -> bool:
    return isinstance(left, Decimal) or isinstance(right, Decimal)


def in_hash_order(given: dict[str, Any]) -> list[str]:
    """Return keys in the order of Java's HashMap, which ksql's functions of maps go by; ksql makes it for as many as there are."""
    size = 1
    while len(given) > size * 3 // 4:
        size *= 2

    def bucket(key: str) -> int:
        code = 0
        content = key.encode("utf-16-be")
        for at in range(0, len(content), 2):
            code = (31 * code + int.from_bytes(content[at : at + 2])) & 0xFFFFFFFF
        return (code ^ code >> 16) & size - 1

    return sorted(given, key=bucket)


def rounded(value: Decimal, digits: int) -> Decimal:
    return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP, context=EXACT)


def parts(inside: str, separator: str = ",") -> list[str]:
    """Split at the separators that stand in no brackets and no quotes."""
    found, depth, now, quote = [], 0, "", ""
    for sign in inside:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'":
            quote = sign
        elif sign in "<([":
            depth += 1
        elif sign in ">)]":
            depth -= 1
        if sign == separator and depth == 0 and not quote:
            found.append(now.strip())
            now = ""
        else:
            now += sign
    return found + ([now.strip()] if now.strip() else [])


def split_type(kind: str) -> tuple[str, str]:
    """Return a type's name, and the text in its brackets."""
    match = re.match(r"(\w+)\s*(?:[<(](.*)[>)])?$", kind.strip(), re.DOTALL)
    if match is None:
        raise LeftOut(f"type {kind}")
    return match.group(1).upper(), match.group(2) or ""


def fields(inside: str) -> list[tuple[str, str]]:
    """Return names and types of a struct's fields."""
    found = []
    for each in parts(inside):
        match = re.match(r"(?:`([^`]+)`|(\w+))\s+(.*)$", each, re.DOTALL)
        if match is None:
            raise LeftOut(f"type {each}")
        found.append((match.group(1) or match.group(2), match.group(3)))
    return found


def cast(value: Any, kind: str) -> Any:  # noqa: PLR0911 - one for each type
    """Convert a value as CAST does. Raises ValueError for a value that has no such form."""
    if value is None:
        return None
    name, inside = split_type(kind)
    match name:
        case "STRING" | "VARCHAR":
            return text(value)
        case "INTEGER" | "INT" | "BIGINT":
            return whole(value, WHOLE[name])
        case "DOUBLE":
            return float(value)
        case "BOOLEAN":
            return value if isinstance(value, bool) else _is_true(str(value))
        case "DECIMAL":
            return _decimal(value, kind)
        case "TIMESTAMP" | "DATE" | "TIME":
            return _moment(value, name)
        case "ARRAY":
            return [cast(each, inside) for each in value]
        case "MAP":
            first, second = parts(inside)
            return {cast(key, first): cast(each, second) for key, each in value.items()}
        case "STRUCT":
            return {field: cast(value.get(field), inner) for field, inner in fields(inside)}
        case "BYTES" if isinstance(value, bytes):
            return value
    raise LeftOut(f"CAST to {name}")


def whole(value: Any, bits: int) -> int:
    """Return a number as a whole one of so many bits: what goes over is cut off, as in Java."""
    if isinstance(value, str):
        return int(Decimal(value.strip()))
    half = 1 << bits - 1
    return (int(value) + half) % (2 * half) - half


def _is_true(written: str) -> bool:
    low = written.strip().lower()
    return any(each.startswith(low) for each in ("true", "yes")) if low else False


def _decimal(value: Any, kind: str) -> Decimal:
    precision, scale = (int(each) for each in re.findall(r"\d+", kind))
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value.strip() if isinstance(value, str) else value)
    made = rounded(exact, scale)
    if abs(made) >= Decimal(10) ** (precision - scale):
        raise ValueError(f"{value} does not fit {kind}")
    return made


def _moment(value: Any, kind: str) -> Any:  # noqa: PLR0911 - one for each pair of types
    if isinstance(value, str):
        return {"TIMESTAMP": times.read_timestamp, "DATE": times.read_date, "TIME": times.read_time}[kind](value)
    match kind, value:
        case "TIMESTAMP", datetime():
            return value
        case "TIMESTAMP", date():
            return datetime.combine(value, time())
        case "DATE", datetime():
            return value.date()
        case "DATE", date():
            return value
        case "TIME", datetime():
            return value.time()
        case "TIME", time():
            return value
    raise LeftOut(f"CAST of {type(value).__name__} to {kind}")
