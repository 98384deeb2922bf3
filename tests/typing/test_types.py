"""The reports of type checkers about users' code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from mypy import api

from ks_actors.cli._main import ks_actors

pytestmark = pytest.mark.extended  # `make types` checks all other code

CASES = Path(__file__).parent / "cases"
README = Path(__file__).parents[2] / "README.md"
EXPECTED = re.compile(r"# error: (\S+)$")


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[int, str]]:
    """Let mypy --strict check all cases, the README's example and a new project at once; return the error codes by file and line.

    It shares the cache of `make types`: without that it would check the packages and their libraries again, which takes ten times as long.
    """
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    example = tmp_path_factory.mktemp("readme") / "readme.py"
    example.write_text(blocks[0], encoding="utf-8")
    project = tmp_path_factory.mktemp("new") / "shop"
    made = CliRunner().invoke(ks_actors, ["new", "shop", "--directory", str(project)])
    assert made.exit_code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MYPYPATH", str(project))
        output, errors, _ = api.run(
            [
                "--strict",
                "--show-error-codes",
                "--no-error-summary",
                "--hide-error-context",
                *map(str, CASES.glob("*.py")),
                str(example),
                *map(str, project.rglob("*.py")),
            ]
        )
    assert not errors
    found: dict[str, dict[int, str]] = {}
    for match in re.finditer(r"^(.*?):(\d+): error: .*\[(\S+)\]$", output, re.MULTILINE):
        found.setdefault(Path(match[1]).name, {})[int(match[2])] = match[3]
    return found


@pytest.mark.parametrize("case", sorted(CASES.glob("*.py")), ids=lambda path: path.stem)
def test_wrong_code_is_refused_at_its_line_and_right_code_is_not(case: Path, complaints: dict[str, dict[int, str]]) -> None:
    """Each line that ends in `# error: code` fails with that code, and no other line fails."""
    expected = {number: match[1] for number, line in enumerate(case.read_text().splitlines(), 1) if (match := EXPECTED.search(line))}
    assert complaints.get(case.name, {}) == expected
    assert expected or case.stem.startswith("right")


def test_the_first_example_passes_type_checkers(complaints: dict[str, dict[int, str]]) -> None:
    """The README's example is the first code that users copy."""
    assert "readme.py" not in complaints


def test_a_new_project_passes_type_checkers(complaints: dict[str, dict[int, str]]) -> None:
    """The code that `ks-actors new` writes, with its tests, is strictly typed."""
    assert not {"app.py", "test_app.py", "__init__.py"} & complaints.keys()
