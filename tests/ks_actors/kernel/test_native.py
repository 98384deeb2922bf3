"""An app without the kernel says so, and why."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from ks_actors.kernel import _native
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.runtime.helpers import echo


async def _nothing(_: AppHarness) -> None:
    """Start an app, and close it."""


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if "C kernel" in each.getMessage()]


def test_one_warning_says_that_the_kernel_is_missing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """In a process: when its first app starts, with the reason and the remedy."""
    monkeypatch.delenv(_native.WITHOUT, raising=False)
    for name, value in {"HAS_KERNEL": False, "missing": "found none", "_warned": False}.items():
        monkeypatch.setattr(_native, name, value)
    with caplog.at_level(logging.WARNING, "ks_actors"):
        for _ in range(2):
            run_app(_nothing, echo(), topics={"in": 1, "out": 1})
    (warning,) = _warnings(caplog)
    assert warning.startswith("running without the C kernel, which takes more CPU time: found none; install a C compiler")


@pytest.mark.parametrize("leave_out", [True, False])
def test_nothing_is_said_when_it_is_there_or_left_out_on_purpose(
    leave_out: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The switch in the environment is an answer to the warning."""
    monkeypatch.setattr(_native, "_warned", False)
    monkeypatch.setattr(_native, "HAS_KERNEL", not leave_out)
    if leave_out:
        monkeypatch.setenv(_native.WITHOUT, "1")
    with caplog.at_level(logging.DEBUG, "ks_actors"):
        run_app(_nothing, echo(), topics={"in": 1, "out": 1})
    assert not _warnings(caplog)


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "it was not built when ks-actors was installed"), (b"no library", "it cannot be loaded: .*some_kernel.so")]
)
def test_the_reason_tells_a_kernel_that_was_not_built_from_one_that_cannot_be_loaded(
    content: bytes | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a wheel for another system: the error of the loader is named."""
    if content is not None:
        (tmp_path / "some_kernel.so").write_bytes(content)
    monkeypatch.delenv(_native.WITHOUT, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(_native, "_NAME", "some_kernel")
    kernel, missing = _native._load()
    assert kernel is None
    assert re.match(reason, missing), missing
