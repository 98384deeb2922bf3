"""The report of a start: a healthy one is told by a line, and begins with no warning."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from math import inf
from pathlib import Path

import pytest

from ks_actors import ProcessingGuarantee
from ks_actors.app import _start_log
from ks_actors.app._start_log import StartReport

PROGRAM = """
import logging, os, signal, sys
from ks_actors import App, Consumed, Produced, StreamsBuilder, StreamsConfig
from ks_actors.serdes import STRING

# An import or a connect of the library, which holds the event loop.
slow = {"__name__": "ks_actors.slow"}
exec("import time\\nclass Slow:\\n  async def __aenter__(self): time.sleep(0.4)\\n  async def __aexit__(self, *error): pass", slow)
CONFIGURED
builder = StreamsBuilder()
builder.stream("in", Consumed(STRING, STRING)).to("out", Produced(STRING, STRING))
config = StreamsConfig(application_id="first", log="memory://", state_dir=sys.argv[1])
app = App(builder.build(), config, topics={"in": 2, "out": 1}, services=[slow["Slow"]()])
note_running = app._start_report.note_running
app._start_report.note_running = lambda *told: (note_running(*told), os.kill(os.getpid(), signal.SIGTERM))
app.main()
"""


@pytest.mark.parametrize(
    ("configured", "told"),
    [
        ("", ["first is running with at_least_once: 2 active tasks, 0 standbys, 1 worker"]),
        ("logging.basicConfig(level='WARNING')", []),
    ],
)
def test_a_healthy_start_begins_with_no_warning_and_says_that_it_runs(tmp_path: Path, configured: str, told: list[str]) -> None:
    """A program without logging has one line on stderr, with logging its log has the state; a stall of the start is told by neither."""
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM).replace("CONFIGURED", configured), str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)  # noqa: S603 - our own program
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (0, "", told)


def test_stalls_of_a_start_are_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the app runs none is, then those of a second for 10 s, then all."""
    now = 100.0
    monkeypatch.setattr(_start_log, "monotonic", lambda: now)
    report = StartReport("app", ProcessingGuarantee.AT_LEAST_ONCE)
    assert report.least_stall() == inf
    report.note_running((), 1)
    assert report.least_stall() == 1.0
    now += 11
    assert report.least_stall() == 0.0
