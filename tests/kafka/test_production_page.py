"""The page about production: its program and its commands, on a real Kafka."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from ks_actors.cli._main import ks_actors
from tests.kafka.broker import Broker
from tests.ks_actors.log.helpers import group_name
from tests.waiting import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "production.md"
PROGRAM = re.compile(r"^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_first_program_runs_and_is_probed(own_broker: Broker, tmp_path: Path) -> None:
    """Its topics are created, it is checked and run as the page says, and it adds up what was sent."""
    program = PROGRAM.search(PAGE.read_text(encoding="utf-8"))
    assert program is not None
    (tmp_path / "totals.py").write_text(program["code"], encoding="utf-8")
    settings = {
        "APPLICATION_ID": f"totals-{group_name()}",
        "BOOTSTRAP_SERVERS": own_broker.bootstrap,
        "STATE_DIR": str(tmp_path / "state"),
        "COMMIT_INTERVAL_MS": "100",
    }
    environment = os.environ | {f"KS_ACTORS_{name}": value for name, value in settings.items()}

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "ks_actors.cli", *arguments]

    def run(*arguments: str) -> str:
        done = subprocess.run(  # noqa: S603 - our own
            command(*arguments), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(*arguments: str) -> str:
        """Run a command that needs no program, in this process."""
        done = CliRunner().invoke(ks_actors, arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    server = f"--bootstrap-servers={own_broker.bootstrap}"
    run("topics", "create", "totals:topology", "--topic", "payments=4", "--topic", "totals=4")
    assert "failed" not in run("check", "totals:topology")
    with subprocess.Popen(  # noqa: S603 - our own
        command("run", "totals:topology", "--probes", "0", "-q"), cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        told = process.stderr.readline()
        assert told.startswith("the probes are at "), told + process.stderr.read()
        address = told.split()[4].removesuffix("health,")
        assert json.loads(urlopen(f"{address}health").read())["live"]  # noqa: S310 - our own address
        for paid in ("9.5", "0.25"):
            call("send", "payments", "--key", "ann", "--value", paid, "--value-format", "double", server)
        lines = call("tail", "totals", "--from", "begin", "--max", "1", "--value-format", "double", "--json", server)
        assert json.loads(lines.splitlines()[0])["key"] == "ann"
        assert b"process" in urlopen(f"{address}metrics").read()  # noqa: S310 - likewise
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{address}api/stores")  # noqa: S310 - likewise
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    values = [
        json.loads(line)["value"]
        for line in call("tail", "totals", "--from", "begin", "--until-end", "--value-format", "double", "--json", server).splitlines()
    ]
    assert values[-1] == 9.75
