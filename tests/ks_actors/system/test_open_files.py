"""The number of files that an app may open."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from ks_actors import StateError, StateLocked
from ks_actors.state.disk._rocksdb_errors import refuse

PREAMBLE = """
    import asyncio, json, resource, sys
    from ks_actors import App, StateError, StateLocked, StreamsConfig
    from ks_actors.log import NewTopic
    from ks_actors.log.embedded import EmbeddedLog
    from tests.ks_actors.runtime.helpers import counting

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100 if "hard" in sys.argv else hard))
"""
FAILING = """
    async def main():
        async with EmbeddedLog() as log:
            await log.create_topics([NewTopic("in", 40), NewTopic("out", 1)])
            config = StreamsConfig.of({"application_id": "app", "state_dir": sys.argv[1]})
            try:
                async with App(counting("rocksdb"), config, log=log):
                    pass
            except StateError as error:
                print(json.dumps([type(error).__name__, str(error)]))

    asyncio.run(main())
"""
RAISED = """
    class Seen(Exception):
        pass

    class Watched(App):
        async def run(self):
            print(json.dumps(resource.getrlimit(resource.RLIMIT_NOFILE)))

    config = StreamsConfig.of({"application_id": "app", "state_dir": sys.argv[1]})
    Watched(counting(), config, log=EmbeddedLog()).main()
"""


def said(program: str, *arguments: str) -> list[object]:
    """Run a program in a process of its own, as the limit is the process'; return its output."""
    command = [sys.executable, "-c", textwrap.dedent(PREAMBLE) + textwrap.dedent(program), *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)  # noqa: S603 - our own program
    found: list[object] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_main_raises_the_soft_limit(tmp_path: Path) -> None:
    """App.main raises the soft limit of open files to the hard one."""
    soft, hard = said(RAISED, str(tmp_path))
    assert soft == hard != 100


def test_an_app_with_too_many_open_files_says_so(tmp_path: Path) -> None:
    """A state that cannot be opened for too many open files is a StateError that names task, directory, and the remedy."""
    kind, text = said(FAILING, str(tmp_path), "hard")
    assert kind == "StateError"
    assert str(text).startswith("task 0_")
    assert "reached its limit of open files" in str(text)
    assert "ulimit -n" in str(text)


def test_a_lock_that_cannot_be_opened_is_not_taken() -> None:
    """Too many open files are not taken for a database that another process has locked."""
    with pytest.raises(StateError, match="reached its limit of open") as raised:
        refuse(OSError("IO error: While lock file: /state/0_0/rocksdb/LOCK: Too many open files"), "task 0_0: the state in /state/0_0")
    assert not isinstance(raised.value, StateLocked)
