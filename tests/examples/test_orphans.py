"""A demo that is killed leaves no process behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from examples.flights.orphans import ended_with_this

ROOT = Path(__file__).parents[2]
STARTER = """
import subprocess, time
from examples.flights.orphans import ended_with_this
with subprocess.Popen(["sleep", "600"]) as child, ended_with_this(child.pid):
    print("started", flush=True)
    time.sleep(600)
"""


def test_sigkill_of_the_starter_ends_its_process() -> None:
    """The end of the block does not."""
    # The process has the output, too: it ends when both have ended.
    with subprocess.Popen([sys.executable, "-c", STARTER], cwd=ROOT, stdout=subprocess.PIPE) as starter:  # noqa: S603 - our own
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"started\n"
        starter.kill()
        assert starter.stdout.read() == b""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:  # noqa: S607 - as the shell finds it
        with ended_with_this(child.pid):
            pass
        child.communicate()
    assert child.returncode == 0
