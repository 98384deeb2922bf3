"""Errors of Spark tasks, rebuilt for the caller of the job without Java's stack traces."""

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
_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(.*?)(?=\n\s*\n|\n\tat |\Z)", re.DOTALL
)
_JAVA = re.compile(r"\n\t(?:at |\.\.\. ).*")
_LONGEST = 64_000


class TaskError(Exception):
    """An error of a Spark task, passed to the caller as text."""


class SparkError(Exception):
    """Spark's description of a failure, as text."""


@contextmanager
def carried() -> Iterator[None]:
    """Pass an error raised in a Spark task to the caller of the job unchanged."""
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        packed = _pack(error)
        raise TaskError(said if packed is None else f"{said} <<ks-actors:{packed}>>") from error


class _ErrorData(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A serialized error.

    The struct holds plain data: input from the network can create only errors of Python and this
    package, with text arguments.
    """

    kind: str
    arguments: tuple[str | int | float | None, ...]
    task: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    cause: _ErrorData | None = None


_decoder: Final = msgspec.json.Decoder(_ErrorData)


def _pack(error: Exception) -> str | None:
    """Return an error and its cause as text; None if it could not be rebuilt."""
    data = _data_of(error)
    cause = error.__cause__
    if data is not None and isinstance(cause, Exception):
        data = msgspec.structs.replace(data, cause=_data_of(cause))
    packed = b"" if data is None else msgspec.json.encode(data)
    return base64.b64encode(packed).decode("ascii") if 0 < len(packed) <= _LONGEST else None


def _data_of(error: Exception) -> _ErrorData | None:
    arguments = tuple(
        each if isinstance(each, str | int | float | None) else str(each) for each in error.args
    )
    data = _ErrorData(type(error).__name__, arguments)
    if isinstance(error, StreamsError):
        task = None if error.task is None else str(error.task)
        data = _ErrorData(
            data.kind, arguments, task, error.node, error.topic, error.partition, error.offset
        )
    made = _made(data)
    return (
        data if made is not None and type(made) is type(error) and str(made) == str(error) else None
    )


def _made(data: _ErrorData) -> Exception | None:
    """Rebuild the error.

    Return None if the class belongs neither to Python nor to this package, or takes other
    arguments.
    """
    kind = getattr(_errors, data.kind, None) or getattr(builtins, data.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return None
    try:
        error = kind(*data.arguments)
        if isinstance(error, StreamsError):
            error.task = None if data.task is None else TaskId.parse(data.task)
            error.node, error.topic, error.partition, error.offset = (
                data.node,
                data.topic,
                data.partition,
                data.offset,
            )
    except (TypeError, ValueError, AttributeError):
        return None
    return error


def translated(error: Exception, name: str, kind: str = "job") -> JobFailed:
    """Return the failure of a job (or of `kind`), caused by the error raised in a task, if any.

    Java's stack trace is left out. Call this function in the thread that caught the error, as
    formatting a Java error may call Java again.
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
        # The error follows the indented frames; modules and outer functions precede its class name.
        kind, colon, what = next(
            (line for line in said.splitlines() if line[:1].strip()), ""
        ).partition(": ")
        if kind:
            return _failed(
                job,
                f"{kind.rpartition('.')[2]}{colon}{what}",
                SparkError(f"in a Spark task:\n{said}"),
            )
    # An error of py4j refers to an object in Java, which may no longer exist when the error is
    # shown.
    cause = SparkError(_JAVA.sub("", text)) if type(error).__module__.startswith("py4j") else error
    return _failed(job, f"{type(error).__name__}: {first_line(error)}", cause)


def died(name: str, kind: str = "job") -> JobFailed:
    """Return the failure of a job after its Spark session died."""
    return JobFailed(
        f"{kind} {name} failed: Spark ended meanwhile. The next one gets a new session"
    )


def _unpack(packed: str) -> Exception | None:
    """Return the error packed by `_pack`; None for anything else."""
    try:
        data = _decoder.decode(base64.b64decode(packed))
    except (ValueError, msgspec.MsgspecError):
        return None
    raised = _made(data)
    if raised is not None:
        raised.__cause__ = None if data.cause is None else _made(data.cause)
    return raised


def _failed(job: str, text: str, cause: Exception) -> JobFailed:
    failed = JobFailed(f"{job} failed: {text}")
    failed.__cause__ = cause
    return failed


def first_line(error: BaseException) -> str:
    """Return the first informative line of a Spark error."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling "):
        return lines[1].lstrip(": ")
    return lines[0] if lines else type(error).__name__
