"""The page about production: each way to run its program is the same app."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ks_actors.cli._target import app_of
from ks_actors.config import ProcessingGuarantee

PAGE = Path(__file__).parents[2] / "docs" / "production.md"


def test_each_way_to_run_the_program_has_its_guarantee(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands, container and unit of the page name one target, an app whose guarantee is that of the program."""
    text = PAGE.read_text(encoding="utf-8")
    found = re.search(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert found is not None
    (tmp_path / "totals.py").write_text(found[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("KS_ACTORS_BOOTSTRAP_SERVERS", "localhost:9092")
    targets = re.findall(r"ks-actors (?:run|check|topics create) (\w+:\w+)|ENTRYPOINT .*\"run\", \"(\S+)\"", text)
    assert len(targets) == 5
    for target in {one or other for one, other in targets}:
        app = app_of(target, (), None)
        assert (app.config.application_id, app.config.processing_guarantee) == ("totals", ProcessingGuarantee.EXACTLY_ONCE_V2)
