"""What commands say on stderr besides their results: it may be lost, and ends nothing."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast, final

import click
from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

# A pipe without a reader, a full disk; and a stream that is closed.
_LOST = (OSError, ValueError)


def tell(text: str) -> None:
    """Print a line on stderr; lose it where stderr cannot be written."""
    with suppress(*_LOST):
        click.echo(text, err=True)


def progress_console(*, quiet: bool = False) -> Console:
    """Return a console on stderr that raises no error where stderr cannot be written.

    Rich itself ends the process when the reader of a pipe has gone, and puts /dev/null over stdout.
    """
    if sys.stderr is None:
        return Console(stderr=True, quiet=True)
    return Console(file=cast("TextIO", _Lossy(sys.stderr)), quiet=quiet)


def drop_unwritten() -> None:
    """At the end of the process, drop what stderr still has and cannot write.

    Python would make 120 of the exit code.
    """
    if sys.stderr is None:
        return
    try:
        sys.stderr.flush()
    except _LOST:
        with suppress(*_LOST):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


@final
class _Lossy:
    """A stream that loses text instead of raising an error; else it is as the given one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)

    def write(self, text: str) -> int:
        """Write text, or lose it."""
        with suppress(*_LOST):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what waits, or leave it."""
        with suppress(*_LOST):
            self._stream.flush()
