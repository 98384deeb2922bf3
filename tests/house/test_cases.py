"""The cases that `--few` and `--all-but` choose, and the tests that `--within` begins."""

from __future__ import annotations

from pathlib import Path

import pytest

CONFTEST = Path(__file__).parents[1] / "conftest.py"


@pytest.fixture(autouse=True)
def configured(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function")
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))


def collected(pytester: pytest.Pytester, *options: str) -> list[str]:
    """Return the ids of the cases that a run with these options has."""
    return [line for line in pytester.runpytest("--quiet", "--collect-only", *options).outlines if "::" in line]


def test_every_case_runs_once_in_a_run_of_a_few_and_a_run_of_all_but_those(pytester: pytest.Pytester) -> None:
    """The two runs shuffle with seeds of their own, and have all cases between them, none twice."""
    many = "@pytest.mark.parametrize('number', range({}))\ndef test_{}(number): pass\n"
    pytester.makepyfile("import pytest\n" + many.format(40, "many") + many.format(2, "two") + "def test_one(): pass")
    few = collected(pytester, "--few", "3", "--randomly-seed", "1")
    others = collected(pytester, "--all-but", "3", "--randomly-seed", "2")
    assert len(few) == 3 + 2 + 1
    assert sorted(few + others) == sorted(collected(pytester))


def test_parts_have_all_cases_between_them(pytester: pytest.Pytester) -> None:
    """Without a few of each, a part is one of all cases."""
    pytester.makepyfile("import pytest\n@pytest.mark.parametrize('number', range(20))\ndef test_many(number): pass\ndef test_one(): pass")
    parts = [case for number in range(3) for case in collected(pytester, "--slice", f"{number}/3")]
    assert sorted(parts) == sorted(collected(pytester))
    assert pytester.runpytest("--all-but", "1", "--slice", "1/3").ret == pytest.ExitCode.USAGE_ERROR


def test_no_test_begins_after_its_time(pytester: pytest.Pytester) -> None:
    """With `--within`, tests that are left when the seconds are over are counted, and neither run nor fail."""
    pytester.makepyfile("def test_one(): assert False\ndef test_two(): assert False")
    over = pytester.runpytest("--within", "0.000001")
    over.assert_outcomes()
    over.stdout.fnmatch_lines(["*2 tests did not begin within 1e-06 s: `make test` runs them*"])
    assert pytester.runpytest("--within", "1000").ret == 1
