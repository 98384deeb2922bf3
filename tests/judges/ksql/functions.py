"""ksql's functions of values, by name; null for a null argument unless they say otherwise."""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from datetime import date, datetime, time, timedelta
from decimal import ROUND_CEILING, ROUND_DOWN, ROUND_FLOOR, Decimal
from itertools import product, zip_longest
from typing import TYPE_CHECKING, Any, Final

from tests.judges.ksql import times, values
from tests.judges.ksql.addresses import ADDRESSES
from tests.judges.ksql.masks import MASKS
from tests.judges.ksql.reasons import LeftOut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Function = Callable[..., Any]

CODES: Final = {"hex": "hex", "utf8": "utf-8", "ascii": "ascii", "base64": "base64"}


def strict(function: Function) -> Function:
    """Return a function that is null when an argument is."""

    def called(*given: Any) -> Any:
        return None if any(each is None for each in given) else function(*given)

    return called


def substring(written: str, start: int, length: int | None = None) -> str:
    at = start - 1 if start > 0 else max(len(written) + start, 0) if start < 0 else 0
    return written[at:] if length is None else written[at : at + max(length, 0)]


def initcap(written: str) -> str:
    return re.sub(r"\S+", lambda word: word.group().capitalize(), written)


def pad(written: str, length: int, padding: str, *, left: bool) -> str | None:
    if length < 0 or not padding:
        return None
    if len(written) >= length:
        return written[:length]
    filled = (padding * length)[: length - len(written)]
    return filled + written if left else written + filled


def instr(written: str, part: str, position: int = 1, occurrence: int = 1) -> int:
    if position < 0:
        at = len(written) + position + 1
        for _ in range(occurrence):
            at = written.rfind(part, 0, at - 1 + len(part)) if at > 0 else -1
            at += 1
        return max(at, 0)
    at = position - 1
    for _ in range(occurrence):
        at = written.find(part, at) + 1
        if at == 0:
            return 0
    return at


def chr_(code: int | str) -> str | None:
    if isinstance(code, int):
        return chr(code) if 0 <= code <= 0x10FFFF else None
    if not re.fullmatch(r"(?:\\[uU][0-9a-fA-F]{4})+", code):
        return None
    return bytes.fromhex(re.sub(r"\\[uU]", "", code)).decode("utf-16-be")


def to_bytes(written: str, code: str) -> bytes:
    match code:
        case "hex":
            digits = re.sub(r"^0x|^[xX]'(?=.*'$)|(?<=')'$|(?<=\w)'$", "", written)
            return bytes.fromhex(f"0{digits}" if written.startswith("0x") and len(digits) % 2 else digits)
        case "base64":
            return base64.b64decode(written, validate=True)
        case "utf8" | "ascii":
            return written.encode(CODES[code])
    raise ValueError(f"unknown encoding {code}")


def from_bytes(content: bytes, code: str) -> str:
    match code:
        case "hex":
            return f"0x{content.hex().upper()}"
        case "base64":
            return base64.b64encode(content).decode()
        case "utf8" | "ascii":
            return content.decode(CODES[code], "replace")
    raise ValueError(f"unknown encoding {code}")


def encode(written: str, code: str, wanted: str) -> str:
    made = from_bytes(to_bytes(written, code), wanted)
    return made.removeprefix("0x").lower() if wanted == "hex" else made


def number_of(layout: str) -> Function:
    def read(content: bytes, order: str = "BIG_ENDIAN") -> Any:
        return struct.unpack((">" if order == "BIG_ENDIAN" else "<") + layout, content)[0]

    return strict(read)


def split(written: str, separator: str) -> list[str]:
    return written.split(separator) if separator else list(written)


def split_to_map(written: str, between: str, inside: str) -> dict[str, str] | None:
    if not between or not inside:
        return None
    pairs = [each.split(inside) for each in written.split(between) if each]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def distinct(given: Iterable[Any]) -> list[Any]:
    found: list[Any] = []
    for each in given:
        if each not in found:
            found.append(each)
    return found


def array_sort(given: list[Any], order: str = "asc") -> list[Any] | None:
    if order.lower() not in {"asc", "ascending", "desc", "descending"}:
        return None
    present = sorted((each for each in given if each is not None), reverse=order.lower().startswith("desc"))
    return present + [None] * (len(given) - len(present))


def extreme(choose: Callable[[list[Any]], Any]) -> Function:
    def of_array(given: list[Any] | None) -> Any:
        present = [each for each in given or () if each is not None]
        return choose(present) if present else None

    return of_array


def among(is_better: Callable[[Any, Any], bool]) -> Function:
    def of_arguments(*given: Any) -> Any:
        best = None
        for each in given:
            if best is None or each is None:
                best = each if best is None else best
                continue
            one, other = values.alike(best, each)
            best = one if is_better(one, other) else other
        return best

    return of_arguments


def array_join(given: list[Any], separator: str = ",") -> str:
    return separator.join("null" if each is None else values.text(each) for each in given)


def array_concat(first: list[Any] | None, second: list[Any] | None) -> list[Any] | None:
    return None if first is None and second is None else (first or []) + (second or [])


def slice_(given: list[Any], first: int | None, last: int | None) -> list[Any] | None:
    start, end = (1 if first is None else first) - 1, len(given) if last is None else last
    return None if start < 0 or end > len(given) or start > end else given[start:end]


def entries(given: dict[str, Any], ordered: bool) -> list[dict[str, Any]]:
    return [{"K": key, "V": given[key]} for key in (sorted(given) if ordered else values.in_hash_order(given))]


def as_map(keys: list[Any], given: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, given, strict=True))


def transform(given: Any, first: Function, second: Function | None = None) -> Any:
    if isinstance(given, dict):
        assert second is not None
        return {first(key, value): second(key, value) for key, value in given.items()}
    return [first(each) for each in given]


def filter_(given: Any, test: Function) -> Any:
    if isinstance(given, dict):
        return {key: value for key, value in given.items() if test(key, value)}
    return [each for each in given if test(each)]


def reduce_(given: Any, state: Any, step: Function) -> Any:
    if given is None or state is None:
        return state
    if isinstance(given, dict):
        for key in values.in_hash_order(given):
            state = step(state, key, given[key])
        return state
    for each in given:
        state = step(state, each)
    return state


def round_(number: Any, digits: int | None = None) -> Any:
    if isinstance(number, int):
        return number if digits is None or digits >= 0 else int(values.rounded(Decimal(number), digits))
    if isinstance(number, float) and not math.isfinite(number):
        return number
    if digits is None:
        whole = math.floor(values.EXACT.add(Decimal(repr(number) if isinstance(number, float) else number), Decimal("0.5")))
        return Decimal(whole) if isinstance(number, Decimal) else whole
    made = _half_up(Decimal(repr(number) if isinstance(number, float) else number), digits)
    return float(made) if isinstance(number, float) else made


def _half_up(number: Decimal, digits: int) -> Decimal:
    """Round halves toward positive infinity, as ksql's ROUND does."""
    unit = Decimal(1).scaleb(-digits)
    return values.EXACT.multiply(values.EXACT.add(values.EXACT.divide(number, unit), Decimal("0.5")).to_integral_value(ROUND_FLOOR), unit)


def trunc(number: Any, digits: int | None = None) -> Any:
    if isinstance(number, int):
        return number if digits is None or digits >= 0 else int(Decimal(number).quantize(Decimal(1).scaleb(-digits), ROUND_DOWN))
    if digits is None:
        return Decimal(int(number)) if isinstance(number, Decimal) else int(number)
    made = Decimal(repr(number) if isinstance(number, float) else number)
    made = made.quantize(Decimal(1).scaleb(-digits), ROUND_DOWN)
    return float(made) if isinstance(number, float) else made


def toward(direction: str, of_float: Callable[[float], int]) -> Function:
    def whole(number: Any) -> Any:
        if isinstance(number, Decimal):
            return number.to_integral_value(direction)
        return float(of_float(number)) if isinstance(number, float) else number

    return strict(whole)


def real(function: Callable[..., float]) -> Function:
    """Return a function of doubles: outside of its range it is NaN, as in Java."""

    def called(*given: Any) -> float:
        try:
            return function(*(float(each) for each in given))
        except ValueError:
            return math.nan

    return strict(called)


def log(*given: float) -> float:
    base, number = given if len(given) > 1 else (math.e, given[0])
    if number <= 0 or base <= 0 or base == 1:
        return -math.inf if number == 0 and base > 1 else math.nan
    return math.log(number) / math.log(base) if len(given) > 1 else math.log(number)


def geo_distance(*given: Any) -> float:
    unit = given[4] if len(given) > 4 else "KM"
    first, left, second, right = (math.radians(float(each)) for each in given[:4])
    near = math.sin((second - first) / 2) ** 2 + math.sin((right - left) / 2) ** 2 * math.cos(first) * math.cos(second)
    radius = 3959 if unit.upper().startswith("MI") else 6371
    return radius * 2 * math.asin(math.sqrt(near))


def field(wanted: Any, *among_: Any) -> int:
    return 0 if wanted is None else next((at for at, each in enumerate(among_, 1) if each == wanted), 0)


def concat_ws(separator: Any, *given: Any) -> Any:
    if separator is None:
        return None
    if isinstance(separator, bytes):
        return separator.join(each for each in given if each is not None)
    return separator.join(values.text(each) for each in given if each is not None)


def concat(*given: Any) -> Any:
    if any(isinstance(each, bytes) for each in given):
        return b"".join(each for each in given if each is not None)
    return "".join(values.text(each) for each in given if each is not None)


# --- regular expressions and JSON -----------------------------------------------------------------


def regexp_extract(pattern: str, written: str, group: int = 0) -> str | None:
    match = re.search(pattern, written)
    return None if match is None or group > match.re.groups else match.group(group)


def regexp_extract_all(pattern: str, written: str, group: int = 0) -> list[str] | None:
    found = list(re.finditer(pattern, written))
    return None if group > re.compile(pattern).groups else [match.group(group) for match in found]


def regexp_replace(written: str, pattern: str, replacement: str) -> str:
    return re.sub(pattern, re.sub(r"\$(\d)", r"\\\1", replacement), written)


def regexp_split(written: str, pattern: str) -> list[str]:
    return re.split(pattern, written)


def _json(written: str) -> Any:
    """Read JSON as Jackson does, which does not look behind the first value."""
    return json.JSONDecoder().raw_decode(written.strip())[0]


def extract_json(written: str, path: str) -> str | None:
    found = _json(written)
    for name, at in re.findall(r"\.([^.\[]+)|\[(\d+)\]", path):
        if name and isinstance(found, dict) and name in found:
            found = found[name]
        elif at and isinstance(found, list) and int(at) < len(found):
            found = found[int(at)]
        else:
            return None
    return found if isinstance(found, str) or found is None else values.json_text(found)


def json_of(kind: type) -> Function:
    def read(written: str) -> Any:
        found = _json(written)
        return found if isinstance(found, kind) else None

    return strict(read)


def json_texts(given: Any) -> Any:
    if isinstance(given, dict):
        return {key: value if isinstance(value, str) else values.json_text(value) for key, value in given.items()}
    return None if given is None else [values.json_text(each) for each in given]


def is_json(written: str | None) -> bool:
    try:
        return written is not None and (json.loads(written), True)[1]
    except ValueError:
        return False


def json_contains(written: str, wanted: Any) -> bool:
    found = _json(written)
    return isinstance(found, list) and any(type(each) is type(wanted) and each == wanted for each in found)


def json_concat(*given: str) -> str:
    """Join objects into one, or else all values into one array."""
    found = [_json(each) for each in given]
    if all(isinstance(each, dict) for each in found):
        return values.json_text({key: value for each in found for key, value in each.items()})
    return values.json_text([value for each in found for value in (each if isinstance(each, list) else [each])])


def to_json(value: Any) -> str:
    return values.json_text(_in_json(value))


def _in_json(value: Any) -> Any:
    match value:
        case dict():
            return {key: _in_json(each) for key, each in value.items()}
        case list():
            return [_in_json(each) for each in value]
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return float(value)
    return value


# --- times ----------------------------------------------------------------------------------------


def shifted(sign: int) -> Function:
    def shift(unit: str, count: int, moment: datetime | date | time) -> datetime | date | time:
        step = timedelta(milliseconds=sign * count * times.UNITS[f"{unit.rstrip('S')}S"])
        if isinstance(moment, datetime):
            return moment + step
        if isinstance(moment, time):
            return (datetime.combine(times.EPOCH.date(), moment) + step).time()
        return moment + timedelta(days=step.days)

    return strict(shift)


def _instant(moment: Any) -> datetime:
    return moment if isinstance(moment, datetime) else times.of_ms(moment)


def format_time(clock: time, pattern: str) -> str:
    return times.shape(datetime.combine(times.EPOCH.date(), clock), pattern)


def format_date(day: date, pattern: str) -> str:
    return times.shape(datetime.combine(day, time()), pattern)


def convert_zone(instant: datetime, old: str, new: str) -> datetime:
    shift = instant.replace(tzinfo=times.zone(old)).astimezone(times.zone(new))
    return shift.replace(tzinfo=None)


# --- of several rows for one ----------------------------------------------------------------------


def cube(given: list[Any]) -> list[list[Any]]:
    choices = [(None, each) if each is not None else (None,) for each in given]
    return [list(each) for each in product(*choices)]


def series(first: int, last: int, step: int | None = None) -> list[int]:
    by = step if step is not None else 1 if last >= first else -1
    return list(range(first, last + (1 if by > 0 else -1), by))


def rows_of(columns: list[list[Any] | None]) -> list[tuple[Any, ...]]:
    """Return the rows that table functions' results make side by side."""
    return list(zip_longest(*(each or [] for each in columns)))


def unknown_now(*_: Any) -> Any:
    raise LeftOut("a function of the wall clock")


FUNCTIONS: Final[dict[str, Function]] = {
    **{f"MASK{name}": strict(function) for name, function in MASKS.items()},
    **{f"URL_{name}": strict(function) for name, function in ADDRESSES.items()},
    "ABS": strict(abs),
    "ACOS": real(math.acos),
    "ARRAY_CONCAT": array_concat,
    "ARRAY_CONTAINS": lambda given, wanted: given is not None and wanted in given,
    "ARRAY_DISTINCT": strict(distinct),
    "ARRAY_EXCEPT": strict(lambda first, second: distinct(each for each in first if each not in second)),
    "ARRAY_INTERSECT": strict(lambda first, second: distinct(each for each in first if each in second)),
    "ARRAY_JOIN": lambda given, separator=",": None if given is None else array_join(given, separator or ""),
    "ARRAY_LENGTH": strict(len),
    "ARRAY_MAX": extreme(max),
    "ARRAY_MIN": extreme(min),
    "ARRAY_REMOVE": lambda given, unwanted: None if given is None else [each for each in given if each != unwanted],
    "ARRAY_SORT": strict(array_sort),
    "ARRAY_UNION": strict(lambda first, second: distinct([*first, *second])),
    "ASIN": real(math.asin),
    "AS_MAP": strict(as_map),
    "AS_VALUE": lambda value: value,
    "ATAN": real(math.atan),
    "ATAN2": real(math.atan2),
    "BIGINT_FROM_BYTES": number_of("q"),
    "CBRT": real(math.cbrt),
    "CEIL": toward(ROUND_CEILING, math.ceil),
    "CHR": strict(chr_),
    "COALESCE": lambda *given: next((each for each in given if each is not None), None),
    "CONCAT": concat,
    "CONCAT_WS": concat_ws,
    "CONVERT_TZ": strict(convert_zone),
    "COS": real(math.cos),
    "COSH": real(math.cosh),
    "COT": real(lambda number: math.copysign(math.inf, number) if number == 0 else 1 / math.tan(number)),
    "CUBE_EXPLODE": strict(cube),
    "DATEADD": shifted(1),
    "DATESUB": shifted(-1),
    "DATETOSTRING": strict(lambda days, pattern: format_date(times.date_of_days(days), pattern)),
    "DEGREES": real(math.degrees),
    "DOUBLE_FROM_BYTES": number_of("d"),
    "ELT": lambda at, *given: None if at is None or not 1 <= at <= len(given) else given[at - 1],
    "ENCODE": strict(encode),
    "ENTRIES": strict(entries),
    "EXP": real(math.exp),
    "EXPLODE": lambda given: given or [],
    "EXTRACTJSONFIELD": strict(extract_json),
    "FIELD": field,
    "FILTER": strict(filter_),
    "FLOOR": toward(ROUND_FLOOR, math.floor),
    "FORMAT_DATE": strict(format_date),
    "FORMAT_TIME": strict(format_time),
    "FORMAT_TIMESTAMP": strict(times.shape),
    "FROM_BYTES": strict(from_bytes),
    "FROM_DAYS": strict(times.date_of_days),
    "FROM_UNIXTIME": strict(times.of_ms),
    "GENERATE_SERIES": strict(series),
    "GEO_DISTANCE": strict(geo_distance),
    "GREATEST": among(lambda one, other: bool(one >= other)),
    "IFNULL": lambda value, other: other if value is None else value,
    "INITCAP": strict(initcap),
    "INSTR": strict(instr),
    "INT_FROM_BYTES": number_of("i"),
    "IS_JSON_STRING": is_json,
    "JSON_ARRAY_CONTAINS": strict(json_contains),
    "JSON_ARRAY_LENGTH": lambda written: None if (found := json_of(list)(written)) is None else len(found),
    "JSON_CONCAT": strict(json_concat),
    "JSON_ITEMS": lambda written: json_texts(json_of(list)(written)),
    "JSON_KEYS": lambda written: None if (found := json_of(dict)(written)) is None else list(found),
    "JSON_RECORDS": lambda written: json_texts(json_of(dict)(written)),
    "LCASE": strict(str.lower),
    "LEAST": among(lambda one, other: bool(one <= other)),
    "LEN": strict(len),
    "LN": real(log),
    "LOG": real(log),
    "LPAD": strict(lambda written, length, padding: pad(written, length, padding, left=True)),
    "MAP_KEYS": strict(values.in_hash_order),
    "MAP_UNION": lambda first, second: None if first is None and second is None else {**(first or {}), **(second or {})},
    "MAP_VALUES": strict(lambda given: [given[key] for key in values.in_hash_order(given)]),
    "NULLIF": lambda value, other: None if value == other else value,
    "PARSE_DATE": strict(lambda written, pattern: times.parse(written, pattern, whole_text=False).date()),
    "PARSE_TIME": strict(lambda written, pattern: times.parse(written, pattern).time()),
    "PARSE_TIMESTAMP": strict(times.parse),
    "PI": lambda: math.pi,
    "POWER": real(math.pow),
    "RADIANS": real(math.radians),
    "REDUCE": reduce_,
    "REGEXP_EXTRACT": strict(regexp_extract),
    "REGEXP_EXTRACT_ALL": strict(regexp_extract_all),
    "REGEXP_REPLACE": strict(regexp_replace),
    "REGEXP_SPLIT_TO_ARRAY": strict(regexp_split),
    "REPLACE": strict(str.replace),
    "ROUND": strict(round_),
    "RPAD": strict(lambda written, length, padding: pad(written, length, padding, left=False)),
    "SIGN": strict(lambda number: (number > 0) - (number < 0)),
    "SIN": real(math.sin),
    "SINH": real(math.sinh),
    "SLICE": lambda given, first, last: None if given is None else slice_(given, first, last),
    "SPLIT": strict(split),
    "SPLIT_TO_MAP": strict(split_to_map),
    "SQRT": real(lambda number: math.sqrt(number) if number >= 0 else math.nan),
    "STRINGTODATE": strict(lambda written, pattern: times.to_days(times.parse(written, pattern).date())),
    "STRINGTOTIMESTAMP": strict(lambda *given: times.to_ms(times.parse(*given))),
    "SUBSTRING": strict(substring),
    "TAN": real(math.tan),
    "TANH": real(math.tanh),
    "TIMEADD": shifted(1),
    "TIMESTAMPADD": shifted(1),
    "TIMESTAMPSUB": shifted(-1),
    "TIMESTAMPTOSTRING": strict(lambda ms, *given: times.shape(_instant(ms), *given)),
    "TIMESUB": shifted(-1),
    "TO_BYTES": strict(to_bytes),
    "TO_JSON_STRING": to_json,
    "TRANSFORM": strict(transform),
    "TRIM": strict(lambda written: written.strip(" ")),
    "TRUNC": strict(trunc),
    "UCASE": strict(str.upper),
    "UNIX_DATE": lambda *given: times.to_days(given[0]) if given else unknown_now(),
    "UNIX_TIMESTAMP": lambda *given: times.to_ms(given[0]) if given else unknown_now(),
}
