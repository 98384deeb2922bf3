"""Progress and notes on stderr, which may be lost."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.cli._bars import Bars, Following
from ks_actors.cli._output import drop_unwritten, progress_console, tell
from ks_actors.log import TopicPartition
from ks_actors.runtime import InstanceState
from tests.ks_actors.cli.test_run import HERE, ROOT, fill
from tests.ks_actors.runtime.helpers import counting


def reporting(config: StreamsConfig) -> App:
    """Return an app that prints its states on stdout."""

    def report(new: InstanceState, _: InstanceState) -> None:
        print(new.name, flush=True)  # noqa: T201 - the test reads it

    return App(counting(), config, on_state=report)


@pytest.mark.parametrize("lost", ["broken pipe", "full disk"])
def test_an_app_runs_on_when_its_stderr_cannot_be_written(tmp_path: Path, lost: str) -> None:
    """Progress is lost; the app runs until a signal and closes cleanly with exit code 0, and stdout stays as it is."""
    url = f"embedded://{tmp_path / 'log'}"
    asyncio.run(fill(url, tmp_path / "gone"))
    if lost == "broken pipe":
        read, write = os.pipe()
        os.close(read)
    else:
        write = os.open("/dev/full", os.O_WRONLY)
    settings = ("application.id=counter", f"state_dir={tmp_path / 'new'}", f"log={url}")
    target = f"{HERE.replace('test_run', 'test_stderr')}:reporting"
    command = [sys.executable, "-m", "ks_actors.cli", "run", target, "--page=0", *(f"-c{pair}" for pair in settings)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=write, text=True) as running:  # noqa: S603 - our own
        os.close(write)
        assert running.stdout is not None
        states = []
        for line in running.stdout:
            states.append(line.strip())
            if states[-1] == "RUNNING":
                running.send_signal(signal.SIGTERM)
        assert states[-2:] == ["PENDING_SHUTDOWN", "NOT_RUNNING"]
        assert running.wait() == 0


class Gone(io.StringIO):
    """A terminal that has gone."""

    encoding = "utf-8"

    def write(self, text: str) -> int:
        raise OSError(f"no terminal for {text}")

    def flush(self) -> None:
        raise BrokenPipeError

    def isatty(self) -> bool:
        return True


def test_a_terminal_that_goes_ends_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bars, notes and the end of the process raise no error."""
    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setenv("TERM", "xterm")
    partition = TopicPartition("app-counts-changelog", 0)
    with Bars(progress_console()) as bars:
        following = Following(bars)
        following.on_update_start(partition, "counts", 0)
        assert bars._live is not None
        bars._live.refresh()
        bars.end(partition, "done")
    tell("a note")
    drop_unwritten()


def test_a_process_without_stderr_has_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has no stderr where its parent has closed it."""
    monkeypatch.setattr(sys, "stderr", None)
    with Bars(progress_console()) as bars:
        bars.end(TopicPartition("app-counts-changelog", 0), "done")
    tell("a note")
    drop_unwritten()
