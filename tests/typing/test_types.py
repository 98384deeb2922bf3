"""The reports of type checkers about users' code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

CASES = Path(__file__).parent / "cases"
EXPECTED = re.compile(r"# error: (\S+)$")


@pytest.fixture(scope="module")
def complaints() -> dict[str, dict[int, str]]:
    """Let mypy --strict check all cases at once; return the error codes by file and line."""
    output, errors, _ = api.run(
        ["--strict", "--no-incremental", "--show-error-codes", "--no-error-summary", "--hide-error-context", *map(str, CASES.glob("*.py"))]
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
    assert expected or case.stem == "right"
