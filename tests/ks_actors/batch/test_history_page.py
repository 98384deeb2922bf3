"""The tutorial about history: its steps on Spark give what they give in one process."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from ks_actors.batch.spark._session import SparkSession
from tests.ks_actors.batch.conftest import SETTINGS as SPARK

PAGE = Path(__file__).parents[3] / "docs" / "history.md"


@pytest.mark.nightly
def test_history_on_spark_is_that_of_one_process(session: SparkSession, tmp_path: Path) -> None:
    """Spark cleans the files and runs the backfill; the live app has the same total."""
    assert session.is_open
    names: dict[str, Any] = {"__name__": "__main__"}
    for code in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
        exec(code, names)  # noqa: S102 - our own page, which asserts the total of one process
    names["make_files"](tmp_path / "raw")
    total = asyncio.run(names["on_spark"](tmp_path, SPARK))
    assert total == names["Total"](101, sum(names["of_history"]) + 5_000)
