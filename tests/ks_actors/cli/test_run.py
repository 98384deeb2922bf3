"""`ks-actors run`: its targets, its messages, and its exit codes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ks_actors import App, Batch, Consumed, StreamsBuilder, StreamsConfig
from ks_actors.cli._main import ks_actors
from ks_actors.cli._target import app_of, load
from ks_actors.kernel._native import WITHOUT
from ks_actors.log import NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.serdes import STRING
from ks_actors.topology import Topology
from tests.ks_actors.runtime.helpers import counting, echo

ROOT = Path(__file__).parents[3]
HERE = "tests.ks_actors.cli.test_run"
TOPOLOGY = counting()
APP = App(echo(), StreamsConfig(application_id="made"))
BUILDER = StreamsBuilder()
BUILDER.stream("in", Consumed(STRING, STRING)).to("out")
NUMBER = 3
BATCHES = 20


def topology() -> Topology:
    return counting()


def configured(config: StreamsConfig) -> App:
    return App(counting(), config.replace(client_id="configured"))


def a_number() -> int:
    return NUMBER


def invoke(*arguments: str) -> tuple[int, str]:
    """Return exit code and output of a command line that ends by itself."""
    result = CliRunner().invoke(ks_actors, arguments)
    return result.exit_code, result.output


async def fill(url: str, state: Path) -> None:
    """Make a log with input that an app has processed, and the app's state."""
    log = open_log(url)
    await log.start()
    await log.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
    producer = await log.producer(client_id="writer")
    for number in range(BATCHES):
        keys = [b"k%d" % (number * 100 + key) for key in range(100)]
        await producer.send([Outgoing(TopicPartition("in", 0), Batch(keys, [b"v"] * 100, [0] * 100))])
    await producer.close()
    async with App(counting(), StreamsConfig(application_id="counter", state_dir=state), log=log) as app:
        await app.wait_until_caught_up()
    await log.close()


def start(*arguments: str, code: str = "", process_group: int | None = None) -> subprocess.Popen[str]:
    """Start a command line as a process of its own."""
    command = [sys.executable, "-c", f"{code}\nfrom ks_actors.cli import main; main()", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=process_group)  # noqa: S603 - our own


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_app_runs_until_a_signal_and_its_restoring_is_shown(tmp_path: Path, number: signal.Signals) -> None:
    """Stderr has the guarantee, counts records to restore, and says that the app runs; a signal closes it, which is no error."""
    url = f"embedded://{tmp_path / 'log'}"
    asyncio.run(fill(url, tmp_path / "gone"))
    conf = [f"--conf={pair}" for pair in ("application.id=counter", f"state_dir={tmp_path / 'new'}", f"log={url}")]
    with start("run", f"{HERE}:topology", *conf) as running:
        assert running.stderr is not None
        told = []
        for line in running.stderr:
            # A busy machine may make it stand still, which it says, at any time.
            if "the event loop stood still" not in line:
                told.append(line.rstrip())
            if " is running with " in line:
                os.kill(running.pid, number)
        assert running.wait() == 0
    assert told[0] == "counter starts with at_least_once"
    assert told[1].startswith("restoring counts[0]: 2,000 records, at 2,000")
    assert told[2] == "restored counts[0]: 2,000 records"
    assert told[3:] == ["counter is running with at_least_once: 1 active task, 0 standbys, 1 worker"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_imports_of_an_app_ends_it_quietly(tmp_path: Path, number: signal.Signals) -> None:
    """While the module of the app is imported, and the packages before it: no traceback, and the exit code that shells tell of a signal."""
    (tmp_path / "slow.py").write_text(f"import os; os.kill(os.getpid(), {number.value}); print('went on')")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    # Programs that a shell has started in the background ignore SIGINT, and so would this one.
    (tmp_path / "sitecustomize.py").write_text("import signal; signal.signal(signal.SIGINT, signal.default_int_handler)")
    command = [sys.executable, "-m", "ks_actors.cli", "run", "slow:topology", "-c", "application_id=slow"]
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")
    # The first import of all others, which finds our module in the place of Python's own.
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Finder:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'ks_actors.app': os.kill(os.getpid(), {number.value})\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    ended = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert (ended.returncode, ended.stdout, ended.stderr) == (128 + number, "", "")


def test_a_signal_behind_the_end_of_an_app_is_quiet(tmp_path: Path) -> None:
    """The app is closed, and the event loop ends with its threads: a second Ctrl-C does not interrupt that."""
    url = f"embedded://{tmp_path / 'log'}"
    asyncio.run(fill(url, tmp_path / "gone"))
    conf = [f"--conf={pair}" for pair in ("application.id=counter", f"state_dir={tmp_path / 'new'}", f"log={url}")]
    # Both loops end their threads by this call.
    code = """
import asyncio, os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    from uvloop import Loop
except ImportError:
    from asyncio import SelectorEventLoop as Loop
from ks_actors.app import _program
class Interrupted(Loop):
    async def shutdown_default_executor(self, *given):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.01)
        await super().shutdown_default_executor(*given)
        print("ended")
_program.fastest_loop = lambda: Interrupted
"""
    with start("run", f"{HERE}:topology", "--log-level=info", *conf, code=code) as running:
        seek(running, ": RUNNING, was REBALANCING")
        running.send_signal(signal.SIGINT)
        said, told = running.communicate()
        assert "Traceback" not in told
        assert "second" not in told
        assert (running.returncode, said) == (0, "ended\n")


def test_an_app_that_ends_by_an_error_has_exit_code_1(tmp_path: Path) -> None:
    """The final error is one line."""
    code, output = invoke("run", f"{HERE}:TOPOLOGY", "-c", "application_id=lonely", "-c", "log=memory://", "-c", f"state_dir={tmp_path}", "-q")
    assert code == 1
    assert output.startswith("Error: lonely has ended: MissingSourceTopics: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing",), "'nothing' is not module:name, such as nothing:topology"),
        (("no.such:topology",), "module no.such does not exist: neither in "),
        ((f"{HERE}:nothing",), f"module {HERE} has no nothing"),
        ((f"{HERE}:NUMBER",), "is neither an App nor a Topology, nor a function that makes one: it is int"),
        ((f"{HERE}:a_number",), "is neither an App nor a Topology, nor a function that makes one: it is int"),
        ((f"{HERE}:TOPOLOGY", "-c", "application_id"), "--conf 'application_id' is not name=value"),
        ((f"{HERE}:TOPOLOGY", "-c", "poll_msec=3"), "poll_msec (keyword): is unknown; did you mean poll_ms?"),
        ((f"{HERE}:APP", "-c", "poll_ms=3"), "is an App, which already has its config"),
    ],
)
def test_a_wrong_command_line_has_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    """The message names the mistake."""
    code, output = invoke("run", *arguments)
    assert code == 2
    assert said in " ".join(output.split())


def test_a_module_that_cannot_be_imported_shows_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure inside of the user's module is not reported as a missing module; modules of the working directory are found."""
    (tmp_path / "needing.py").write_text("import nothing_like_this")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    with pytest.raises(ModuleNotFoundError, match="nothing_like_this"):
        load("needing:topology")


def test_targets_that_can_be_run(tmp_path: Path) -> None:
    """An app, a topology, a builder, a function that makes one, and one that takes the config; settings come from a file and from --conf."""
    file = tmp_path / "app.toml"
    file.write_text('application_id = "filed"\npoll_ms = 5\n')
    assert app_of(f"{HERE}:APP", (), None) is APP
    for target in ("TOPOLOGY", "BUILDER", "topology", "configured"):
        config: Any = app_of(f"{HERE}:{target}", ("poll.ms=7",), file).config
        assert (config.application_id, config.poll_ms) == ("filed", 7), target
        assert (config.client_id == "configured") == (target == "configured")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_one_line_names_the_package(missing: str) -> None:
    """The command is there without its packages, and says so."""
    with start("run", "--help", code=f"import sys; sys.modules[{missing!r}] = None") as running:
        _, errors = running.communicate()
        assert running.returncode == 1
    assert errors == f"ks-actors: the command line needs the package {missing}: pip install 'ks-actors[cli]'\n"


def test_help_and_version() -> None:
    """Each command says what it does."""
    assert "run " in invoke("--help")[1]
    code, output = invoke("run", "--help")
    assert code == 0
    assert "Exit codes: 0 closed by a signal" in output
    assert invoke("--version")[1].startswith("ks-actors, version ")


@pytest.mark.parametrize("without", ["", "import sys; sys.modules['click'] = None; "])
def test_the_version_says_that_the_kernel_is_missing(without: str) -> None:
    """With the reason, behind the number; the packages of the extra are not needed for that."""
    command = [sys.executable, "-c", f"{without}import ks_actors.cli; ks_actors.cli.main()", "--version"]
    told = subprocess.run(command, env={**os.environ, WITHOUT: "1"}, capture_output=True, text=True, check=True)  # noqa: S603 - its own code
    assert told.stdout.startswith("ks-actors, version ")
    assert told.stdout.endswith(", without its C kernel, which is slower: KS_ACTORS_WITHOUT_KERNEL=1 disables it\n")


def test_a_changed_source_starts_the_app_again(tmp_path: Path) -> None:
    """With `--reload` it closes as by a signal, and starts anew; a signal ends both."""
    url = f"embedded://{tmp_path / 'log'}"
    asyncio.run(fill(url, tmp_path / "gone"))
    watched = tmp_path / "source"
    watched.mkdir()
    conf = [f"--conf={pair}" for pair in ("application.id=counter", f"state_dir={tmp_path / 'new'}", f"log={url}")]
    with start("run", f"{HERE}:topology", "--reload", f"--reload-dir={watched}", "-q", "--log-level=info", *conf) as running:
        try:
            seek(running, ": RUNNING, was REBALANCING")
            (watched / "job.py").write_text("")
            assert seek(running, "changed: the app starts again").startswith(str(watched / "job.py"))
            seek(running, ": NOT_RUNNING, was PENDING_SHUTDOWN")
            seek(running, ": RUNNING, was REBALANCING")
        finally:
            running.terminate()
        seek(running, ": NOT_RUNNING, was PENDING_SHUTDOWN")
        assert running.wait() == 0


def test_ctrl_c_closes_a_reloading_app_cleanly(tmp_path: Path) -> None:
    """A terminal signals the whole process group; the app counts that as one signal, commits and closes."""
    url = f"embedded://{tmp_path / 'log'}"
    asyncio.run(fill(url, tmp_path / "gone"))
    conf = [f"--conf={pair}" for pair in ("application.id=counter", f"state_dir={tmp_path / 'new'}", f"log={url}")]
    # Programs that a shell has started in the background ignore SIGINT, and so would this one.
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = ("run", f"{HERE}:topology", "--reload", f"--reload-dir={tmp_path}", "-q", "--log-level=info", *conf)
    with start(*command, code=heeds, process_group=0) as running:
        try:
            seek(running, ": RUNNING, was REBALANCING")
        finally:
            os.killpg(running.pid, signal.SIGINT)
        _, told = running.communicate()
        assert ": NOT_RUNNING, was PENDING_SHUTDOWN" in told
        assert "without a clean close" not in told
        assert running.returncode == 0


@pytest.mark.extended
def test_an_app_that_has_failed_waits_for_a_change(tmp_path: Path) -> None:
    """With `--reload`: the error is told, and a signal ends the program with its exit code."""
    conf = [f"--conf={pair}" for pair in ("application.id=lonely", f"state_dir={tmp_path / 'new'}", "log=memory://")]
    with start("run", f"{HERE}:topology", "--reload", f"--reload-dir={tmp_path}", "-q", *conf) as running:
        try:
            assert "MissingSourceTopics" in seek(running, "Error: ")
            (tmp_path / "job.py").write_text("")
            seek(running, "changed: the app starts again")
            seek(running, "Error: ")
        finally:
            running.terminate()
        # 143: the signal came while the child was about to end.
        assert running.wait() in {1, 143}


def seek(running: subprocess.Popen[str], text: str) -> str:
    """Read stderr until a line has the text; return it."""
    assert running.stderr is not None
    told = []
    for line in running.stderr:
        told.append(line)
        if text in line:
            return line
    raise AssertionError(f"the program has ended: {told}")


@pytest.mark.parametrize("address", ["", "host", "host:", "70000", "0.0.0.0:-1", "1.5"])
def test_an_address_of_the_probes_that_makes_no_sense_is_refused(address: str) -> None:
    """With the form that it has to have, before anything is started."""
    result = CliRunner().invoke(ks_actors, ["run", "tests.ks_actors.cli.jobs:shop", "--probes", address])
    assert result.exit_code == 2
    assert "is not [HOST:]PORT, as in 9464 or 0.0.0.0:9464" in result.output
