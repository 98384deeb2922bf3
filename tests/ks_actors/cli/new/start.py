"""The pages of Start: their blocks, and a terminal that runs them."""

from __future__ import annotations

import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Self

ROOT = Path(__file__).parents[4]
PAGES = ("start-first-app.md", "start-kafka.md", "start-fastapi.md", "start-test.md")
FENCE = re.compile(r'^```(?P<kind>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.MULTILINE | re.DOTALL)
DEADLINE_S = 300
"""The longest that a command may take, on any machine."""


@dataclass(frozen=True)
class Block:
    """A block of a page: commands (`sh`), a file with its name as title, or the last lines of a command's output (`text`)."""

    kind: str
    title: str | None
    text: str

    def commands(self) -> list[str]:
        """Return the commands: lines that are neither input of a command nor comments."""
        without_input = re.sub(r"<<(\w+)\n.*?^\1$", "", self.text, flags=re.MULTILINE | re.DOTALL)
        return [each for line in without_input.splitlines() if line and not line.startswith("#") for each in re.split(r"&&|;", line)]


def blocks_of(page: str) -> list[Block]:
    """Return the blocks of a page, in order."""
    found = [Block(**each.groupdict()) for each in FENCE.finditer((ROOT / "docs" / page).read_text(encoding="utf-8"))]
    assert all(each.kind in {"sh", "text"} or each.title for each in found), page
    return found


class Terminal:
    """A shell in an empty folder, with the checkout beside it as `ks-actors`."""

    def __init__(self, directory: Path) -> None:
        self.folder: Path = directory / "shop"
        self.folder.mkdir()
        (directory / "ks-actors").symlink_to(ROOT)
        (directory / "bin").mkdir()
        (directory / "bin" / "python3").symlink_to(sys.executable)
        self.seen: list[str] = []
        self._behind = False
        self._lines: queue.Queue[str | None] = queue.Queue()
        # Compiling the kernel, and bytecode of all packages, would take most of the time.
        quick = {"PIP_NO_COMPILE": "1", "KS_ACTORS_WITHOUT_KERNEL": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        self.environment: dict[str, str] = os.environ | quick | {"PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}
        # Variables of the `make` that runs the tests are not for one that a reader of the pages runs.
        for name in ("PYTHONPATH", "MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "PYTHON", "VENV"):
            self.environment.pop(name, None)
        self._shell = subprocess.Popen(
            ["bash", "-e"],  # noqa: S607 - the shell of the machine
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # apart, as a service may log in the middle of another program's line
            text=True,
            start_new_session=True,
        )
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in (self._shell.stdout, self._shell.stderr)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)  # also what it has left in the background
        for reader in self._readers:
            reader.join()
        self._shell.communicate()

    def run(self, block: Block, *, but: dict[str, str] | None = None) -> None:
        """Run commands, or write a file, or wait for output; with the texts of `but` replaced."""
        text = block.text
        for shown, real in (but or {}).items():
            text = text.replace(shown, real)
        if block.kind == "sh":
            self.seen.clear()
            self._write(f"{text}echo; echo THE END OF A BLOCK\n")
            self._until(["THE END OF A BLOCK"], DEADLINE_S)
            self._behind = text.endswith("&\n")
        elif block.kind == "text":
            self._until(text.splitlines(), DEADLINE_S if self._behind else 0)
        else:
            assert block.title is not None
            (self.folder / block.title).write_text(text, encoding="utf-8")

    def _write(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line.rstrip("\n"))
        if stream is self._shell.stdout:
            self._lines.put(None)

    def _until(self, expected: list[str], within_s: float) -> None:
        """Return when each line has come since the last commands, in any order; `…` stands for any text."""
        patterns = [re.compile(".*".join(map(re.escape, line.split("…")))) for line in expected]
        end = monotonic() + within_s
        while not all(any(pattern.fullmatch(line) for line in self.seen) for pattern in patterns):
            try:
                line = self._lines.get(timeout=max(0.0, end - monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, "\n".join(["these lines did not come:", *expected, "but these:", *self.seen])
            self.seen.append(line)


def link(name: Path, to: Path) -> str:
    """Make a program that stands for a Python: its `-m venv` gives the environment of a terminal, and return its path."""
    name.write_text(f"#!/bin/sh\nexec ln -s {shlex.quote(str(to))} .venv\n", encoding="utf-8")
    name.chmod(0o755)
    return str(name)
