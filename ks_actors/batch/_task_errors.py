"""What went wrong in a task, told where the job was asked for: the error itself, without the Java around it."""

from __future__ import annotations

import base64
import builtins
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from ks_actors import _errors
from ks_actors._errors import JobFailed, StreamsError
from ks_actors.records import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

_CARRIED = re.compile(r"<<ks-actors:([A-Za-z0-9+/=]+)>>")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(.*?)(?=\n\s*\n|\n\tat |\Z)", re.DOTALL)
_JAVA = re.compile(r"\n\t(?:at |\.\.\. ).*")
_LONGEST = 64_000


class TaskError(Exception):
    """Carries an error out of a Spark task, as text."""


class SparkError(Exception):
    """What Spark has said of a failure, as text."""


@contextmanager
def carried() -> Iterator[None]:
    """Let what is raised inside of a Spark task arrive as it is where the job was asked for."""
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        packed = _pack(error)
        raise TaskError(said if packed is None else f"{said} <<ks-actors:{packed}>>") from error


class _Told(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An error on its way. It is data: what comes over the network makes no objects but errors of Python's and this package's, with text in them."""

    kind: str
    arguments: tuple[str | int | float | None, ...]
    task: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    cause: _Told | None = None


_decoder: Final = msgspec.json.Decoder(_Told)


def _pack(error: Exception) -> str | None:
    """Return an error, and what it was raised from, as text; None for one that could not be made again."""
    told = _told(error)
    cause = error.__cause__
    if told is not None and isinstance(cause, Exception):
        told = msgspec.structs.replace(told, cause=_told(cause))
    packed = b"" if told is None else msgspec.json.encode(told)
    return base64.b64encode(packed).decode("ascii") if 0 < len(packed) <= _LONGEST else None


def _told(error: Exception) -> _Told | None:
    arguments = tuple(each if isinstance(each, str | int | float | None) else str(each) for each in error.args)
    told = _Told(type(error).__name__, arguments)
    if isinstance(error, StreamsError):
        task = None if error.task is None else str(error.task)
        told = _Told(told.kind, arguments, task, error.node, error.topic, error.partition, error.offset)
    made = _made(told)
    return told if made is not None and type(made) is type(error) and str(made) == str(error) else None


def _made(told: _Told) -> Exception | None:
    """Return the error that was told of; None when it is none of Python's or this package's, or takes something else."""
    kind = getattr(_errors, told.kind, None) or getattr(builtins, told.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    try:
        error = kind(*told.arguments)
        if isinstance(error, StreamsError):
            error.task = None if told.task is None else TaskId.parse(told.task)
            error.node, error.topic, error.partition, error.offset = told.node, told.topic, told.partition, told.offset
    except (TypeError, ValueError, AttributeError):
        return None
    return error


def translated(error: Exception, name: str, kind: str = "job") -> JobFailed:
    """Return the failure of a job, or what `kind` says: its cause is the error that was raised in a task, where one was, and none of Java's lines.

    To be called in the thread that it was raised in: to tell what Java has raised may need Java again.
    """
    job = f"{kind} {name}"
    text = str(error)
    match = _CARRIED.search(text)
    if match is not None:
        raised = _unpack(match[1])
        if raised is not None:
            return _failed(job, f"{type(raised).__name__}: {raised}", raised)
    tracebacks = _TRACEBACK.findall(text)
    if tracebacks:
        said = _CARRIED.sub("", tracebacks[-1])
        # Behind the frames, which are indented; classes have their modules, and the functions that they are in, before their names.
        kind, colon, what = next((line for line in said.splitlines() if line[:1].strip()), "").partition(": ")
        if kind:
            return _failed(job, f"{kind.rpartition('.')[2]}{colon}{what}", SparkError(f"in a task of Spark's:\n{said}"))
    cause = SparkError(_JAVA.sub("", text)) if type(error).__module__.startswith("py4j") else error
    return _failed(job, f"{type(error).__name__}: {first_line(error)}", cause)


def died(name: str, kind: str = "job") -> JobFailed:
    """Return the failure of a job whose Spark has died."""
    return JobFailed(f"{kind} {name} has failed: Spark has ended in the middle of it. What comes next gets a new session")


def _unpack(packed: str) -> Exception | None:
    """Return what `_pack` has packed; None for anything else."""
    try:
        told = _decoder.decode(base64.b64decode(packed))
    except (ValueError, msgspec.MsgspecError):
        return None
    raised = _made(told)
    if raised is not None:
        raised.__cause__ = None if told.cause is None else _made(told.cause)
    return raised


def _failed(job: str, text: str, cause: Exception) -> JobFailed:
    failed = JobFailed(f"{job} has failed: {text}")
    failed.__cause__ = cause
    return failed


def first_line(error: BaseException) -> str:
    """Return what an error of Spark says in its first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        return lines[1].lstrip(": ")
    return lines[0] if lines else type(error).__name__
