"""`ks-actors dev` in a terminal: its prompt, and restarts after changes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[4]
APP = """
from ks_actors import Consumed, Produced, StreamsBuilder
from ks_actors.serdes import STRING

def change(value):
    return value.upper()

builder = StreamsBuilder()
builder.stream("in", Consumed(STRING, STRING)).map_values(change).to("out", Produced(STRING, STRING))
"""
# Ctrl-C is a signal only from the terminal that controls a session; a program in the background of a shell would ignore it.
IN_TERMINAL = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Screen:
    """A terminal with the command in it."""

    def __init__(self, directory: Path) -> None:
        self.source = directory / "upper.py"
        self.source.write_text(APP)
        (directory / "temporary").mkdir()
        self.temporary = directory / "temporary"
        self._control, inside = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR"}}
        environment |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", "TMPDIR": str(self.temporary)}
        command = [sys.executable, "-c", IN_TERMINAL, "-m", "ks_actors.cli", "dev", "upper:builder"]
        self.process = subprocess.Popen(  # noqa: S603 - our own
            command, cwd=directory, stdin=inside, stdout=inside, stderr=inside, env=environment, start_new_session=True
        )
        os.close(inside)
        self._left = ""

    def type(self, text: str) -> None:
        os.write(self._control, text.encode())

    def until(self, text: str) -> str:
        """Return all that is shown until a text."""
        deadline = monotonic() + PATIENCE_S
        while text not in self._left:
            ready, _, _ = select.select([self._control], [], [], deadline - monotonic())
            assert ready, f"{text!r} is not shown: {self._left}"
            self._left += os.read(self._control, 65_536).decode()
        shown, _, self._left = self._left.partition(text)
        return shown

    def change(self, old: str, new: str) -> None:
        self.source.write_text(self.source.read_text().replace(old, new))

    def ended(self) -> int:
        """Return the exit code, with nothing left behind."""
        code = self.process.wait(PATIENCE_S)
        assert list(self.temporary.iterdir()) == []
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._control)


@pytest.fixture
def screen(tmp_path: Path) -> Iterator[Screen]:
    """Return a terminal in which the app runs."""
    found = Screen(tmp_path)
    try:
        assert "the page is at http://127.0.0.1:" in found.until("it reads in and writes out; try help")
        yield found
    finally:
        found.close()


@pytest.mark.heavy("starts four processes, one after the other")
def test_the_app_starts_again_with_each_change_and_the_log_stays(screen: Screen) -> None:
    """A failed app waits for a change: records that were not processed are processed then. `quit` ends all."""
    screen.type("send in k=one\n")
    screen.until("\x1b[36mout\x1b[0m\tk\tONE")
    screen.type("send in k=tw")  # not sent yet: the text stays at the prompt
    screen.until("send in k=tw")
    screen.change("value.upper()", "value.title() + 1")
    screen.until("upper.py changed: the app starts again")
    screen.until("try help\r\n> send in k=tw")
    screen.type("o\n")
    assert "value.title() + 1" in screen.until("TypeError: ")
    screen.until("the app has ended: it starts again when a source changes")
    screen.type("send in k=three\n")
    screen.until("the app does not run: change a source, or quit")
    screen.change(" + 1", "")
    screen.until("\x1b[36mout\x1b[0m\tk\tTwo")
    screen.type("quit\n")
    assert screen.ended() == 0


@pytest.mark.extended
@pytest.mark.heavy("starts two processes")
@pytest.mark.parametrize("typed", ["\x04", "partial\x03"], ids=["end", "interrupt"])
def test_ctrl_c_and_ctrl_d_close_the_app_cleanly(screen: Screen, typed: str) -> None:
    """Each at the prompt, with exit code 0."""
    screen.type(typed)
    assert screen.ended() == 0


@pytest.mark.extended
@pytest.mark.heavy("starts three processes")
def test_an_app_that_blocks_is_killed_after_a_change(screen: Screen) -> None:
    """As one in an endless loop would; its record is processed by the next one."""
    screen.change("return value.upper()", "print('blocked', flush=True); import threading; threading.Event().wait()")
    screen.until("changed: the app starts again")
    screen.until("try help")
    screen.type("send in k=one\n")
    screen.until("blocked\r\n")
    screen.change("threading.Event().wait()", "return value")
    screen.until("the app did not end within 10 s: it is killed")
    screen.until("\x1b[36mout\x1b[0m\tk\tone")
    screen.type("quit\n")
    assert screen.ended() == 0
