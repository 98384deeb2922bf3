"""aiokafka behind one module: a newer one that lacks a part of it is told of at the start, by name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ks_actors._errors import ConfigError
from ks_actors.log.kafka._aiokafka import check_aiokafka

ROOT = Path(__file__).resolve().parents[4]
ADAPTER = ROOT / "ks_actors" / "log" / "kafka" / "_aiokafka.py"


def test_one_module_imports_aiokafka() -> None:
    """All others take its parts from there."""
    importing = re.compile(r"^\s*(?:from|import) aiokafka", re.MULTILINE)
    assert [path for path in (ROOT / "ks_actors").rglob("*.py") if importing.search(path.read_text(encoding="utf-8"))] == [ADAPTER]


def test_another_parameter_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the version, the part, and a version that fits."""
    check_aiokafka()
    check_aiokafka.cache_clear()
    monkeypatch.setattr("aiokafka.conn.collect_hosts", list)
    with pytest.raises(ConfigError, match=r"collect_hosts of aiokafka .* takes no hosts; install .*aiokafka>="):
        check_aiokafka()
    monkeypatch.delattr("aiokafka.conn.collect_hosts")
    with pytest.raises(ConfigError, match=r"has no aiokafka.conn.collect_hosts; install"):
        check_aiokafka()
    check_aiokafka.cache_clear()


@pytest.mark.parametrize("part", ["aiokafka.protocol.types:Schema", "aiokafka.conn:ScramAuthenticator"])
def test_a_missing_part_is_told_at_import(part: str) -> None:
    """It is a ConfigError, not an ImportError of some module in the depth, which reads as if aiokafka were not installed."""
    module, _, name = part.partition(":")
    script = f"""
import importlib
del importlib.import_module({module!r}).{name}
from ks_actors._errors import ConfigError
try:
    import ks_actors.log.kafka
except ConfigError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)  # noqa: S603 - our own
    assert re.match(rf"aiokafka [0-9.]+: cannot import name '{name}' .*; install", done.stdout), done.stderr


@pytest.mark.nightly
def test_the_newest_aiokafka_has_all_parts(tmp_path: Path) -> None:
    """Also a pre-release: a change is known before it reaches users."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--pre", "--upgrade", "--target", str(tmp_path), "aiokafka"]
    subprocess.run(install, check=True)  # noqa: S603 - our own
    check = "import aiokafka; from ks_actors.log.kafka._aiokafka import check_aiokafka; check_aiokafka(); print(aiokafka.__file__)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT)))}
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False, env=environment)  # noqa: S603 - our own
    assert done.stdout.startswith(str(tmp_path)), done.stderr
