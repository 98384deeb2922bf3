"""On Windows apps run with stores and logs in memory, and anything else is refused by name."""

from __future__ import annotations

import os
import subprocess
import sys

COUNTS = "{'to': 2, 'be': 2, 'or': 1, 'not': 1}"
REMEDY = "run the app in WSL 2 or a container; on Windows itself use stores in memory (default_dsl_store='in_memory') and the log memory://"


def on_windows(program: str) -> list[str]:
    """Run a module of this folder without the kernel in C; return the lines of its output."""
    command = [sys.executable, "-m", "tests.ks_actors.system.windows", f"tests.ks_actors.system.{program}"]
    environment = {**os.environ, "KS_ACTORS_WITHOUT_KERNEL": "1"}
    return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()  # noqa: S603 - our own


def test_each_module_can_be_imported_without_the_modules_of_posix() -> None:
    """No module of either package needs at its import a module or name that Windows does not have."""
    [imported] = on_windows("all_modules")
    assert int(imported) > 500


def test_windows_has_stores_and_logs_in_memory_and_names_all_that_it_has_not() -> None:
    """Driver, app and program work there, state directories are locked, Ctrl-C closes; what needs POSIX is a ConfigError."""
    driver, app, closed, locked, *refused = on_windows("words")
    assert [driver, app, closed] == [COUNTS, COUNTS, "NOT_RUNNING"]
    assert locked.startswith("StateLocked: ")
    features = ["a store or log on disk", "a store or log on disk", "Kafka", "--reload", "`ks-actors dev`"]
    assert refused == [f"ConfigError: {feature} needs Linux or macOS: {REMEDY}" for feature in features]
