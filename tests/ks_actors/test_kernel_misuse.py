"""Acting Python objects and wrong arguments make errors, and never foreign memory or an error of another call."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from ks_actors import Window, Windowed
from ks_actors._native import kernel

needs_kernel = pytest.mark.skipif(kernel is None, reason="the kernel was not built")


@needs_kernel
def test_keys_of_windows_have_the_hash_of_equal_keys() -> None:
    """They are found in a dict, on each Python: from 3.14 on tuples keep their hash."""
    made = kernel.windowed(Windowed, ["k"], [Window(0, 10)])
    assert made == [Windowed("k", Window(0, 10))]
    assert hash(made[0]) == hash(Windowed("k", Window(0, 10)))
    assert {made[0]: 1}[Windowed("k", Window(0, 10))] == 1


@needs_kernel
def test_lists_that_change_meanwhile_are_an_error() -> None:
    """An `__index__` that clears the lists is not read behind their ends."""
    keys: list[bytes] = [b"a", b"b"]
    starts: list[Any] = []

    class Evil:
        def __index__(self) -> int:
            keys.clear()
            starts.clear()
            return 1

    starts += [Evil(), 2]
    with pytest.raises((ValueError, TypeError)):
        kernel.window_keys(keys, starts, None)


@needs_kernel
@pytest.mark.parametrize("track", [object(), 0, [], "x"])
def test_what_is_no_dict_is_left_alone(track: Any) -> None:
    """`expire_windows` deletes nothing of it."""
    tracks = {1: track}
    kernel.expire_windows(tracks, [1], 5)
    assert tracks == {1: track}


@needs_kernel
@pytest.mark.parametrize("header", [4097, 2**63 - 1])
def test_a_header_that_is_too_long_is_an_error(header: int) -> None:
    """No memory is taken for it, and none is written."""
    with pytest.raises(ValueError, match="4096 bytes at most"):
        kernel.write_records([b"k"], [b"v"], [0], None, 0, 1 << 20, header)


@needs_kernel
def test_an_int_that_acts_runs_with_no_error_set() -> None:
    """The first argument that is none is the error, not that of the call that an `__index__` makes behind it."""

    class Acting:
        def __index__(self) -> int:
            return len("x")

    with pytest.raises(OverflowError):
        kernel.read_records(b"", 0, 2**70, Acting(), Acting(), 0, 0)


@pytest.mark.parametrize(("value", "there"), [("1", False), ("0", kernel is not None), ("", kernel is not None)])
def test_the_environment_leaves_it_out(value: str, there: bool) -> None:
    """KS_ACTORS_WITHOUT_KERNEL=1, when the package is imported."""
    code = "from ks_actors._native import kernel; print(kernel is not None)"
    run = subprocess.run(  # noqa: S603 - its own interpreter
        [sys.executable, "-c", code], env={**os.environ, "KS_ACTORS_WITHOUT_KERNEL": value}, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == str(there)
