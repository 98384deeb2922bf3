"""Times in ksql: dates, times and timestamps, as text and as numbers, and Java's patterns for them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo

from tests.judges.ksql.reasons import LeftOut

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - timestamps of ksql are of UTC, without saying so
DAY_MS: Final = 86_400_000
MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
UNITS: Final = {"MILLISECONDS": 1, "SECONDS": 1000, "MINUTES": 60_000, "HOURS": 3_600_000, "DAYS": DAY_MS}


def of_ms(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def to_ms(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(milliseconds=1)


def date_of_days(days: int) -> date:
    return EPOCH.date() + timedelta(days=days)


def to_days(day: date) -> int:
    return (day - EPOCH.date()).days


def time_of_ms(ms: int) -> time:
    return of_ms(ms % DAY_MS).time()


def time_to_ms(clock: time) -> int:
    return to_ms(datetime.combine(EPOCH.date(), clock))


def read_timestamp(text: str) -> datetime:
    """Read a timestamp as ksql's literals have it: parts may be missing from the right, and an offset may follow."""
    match = re.fullmatch(r"(\d{4})(?:-(\d\d?))?(?:-(\d\d?))?(?:T(\d\d)?(?::(\d\d))?(?::(\d\d))?(?:\.(\d+))?)?(Z|[+-]\d\d:?\d\d)?", text.strip())
    if match is None:
        raise ValueError(f"no timestamp: {text!r}")
    year, month, day, hour, minute, second, fraction, offset = match.groups()
    made = datetime(int(year), int(month or 1), int(day or 1), int(hour or 0), int(minute or 0), int(second or 0))  # noqa: DTZ001 - as EPOCH
    made += timedelta(milliseconds=int((fraction or "0").ljust(3, "0")[:3]))
    return made - (_offset(offset) if offset else timedelta())


def read_date(text: str) -> date:
    return read_timestamp(text.strip()[:10]).date()


def read_time(text: str) -> time:
    return time.fromisoformat(text.strip() if ":" in text else f"{text}:00")


def write(instant: datetime | date | time) -> str:
    if isinstance(instant, datetime):
        return instant.strftime("%Y-%m-%dT%H:%M:%S.") + f"{instant.microsecond // 1000:03}"
    if isinstance(instant, time):
        fraction = f".{instant.microsecond // 1000:03}" if instant.microsecond else ""
        return instant.strftime("%H:%M" if not (instant.second or fraction) else "%H:%M:%S") + fraction
    return instant.isoformat()


def _offset(text: str) -> timedelta:
    if text == "Z":
        return timedelta()
    sign = -1 if text[0] == "-" else 1
    digits = text[1:].replace(":", "").ljust(4, "0")
    return sign * timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))


def zone(name: str) -> ZoneInfo | timezone:
    if re.fullmatch(r"[+-]\d\d:?\d\d", name):
        return timezone(_offset(name))
    return ZoneInfo(name)


_PARTS: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|(.)", re.DOTALL)
_READERS: Final = {
    "y": ("year", r"\d{4}"),
    "u": ("year", r"\d{4}"),
    "M": ("month", r"\d\d?|[A-Za-z]+"),
    "d": ("day", r"\d\d?"),
    "H": ("hour", r"\d\d?"),
    "h": ("half", r"\d\d?"),
    "a": ("am", r"[AaPp][Mm]"),
    "m": ("minute", r"\d\d?"),
    "s": ("second", r"\d\d?"),
    "S": ("fraction", r"\d{1,9}"),
    "X": ("offset", r"Z|[+-]\d\d(?::?\d\d)?"),
    "x": ("offset", r"[+-]\d\d(?::?\d\d)?"),
    "Z": ("offset", r"[+-]\d{4}"),
    "z": ("zone", r"[A-Za-z_/]+"),
    "V": ("zone", r"[A-Za-z_/]+"),
}


def parse(text: str, pattern: str, within: str | None = None, *, whole_text: bool = True) -> datetime:
    """Read a time with one of Java's patterns; a time without a zone is of the zone `within`, or of UTC."""
    regex = ""
    for literal, letter, other in _PARTS.findall(pattern):
        if letter:
            if letter not in _READERS:
                raise LeftOut(f"time pattern {pattern}")
            name, digits = _READERS[letter]
            regex += f"(?P<{name}>{digits})"
        else:
            regex += re.escape(other or literal.replace("''", "'") or "'")
    match = re.fullmatch(regex, text) if whole_text else re.match(regex, text)
    if match is None:
        raise ValueError(f"{text!r} does not fit {pattern!r}")
    found = match.groupdict()
    month = found.get("month")
    if month and month.isalpha():
        found["month"] = str(MONTHS.index(month[:3].upper()) + 1)
    whole = {name: int(found.get(name) or least) for name, least in (("year", 1970), ("month", 1), ("day", 1), ("minute", 0), ("second", 0))}
    hour = int(found.get("hour") or 0)
    if found.get("half"):
        hour = int(found["half"]) % 12 + (12 if (found.get("am") or "").upper() == "PM" else 0)
    made = datetime(whole["year"], whole["month"], whole["day"], hour, whole["minute"], whole["second"])  # noqa: DTZ001 - as EPOCH
    made += timedelta(milliseconds=int((found.get("fraction") or "0").ljust(3, "0")[:3]))
    if found.get("offset"):
        return made - _offset(found["offset"])
    named = found.get("zone") or within
    return made.replace(tzinfo=zone(named)).astimezone(UTC).replace(tzinfo=None) if named else made


def shape(instant: datetime, pattern: str, within: str | None = None) -> str:
    """Write a time with one of Java's patterns, in the zone `within`, or in UTC."""
    local = instant.replace(tzinfo=UTC).astimezone(zone(within or "UTC"))
    written = ""
    for match in _PARTS.finditer(pattern):
        literal, letter, other = match.groups()
        if not letter:
            written += other or (literal.replace("''", "'") or "'")
            continue
        width = len(match.group())
        match letter:
            case "y" | "u":
                written += f"{local.year:0{width}}" if width != 2 else f"{local.year % 100:02}"
            case "M":
                written += local.strftime({3: "%b", 4: "%B"}.get(width, "")) or f"{local.month:0{width}}"
            case "E":
                written += local.strftime("%A" if width > 3 else "%a")
            case "d" | "H" | "m" | "s":
                written += f"{ {'d': local.day, 'H': local.hour, 'm': local.minute, 's': local.second}[letter]:0{width}}"
            case "h":
                written += f"{local.hour % 12 or 12:0{width}}"
            case "a":
                written += local.strftime("%p")
            case "S":
                written += f"{local.microsecond:06}"[:width].ljust(width, "0")
            case "z":
                written += local.strftime("%Z")
            case "X" | "x" | "Z":
                offset = local.strftime("%z")
                written += "Z" if letter == "X" and offset == "+0000" else offset
            case _:
                raise LeftOut(f"time pattern {pattern}")
    return written
