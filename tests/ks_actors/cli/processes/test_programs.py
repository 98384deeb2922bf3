"""`ks-actors run --processes` as a program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors import ConfigError
from ks_actors.app import _members
from ks_actors.app._members import processes_of, tell_end
from ks_actors.cli._main import ks_actors
from ks_actors.system import become_supervisor

TARGET = "tests.ks_actors.cli.test_run:topology"


def test_a_log_of_one_process_is_refused(tmp_path: Path) -> None:
    """The member says so, whatever made the log; the supervisor starts it no second time."""
    words = ["run", TARGET, "-c", "application_id=alone", "-c", "log=memory://", "-c", f"state_dir={tmp_path}", "--processes", "1"]
    done = subprocess.run([sys.executable, "-m", "ks_actors", *words], capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert done.returncode == 1
    assert "[1] alone starts with at_least_once" in done.stderr
    assert "belongs to one process at a time: run members on a Kafka" in done.stderr
    assert "no member runs, so all are closed" in done.stderr
    assert done.stderr.count("[1] alone starts") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--processes", "0"), "processes is '0': give a number from 1 to 256, 'auto', or numbers by query"),
        (("--processes", "some"), "processes is 'some': give a number"),
        (("--processes", "2", "--reload"), "--processes and --reload exclude each other"),
    ],
)
def test_a_wrong_command_line_has_exit_code_2(words: tuple[str, ...], said: str) -> None:
    """Before anything starts."""
    result = CliRunner().invoke(ks_actors, ["run", TARGET, *words])
    assert result.exit_code == 2
    assert said in " ".join(result.output.replace("│", " ").split())


@pytest.mark.parametrize(("text", "most"), [("max 100000\n", 4), ("250000 100000\n", 2), ("50000 100000\n", 1), ("1000000 100000\n", 4)])
def test_auto_is_the_number_of_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, most: int) -> None:
    """Those that this process may use: a container may have less of them, and parts of one count as none."""
    quota = tmp_path / "cpu.max"
    quota.write_text(text)
    monkeypatch.setattr(_members, "_CPU_QUOTA", quota)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)), raising=False)
    assert processes_of("auto") == (most, "")
    assert processes_of("3") == processes_of(3) == (3, "")
    with pytest.raises(ConfigError):
        processes_of(0)


def test_the_error_of_a_member_fits_in_a_line_of_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor reads at most 64 KiB a line, so a longer text is cut."""
    said: dict[str, Any] = {}
    monkeypatch.setattr(_members, "current_member", lambda: SimpleNamespace(say=lambda _, **facts: said.update(facts)))
    tell_end(ValueError("\U0001f600" * 100_000))
    assert len(json.dumps(said)) < 2**16
    assert said["error"].startswith("ValueError: ")


def test_sighup_before_the_supervisor_heeds_signals_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ignored through the exec: no member has begun, so each starts with the newest source."""
    heeded: list[Any] = []
    become: Callable[[dict[str, Any]], object] = become_supervisor
    before = signal.getsignal(signal.SIGHUP)
    monkeypatch.setattr("os.execv", lambda *_: heeded.append(signal.getsignal(signal.SIGHUP)))
    try:
        become({})
    finally:
        signal.signal(signal.SIGHUP, before)
    assert heeded == [signal.SIG_IGN]
