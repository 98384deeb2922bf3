"""Progress and notes on stderr, which may be lost; results on stdout, which may not."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, StreamsConfig
from ks_actors.cli._bars import Bars, Following
from ks_actors.cli._output import drop_unwritten, progress_console, tell
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.records import Batch
from ks_actors.runtime import InstanceState
from tests.ks_actors.cli.test_operations import SHOP
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


COMMANDS = [
    ("--version",),
    ("--help",),
    ("version",),
    ("describe", SHOP),
    ("describe", SHOP, "--json"),
    ("topics", "plan", SHOP, "-clog=memory://", "-capplication.id=a", "-cdefault_key_serde=ks_actors.serdes.STRING"),
    ("tail", "t", "--until-end", "--from=begin", "-clog={log}"),
]


def printed(command: tuple[str, ...], tmp_path: Path, *, stdout: Any, preexec: Callable[[], None] | None = None, **env: str) -> Any:
    words = [word.format(log=f"embedded://{tmp_path / 'log'}") for word in command]
    return subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "ks_actors.cli", *words],
        cwd=ROOT,
        env={**os.environ, **env},
        stdout=stdout,
        stderr=subprocess.PIPE,
        preexec_fn=preexec,
        check=False,
    )


async def written(directory: Path, *values: str) -> None:
    async with EmbeddedLog(directory) as log:
        await log.create_topics([NewTopic("t", 1)])
        producer = await log.producer(client_id="w")
        encoded = [value.encode() for value in values]
        await producer.send([Outgoing(TopicPartition("t", 0), Batch([None] * len(encoded), encoded, [0] * len(encoded)))])
        await producer.close()


@pytest.mark.parametrize("command", COMMANDS, ids=lambda each: each[0])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_results_that_cannot_be_written_are_one_line_and_code_1(tmp_path: Path, command: tuple[str, ...], unbuffered: str) -> None:
    """Those of any command, on a full disk."""
    asyncio.run(written(tmp_path / "log", "v"))
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        done = printed(command, tmp_path, stdout=full, PYTHONUNBUFFERED=unbuffered)
    assert done.returncode == 1
    assert done.stderr.decode() == "Error: stdout cannot be written: No space left on device\n"


def test_a_command_without_stdout_is_one_line_and_code_1(tmp_path: Path) -> None:
    """Python writes nothing to a closed one, and raises no error."""
    done = printed(("version",), tmp_path, stdout=None, preexec=lambda: os.close(1))
    assert done.returncode == 1
    assert done.stderr.decode() == "ks-actors: stdout is closed: redirect it to a file, or to /dev/null\n"


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
def test_characters_that_the_output_does_not_have_are_escaped(tmp_path: Path, encoding: str) -> None:
    """In text by Python's escapes, and JSON stays JSON."""
    value = "é€\N{GRINNING FACE}"
    asyncio.run(written(tmp_path / "log", value))
    text = printed(COMMANDS[-1], tmp_path, stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert text.returncode == 0, text.stderr
    assert value.encode(encoding, errors="backslashreplace") in text.stdout
    found = printed((*COMMANDS[-1], "--json"), tmp_path, stdout=subprocess.PIPE, PYTHONIOENCODING=encoding)
    assert json.loads(found.stdout.decode(encoding))["value"] == value
