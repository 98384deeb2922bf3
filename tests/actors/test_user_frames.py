"""Tracebacks for users: their own frames, and once."""

from __future__ import annotations

import traceback
from types import FunctionType
from typing import Any

import pytest

from actors.events import shorten, to_tell


def of_module(function: Any, module: str) -> Any:
    """Return the function as if it were of that module."""
    return FunctionType(function.__code__, {**function.__globals__, "__name__": module}, function.__name__, None, function.__closure__)


def boom() -> None:
    raise ValueError("boom")


def failed(*callers: str, of: str = "shop", cause: Exception | None = None) -> Exception:
    """Return the error of a function of module `of`, called by functions of other modules."""
    call = of_module(boom, of)
    for module in callers:

        def outer(inner: Any = call) -> None:
            inner()

        call = of_module(outer, module)
        call.__defaults__ = outer.__defaults__
    with pytest.raises(ValueError, match="boom") as raised:
        call()
    raised.value.__traceback__ = raised.value.__traceback__.tb_next if raised.value.__traceback__ else None  # without the test's own
    raised.value.__cause__ = cause
    return raised.value


def names(error: BaseException) -> list[str]:
    return [str(frame.f_globals["__name__"]) for frame, _ in traceback.walk_tb(error.__traceback__)]


def test_an_error_is_told_once_with_the_frames_of_the_user() -> None:
    """The frames of the packages that call the user's code are left out."""
    error = failed("actors.actor", "asyncio")
    told = to_tell(error)
    assert told is not None
    assert [str(frame.f_globals["__name__"]) for frame, _ in traceback.walk_tb(told[2])] == ["shop"]
    assert to_tell(error) is None


def test_the_users_cause_is_told_in_place_of_the_error_that_wraps_it() -> None:
    """The first cause from the user's code is shown, and whatever it is wrapped in is told with it."""
    cause = failed("ks_actors.task")
    error = failed(of="ks_actors.task", cause=cause)
    told = to_tell(error)
    assert told is not None
    assert told[1] is cause
    assert to_tell(error) is None


def test_the_causes_of_an_error_that_is_told_have_the_frames_of_the_user() -> None:
    """The entry shows them, too."""
    cause = failed("asyncio")
    to_tell(failed("actors.actor", cause=cause))
    assert names(cause) == ["shop"]


@pytest.mark.parametrize("placed", [False, True])
def test_an_error_of_no_users_code_is_whole_unless_the_entry_names_the_place(placed: bool) -> None:
    """Without the user's frames all are shown, or none."""
    told = to_tell(failed("asyncio", of="ks_actors.log"), placed=placed)
    assert told is not None
    assert (told[2] is None) is placed


def test_at_the_end_of_a_program_the_users_frames_are_left() -> None:
    """In an error and its causes."""
    cause = failed("ks_actors.task")
    error = failed("asyncio", cause=cause)
    shorten(error)
    assert (names(error), names(cause)) == (["shop"], ["shop"])


def test_at_the_end_of_a_program_no_frame_is_left_of_an_error_that_was_told() -> None:
    """A log entry shows them already."""
    error = failed("asyncio")
    to_tell(error)
    shorten(error)
    assert names(error) == []


@pytest.mark.parametrize(("says_all", "left"), [(False, ["asyncio", "ks_actors.log"]), (True, [])])
def test_at_the_end_of_a_program_an_error_of_no_users_code_is_whole_unless_its_text_says_all(says_all: bool, left: list[str]) -> None:
    """Nothing else would tell its place."""
    error = failed("asyncio", of="ks_actors.log")
    shorten(error, says_all=says_all)
    assert names(error) == left
