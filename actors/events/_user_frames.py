"""Tracebacks for users: their own frames, and once."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ExcInfo: TypeAlias = "tuple[type[BaseException], BaseException, TracebackType | None]"
"""An error with the frames to show, as `logging` takes it."""
# Packages that call the user's code; their frames say nothing about it.
_CALLERS: Final = frozenset(
    {"actors", "asyncio", "click", "contextlib", "importlib", "ks_actors", "uvloop"}
)
_TOLD: Final = "__actors_told__"


def user_frames(error: BaseException) -> TracebackType | None:
    """Return the error's traceback without the frames of the packages that call the user's code."""
    frames: list[TracebackType] = []
    found = error.__traceback__
    while found is not None:
        name = str(found.tb_frame.f_globals.get("__name__", ""))
        if name.partition(".")[0] not in _CALLERS:
            frames.append(found)
        found = found.tb_next
    kept: TracebackType | None = None
    for each in reversed(frames):
        kept = TracebackType(kept, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return kept


def to_tell(error: BaseException, *, placed: bool = False) -> ExcInfo | None:
    """Return an error as a log entry shows it, and mark it as logged; None if it was logged before.

    The entry shows the first of the error's causes from the user's code, with the user's frames. An
    error from other code is shown whole, or without frames if the entry itself names the place.
    """
    errors = list(_with_causes(error))
    if _was_told(errors):
        return None
    shown = next((each for each in errors if user_frames(each) is not None), error)
    frames = user_frames(shown)
    if frames is None and not placed:
        frames = shown.__traceback__
    else:
        for cause in errors[errors.index(shown) + 1 :]:
            cause.__traceback__ = user_frames(cause)
    # A class of the user may refuse attributes; then its errors are logged again.
    with suppress(Exception):
        setattr(shown, _TOLD, True)
    return type(shown), shown, frames


def shorten(error: BaseException, *, says_all: bool = False) -> None:
    """Keep only the user's frames in the tracebacks of an error and its causes, at program end.

    No frame is kept where a log entry shows the frames already. An error that neither a log entry
    shows nor the user's code has raised stays whole, unless its text `says_all`.
    """
    errors = list(_with_causes(error))
    told = _was_told(errors)
    frames = [None if told else user_frames(each) for each in errors]
    if told or says_all or any(frames):
        for each, kept in zip(errors, frames, strict=True):
            each.__traceback__ = kept


def _was_told(errors: Iterable[BaseException]) -> bool:
    return any(hasattr(each, _TOLD) for each in errors)


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
