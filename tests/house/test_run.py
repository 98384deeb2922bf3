"""The jobs of `make test`, `.ci/run` and `make nightly`, and their budgets."""

from __future__ import annotations

import datetime as dt
import os
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.budget import folder_of, over
from tests.cases import few_of, part_of

ROOT = Path(__file__).parents[2]
IDS = [f"tests/test_a.py::test_{name}[{case}]" for name in "abc" for case in range(40)]


@pytest.fixture(scope="module")
def run() -> Any:
    """Load the script, whose names are its own."""
    return SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "run")))


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_each_case_runs_once_within_ten_commits() -> None:
    """The parts of ten commits in a row have all further cases between them, none twice; the first case of each test runs in all."""
    parts = [part_of(IDS, f"{commit % 10}/10") for commit in range(1383, 1393)]
    assert set().union(*parts) == set(IDS)
    assert sum(map(len, parts)) == len(IDS)
    assert few_of(IDS, 1) == {f"tests/test_a.py::test_{name}[0]" for name in "abc"}


@pytest.mark.parametrize("part", ["10/10", "-1/10", "1/0"])
def test_a_part_that_there_is_not_is_refused(part: str) -> None:
    """A wrong part would run nothing, in silence."""
    with pytest.raises(ValueError, match="there is no part"):
        part_of(IDS, part)


def test_a_test_counts_for_the_longest_folder_above_it() -> None:
    """Folders without a budget of their own share one."""
    budgets = {"tests/kafka": 1.0, "tests/kafka/deep": 1.0, "elsewhere": 1.0}
    paths = ["tests/kafka/test_a.py", "tests/kafka/deep/test_b.py", "tests/kafkas/test_c.py", "README.md"]
    assert [folder_of(path, budgets) for path in paths] == ["tests/kafka", "tests/kafka/deep", "elsewhere", "elsewhere"]


def test_a_folder_over_its_budget_is_named_as_far_as_the_machine_is_not_at_fault() -> None:
    """A machine that is twice as slow may take twice as long."""
    spent, budgets = {"tests/a": 29.0, "tests/b": 31.0}, {"tests/a": 10.0, "tests/b": 10.0}
    assert over(spent, budgets, 3.0) == ["tests/b took 31 CPU s, its budget is 10 (x3.0 allowed)"]
    assert over(spent, budgets, 6.0) == []


def test_a_run_over_budget_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test without the mark `heavy` that takes too much CPU time is enough, though it passed; with the mark it may."""
    monkeypatch.setattr("tests.budget.MOST_S", 0.0)
    monkeypatch.setattr("tests.budget.slowness", lambda: 1.0)
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\nmarkers = heavy(why)")
    pytester.makeconftest(
        "import pytest\nfrom tests.budget import Budget\ndef pytest_configure(config): config.pluginmanager.register(Budget('test'))"
    )
    pytester.makepyfile("import pytest\ndef test_one(): sum(range(1_000_000))")
    result = pytester.runpytest_inprocess()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["OVER BUDGET: *::test_one took * CPU s: make it cheaper *"])
    assert result.ret == 1
    pytester.makepyfile("import pytest\n@pytest.mark.heavy('it counts')\ndef test_one(): sum(range(1_000_000))")
    assert pytester.runpytest_inprocess().ret == 0


def test_jobs_that_fail_are_told_with_their_output_and_hold_up_no_others(run: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """The first command that fails ends its job; the other jobs pass, and only lines worth reading are shown of them."""
    jobs = [
        run.Job("bad", 3, [python("print('broken here'); raise SystemExit(3)"), python("print('never')")]),
        run.Job("good", 2, [python("print('2 passed in 1 s'); print('noise')")]),
        run.Job("waiting", 1, [python("print('noise')")], waits=True),
    ]
    run.Queue(jobs).run()
    said = capfd.readouterr().out
    assert [job.failed for job in jobs] == [True, False, False]
    assert "bad FAILED" in said
    assert "broken here" in said
    assert "good passed" in said
    assert "2 passed in 1 s" in said
    assert "never" not in said
    assert "noise" not in said


def test_the_longest_jobs_come_first_and_one_that_waits_goes_beside_them(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one core: a slot for the longest job, and one more for a job that waits; the two meet, and would hang one after the other."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    meet = (
        "import os, sys, pathlib\n"
        "mine, other = map(pathlib.Path, sys.argv[1:])\n"
        "mine.touch()\n"
        "while not other.exists(): os.sched_yield()"
    )  # fmt: skip
    ways = [str(tmp_path / name) for name in ("long", "waiting")]
    jobs = [
        run.Job("short", 1, [python("print('1 passed')")]),
        run.Job("waiting", 1, [[*python(meet), *reversed(ways)]], waits=True),
        run.Job("long", 9, [[*python(meet), *ways]]),
    ]
    run.Queue(jobs).run()
    assert [job.failed for job in jobs] == [False] * 3


@pytest.mark.parametrize("tier", ["test", "ci", "nightly"])
def test_no_folder_of_tests_is_left_out(run: Any, tier: str, tmp_path: Path) -> None:
    """The lanes have all tests between them: each folder is named by one of them, or not ignored by the rest."""
    jobs = run.Tier(tier, tmp_path).jobs()
    words = [word for job in jobs for command in job.commands if "pytest" in command for word in command]
    ignored = {word.removeprefix("--ignore=") for word in words if word.startswith("--ignore=")}
    assert ignored
    assert ignored <= set(words)
    assert all((ROOT / folder).exists() for folder in ignored)


def test_the_last_run_of_each_nightly_job_is_told(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CI run says which jobs failed, and when the oldest was run; a job that runs alone leaves the record of the others."""
    monkeypatch.setitem(run.note_night.__globals__, "NIGHTLY", tmp_path / "nightly.toml")
    monkeypatch.setitem(run.note_night.__globals__, "git", lambda *words: "abc1234" if "--short" in words else "5")
    today = dt.date(2031, 5, 1)
    assert "no run of `make nightly` is on record" in run.last_nights(today)
    oldest = f"the oldest run was 3 days and 5 commits ago, at abc1234 on {today}"
    run.note_night({"gone": True}, 6, today, whole=True)
    run.note_night({"Kafka 4.0.0": False, "lint": True}, 7, today, whole=True)
    assert run.last_nights(today + dt.timedelta(3)) == f"nightly: FAILED: Kafka 4.0.0 at abc1234; {oldest}"
    run.note_night({"Kafka 4.0.0": True}, 8, today, whole=False)
    assert run.last_nights(today + dt.timedelta(3)) == f"nightly: all 2 jobs passed; {oldest}"
