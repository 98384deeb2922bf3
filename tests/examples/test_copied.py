"""The examples that people copy: each as a stranger takes it, who has its folder, an empty directory and the package."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.examples.test_examples import EXAMPLES
from tests.waiting import PATIENCE_S, until

ROOT = EXAMPLES.parent
PROGRAMS = {
    "enrichment": "enrichment.py",
    "fastapi_queries": "service.py",
    "fraud": "fraud.py",
    "history": "history.py",
    "kubernetes": "totals.py",
}
two_processes = pytest.mark.heavy("a run of pytest and one of the program, each with its imports")
README = (EXAMPLES / "README.md").read_text(encoding="utf-8")


def copied(name: str, to: Path) -> Path:
    """Copy the folder of an example, without what tests have left there."""
    return shutil.copytree(EXAMPLES / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))


def environment(**more: str) -> dict[str, str]:
    """Return the environment of a stranger: the commands of this Python, no settings, and warnings as errors."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KS_ACTORS_", "PYTEST_"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Plugins of this environment take longer to load than most tests to run.
    return kept | {"PATH": path, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} | more


def command_of(file: Path, word: str) -> str:
    """Return a command that the docstring of a file gives."""
    found = re.search(rf"^{word}: (.+?)(?:  \(.*)?$", file.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


def run(command: str, at: Path, within_s: float = PATIENCE_S) -> str:
    """Run a command of a docstring with all that it starts, and return its output."""
    with subprocess.Popen(  # noqa: S602 - commands of our own files
        command,
        shell=True,
        cwd=at,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, told = process.communicate(timeout=within_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, out[-3_000:] + told[-3_000:]
    return out


def pass_test(name: str, to: Path, *, options: str = "", within_s: float = PATIENCE_S) -> Path:
    """Pass the test of a copied example, and return the copy."""
    at = copied(name, to)
    (test,) = at.glob("test_*.py")
    assert re.search(r"^\d+ passed", run(f"{command_of(test, 'Run')} -q -p no:cacheprovider {options}", at, within_s), re.MULTILINE)
    return at


def test_ten_lines_are_a_whole_program() -> None:
    """It has ten lines of code, and prints the sums."""
    file = EXAMPLES / "ten_lines.py"
    code = file.read_text(encoding="utf-8").rpartition('"""')[2]
    assert len([line for line in code.splitlines() if line]) == 10
    assert run(command_of(file, "Run"), ROOT) == "[('ann', 4350), ('bob', 1200)]\n"


@two_processes
def test_fraud(tmp_path: Path) -> None:
    """Its test passes, and its demo has an alert and a dead letter."""
    at = pass_test("fraud", tmp_path)
    assert run(command_of(at / "fraud.py", "Run"), at).splitlines() == [
        "alert: card-7 Alert(payment=Payment(shop='jeweller', cents=99999), score=0.95)",
        """dead letter: b'card-8' b'{"shop":"closed","cents":5}\'""",
    ]


@pytest.mark.extended
@two_processes
def test_enrichment(tmp_path: Path) -> None:
    """Its test passes, and its demo has payments with and without customers."""
    at = pass_test("enrichment", tmp_path)
    assert sorted(run(command_of(at / "enrichment.py", "Run"), at).splitlines()) == [
        "c-1 cents=450 currency='EUR' name='Ann' country='NO'",
        "c-2 cents=1200 currency='EUR' name='Bob' country='IT'",
        "c-3 cents=70 currency='EUR' name=None country=None",
    ]


@pytest.mark.extended
@two_processes
def test_kubernetes(tmp_path: Path) -> None:
    """Its test passes, and its program runs without servers."""
    at = pass_test("kubernetes", tmp_path)
    assert run(command_of(at / "totals.py", "Run"), at) == "totals\tann\t450\n"


@pytest.mark.extended
@two_processes
async def test_fastapi_queries(tmp_path: Path) -> None:
    """Its test passes, and the service takes a payment over a real socket, and ends with Ctrl-C."""
    at = pass_test("fastapi_queries", tmp_path)
    command = command_of(at / "service.py", "Run").split()
    with subprocess.Popen(command, cwd=at, env=environment(PORT="0"), stderr=subprocess.PIPE, text=True) as process:  # noqa: ASYNC220, S603 - our own file
        assert process.stderr is not None
        line = next(line for line in process.stderr if "running on" in line)
        async with httpx.AsyncClient(base_url=line.split()[-5], timeout=PATIENCE_S) as client:
            assert (await client.post("/payments", json={"customer": "ann", "cents": 450})).status_code == httpx.codes.ACCEPTED

            async def counted() -> bool:
                return (await client.get("/totals/ann")).status_code == httpx.codes.OK

            await until(counted)
            assert (await client.get("/totals/ann")).json() == {"payments": 1, "cents": 450}
        process.send_signal(signal.SIGINT)
        assert "Application shutdown complete" in process.stderr.read()


@pytest.mark.nightly
@pytest.mark.heavy("pandas, Spark and backfills")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("master", ["", pytest.param("local[2]", marks=pytest.mark.spark)], ids=["here", "spark"])
def test_history(master: str, tmp_path: Path) -> None:
    """Its test passes, and its demo has the payments of two years and those of today, here and on Spark."""
    at = pass_test("history", tmp_path, options=f"-k {'spark' if master else 'local'}", within_s=400)
    lines = run(f"{command_of(at / 'history.py', 'Run')} {master}", at, within_s=400).splitlines()
    assert lines[:2] == ["1460 payments of history", "c-0: Total(payments=211, cents=76540)"]
    assert lines[-1] == "new: Total(payments=1, cents=1)"


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_short(name: str) -> None:
    """A program has 120 lines at most, and says how to run it here and on Kafka."""
    file = EXAMPLES / name / PROGRAMS[name]
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 120
    assert "KS_ACTORS_BOOTSTRAP_SERVERS=" in command_of(file, "On Kafka")


def test_readme_has_each_example_with_its_commands() -> None:
    """Each file and folder has one row, whose commands are those of its docstrings."""
    rows = {row[0]: row[1:] for row in re.findall(r"^\| \[`([^`]+)`\]\([^)]+\) \| (.+?) \| (.+?) \| (.+?) \|$", README, re.MULTILINE)}
    names = {path.name for path in EXAMPLES.iterdir() if path.name not in {"README.md", "__pycache__"}}
    assert set(rows) == names
    for name, program in PROGRAMS.items():
        (test,) = (EXAMPLES / name).glob("test_*.py")
        _, runs, tests = rows[name]
        assert runs == f"`{command_of(EXAMPLES / name / program, 'Run')}`".replace("|", "\\|")
        assert tests == f"`{command_of(test, 'Run')}`"
    for file in EXAMPLES.glob("*.py"):
        assert rows[file.name][1] == f"`{command_of(file, 'Run')}`"


def test_the_page_shows_whole_parts_of_programs() -> None:
    """An excerpt begins with a class, a function or a decorator, and ends where that ends."""
    shown = re.findall(r'^--8<-- "(examples/[^":]+\.py):(\d+):(\d+)"$', (ROOT / "docs" / "examples.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(shown) >= len(PROGRAMS)
    for name, first, last in shown:
        lines = ["", *(ROOT / name).read_text(encoding="utf-8").splitlines(), ""]
        part = lines[int(first) : int(last) + 1]
        indent = re.match(" *", part[0])
        assert indent is not None
        assert re.match(r"(?:async )?def |class |@", part[0].lstrip()), part[0]
        assert all(line.startswith((f"{indent[0]} ", f"{indent[0]}def", f"{indent[0]}async def")) for line in part[1:] if line), part
        assert (lines[int(first) - 1], lines[int(last) + 1]) == ("", "")
        assert lines[int(last)]
