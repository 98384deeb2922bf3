"""Log records on stderr: lines for people, or JSON for programs."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
# The attributes of all records: others are printed as extra fields.
_COMMON: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(level: str, form: str | logging.Formatter, member: int | None = None) -> None:
    """Send log records of this level and above to stderr, by one of the FORMATS or a formatter.

    All records have the number of the `member` process, if given.
    """
    handler = logging.StreamHandler(sys.stderr)
    if member is not None:
        handler.addFilter(lambda record: _number(record, member))
    if isinstance(form, str):
        form = JsonFormatter() if form == "json" else TextFormatter(_TEXT)
    handler.setFormatter(form)
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _number(record: logging.LogRecord, member: int) -> bool:
    record.__dict__["member"] = member
    return True


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extra fields of a record."""
    return {name: value for name, value in vars(record).items() if name not in _COMMON}


class TextFormatter(logging.Formatter):
    """Lines, with the client id after the logger: it distinguishes apps in one process.

    In a member process its number stands there instead.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        client = getattr(record, "member", getattr(record, "client_id", None))
        if client is None:
            return super().format(record)
        name = record.name
        record.name = f"{name} [{client}]"
        try:
            return super().format(record)
        finally:
            record.name = name


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, extra fields, and the error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        told: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **extra_fields(record),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str, ensure_ascii=False)
