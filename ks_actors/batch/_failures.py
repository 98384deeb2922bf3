"""What went wrong in a task, told where the job was asked for: the error itself, without the Java around it."""

from __future__ import annotations

import base64
import pickle
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ks_actors._errors import JobFailed
from ks_actors.batch._session import first_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_CARRIED = re.compile(r"<<ks-actors:([A-Za-z0-9+/=]+)>>")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(.*?)(?=\n\s*\n|\n\tat |\Z)", re.DOTALL)
_LAST = re.compile(r"^(\w[\w.]*): ?(.*)$", re.MULTILINE)
_LONGEST = 64_000


class TaskError(Exception):
    """Carries an error out of a Spark task, as text."""


@contextmanager
def carried() -> Iterator[None]:
    """Let what is raised inside of a Spark task arrive as it is where the job was asked for."""
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        packed = _pack(error)
        raise TaskError(said if packed is None else f"{said} <<ks-actors:{packed}>>") from error


def _pack(error: Exception) -> str | None:
    """Return an error, and what it was raised from, as text; None for one that cannot be."""
    cause = error.__cause__
    for causes in ((cause,), (None,)):
        try:
            packed = pickle.dumps((error, *causes))
            pickle.loads(packed)  # noqa: S301 - our own, to see whether it can be
        except Exception:  # noqa: BLE001, S112 - an error may hold anything: then without its cause, or as text
            continue
        if len(packed) <= _LONGEST:
            return base64.b64encode(packed).decode("ascii")
    return None


def translated(error: Exception, job: str) -> JobFailed:
    """Return the failure of a job: its cause is the error that was raised in a task, where one was."""
    text = str(error)
    match = _CARRIED.search(text)
    if match is not None:
        try:
            raised, cause = pickle.loads(base64.b64decode(match[1]))  # noqa: S301 - from a task of ours
        except Exception:  # noqa: BLE001 - a class that is not known here: the text says it all the same
            raised = cause = None
        if raised is not None:
            raised.__cause__ = cause
            return _failed(job, f"{type(raised).__name__}: {raised}", raised)
    tracebacks = _TRACEBACK.findall(text)
    if tracebacks:
        last = _LAST.findall(_CARRIED.sub("", tracebacks[-1]))
        if last:
            return _failed(job, f"{last[-1][0]}: {last[-1][1]}".strip(), error)
    return _failed(job, f"{type(error).__name__}: {first_line(error)}", error)


def _failed(job: str, text: str, cause: Exception) -> JobFailed:
    failed = JobFailed(f"job {job} has failed: {text}")
    failed.__cause__ = cause
    return failed
