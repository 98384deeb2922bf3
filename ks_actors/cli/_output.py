"""Results of commands, as tables or JSON; notes and progress on stderr, which may be lost.

Also the hints for command names of other tools.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from io import StringIO, TextIOWrapper
from typing import TYPE_CHECKING, Any, Final, TextIO, cast, final
from unicodedata import category

import click

from ks_actors._errors import KsActorsError
from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console

if TYPE_CHECKING:
    from rich import console as consoles
    from rich import measure
    from rich import table as tables
    from rich import text as texts
else:
    consoles, measure = Later("rich.console"), Later("rich.measure")
    tables, texts = Later("rich.table"), Later("rich.text")

_WIDEST = 100_000
# A broken pipe, a full disk, or a closed stream.
_LOST = (OSError, ValueError)
# Control characters, ends of lines and paragraphs, and lone surrogates.
_CONTROL = frozenset({"Cc", "Zl", "Zp", "Cs"})
# These change the order of the shown text.
_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def show(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows as a table with these columns, or as a JSON array with all fields.

    None is `-` in a table. Numbers are right-aligned.
    """
    if as_json:
        show_json(list(rows))
        return
    table = tables.Table(box=None, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        numbers = all(isinstance(row.get(column), int | None) for row in rows)
        table.add_column(
            column.replace("_", " ").upper(),
            justify="right" if numbers and rows else "left",
            no_wrap=True,
        )
    for row in rows:
        table.add_row(*(texts.Text(_cell(row.get(column))) for column in columns))
    wide = consoles.Console(width=_WIDEST, file=StringIO(), color_system=None)
    width = measure.Measurement.get(wide, wide.options, table).maximum
    with wide.capture() as captured:
        wide.print(table, width=width)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def show_json(value: Any) -> None:
    """Print one JSON document; objects unknown to JSON become text."""
    click.echo(json_text(value, indent=2))


def json_text(value: Any, indent: int | None = None) -> str:
    """Return valid JSON; objects unknown to JSON become text."""
    try:
        text = json.dumps(value, indent=indent, default=_plain, ensure_ascii=False)
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        # Escape lone surrogates, which UTF-8 cannot encode, and characters outside the output's
        # encoding.
        return json.dumps(value, indent=indent, default=_plain)
    return text


def moment(timestamp_ms: int) -> str:
    """Return a timestamp as a time in UTC; outside the years 1 to 9999 as its ms."""
    try:
        return (_EPOCH + timedelta(milliseconds=timestamp_ms)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{timestamp_ms} ms"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return readable(value)
    if isinstance(value, frozenset | set):
        return sorted(value)
    return str(value)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple | set | frozenset):
        return printable(", ".join(sorted(map(str, value)))) or "-"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def printable(text: str, keep: str = "\t") -> str:
    """Return a text with escapes for control characters and line ends, except those in `keep`.

    Records could otherwise move the cursor, forge lines, or send commands to a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        each.encode("unicode_escape").decode()
        if each not in keep and (each in _DIRECTIONS or category(each) in _CONTROL)
        else each
        for each in text
    )


def readable(data: bytes | None) -> str | None:
    """Return bytes as text, where they are text, else as Python writes them."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return repr(data)


@contextmanager
def reported(application_id: str) -> Iterator[None]:
    """Turn an error of the library, or of a file or a connection, into one line and exit code 1."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of stdout has gone
    except (KsActorsError, OSError) as error:
        raise click.ClickException(f"{application_id}: {type(error).__name__}: {error}") from error


def tell(text: str) -> None:
    """Print a line on stderr; ignore errors of stderr."""
    with suppress(*_LOST):
        click.echo(text, err=True)


def check_stdout() -> None:
    """Turn a failed write of results into an error of one line, with exit code 1.

    Characters that the encoding of stdout does not have are escaped. Ends the process if stdout is
    closed, because no reader would get the results.
    """
    if sys.stdout is None:
        raise SystemExit("ks-actors: stdout is closed: redirect it to a file, or to /dev/null")
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout = cast("TextIO", _Results(sys.stdout))


def progress_console(*, quiet: bool = False) -> Console:
    """Return a console on stderr that raises no error.

    Rich itself ends the process after a broken pipe, and puts /dev/null over stdout.
    """
    if sys.stderr is None:
        return consoles.Console(stderr=True, quiet=True)
    return consoles.Console(file=cast("TextIO", _Lossy(sys.stderr)), quiet=quiet)


def drop_unwritten() -> None:
    """Drop the text that stdout and stderr cannot write, at the end of the process.

    Python would change the exit code to 120.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            try:
                stream.flush()
            except (*_LOST, click.ClickException):
                with suppress(*_LOST):
                    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@final
class _Results:
    """Stdout; a failed write is an error of the command, unless the reader has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text. Raises ClickException."""
        with _written():
            return self._stream.write(text)

    def flush(self) -> None:
        """Write the buffered text. Raises ClickException."""
        with _written():
            self._stream.flush()


@contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise click.ClickException(f"stdout cannot be written: {error.strerror}") from error


@final
class _Lossy:
    """The given stream, but it drops text instead of raising an error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def write(self, text: str) -> int:
        """Write text; drop it if that fails."""
        with suppress(*_LOST):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write the buffered text; drop it if that fails."""
        with suppress(*_LOST):
            self._stream.flush()


COMMANDS: Final[dict[str, dict[str, str]]] = {
    "ks-actors": {
        "agents": "describe MODULE:NAME",
        "console": "run MODULE:NAME",
        "consume": "tail TOPIC",
        "create": "topics create MODULE:NAME",
        "graph": "describe MODULE:NAME",
        "groups": "members --application-id ID, or lag --application-id ID",
        "list": "topics plan MODULE:NAME",
        "models": "describe MODULE:NAME",
        "produce": "send TOPIC --value TEXT",
        "publish": "send TOPIC --value TEXT",
        "start": "run MODULE:NAME",
        "status": "tasks, or check MODULE:NAME",
        "tables": "query STORE",
        "worker": "run MODULE:NAME",
    },
    "topics": {
        "describe": "topics plan MODULE:NAME",
        "list": "topics plan MODULE:NAME, which has the topics of an app",
        "show": "topics plan MODULE:NAME",
    },
}
"""The command to write, by the group and the name that it lacks."""


class OtherNames(click.Group):
    """A group of commands that knows the names that other tools have for them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the arguments. Raises UsageError, with the right one if known."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            names = COMMANDS.get(self.name or "", {})
            if args and (found := names.get(args[0])) is not None:
                text = f"No such command {args[0]!r}: write {found}"
                raise click.UsageError(text, ctx) from error
            raise


class TakesOne(click.Command):
    """A command with a topic as its only argument; a second argument is taken for the value."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Raises UsageError, which names the option for a value."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.format_message():
                value = given[-1]
                text = f"{error.format_message()}: the value is an option, --value {value!r}"
                raise click.UsageError(text, ctx) from error
            raise
