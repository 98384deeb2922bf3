"""Task ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ks_actors
from ks_actors import TaskId


@given(st.integers(min_value=0), st.integers(min_value=0))
def test_a_task_id_reads_back_its_own_text(subtopology: int, partition: int) -> None:
    """str and parse are inverse."""
    task = TaskId(subtopology, partition)
    assert TaskId.parse(str(task)) == task


def test_task_ids_are_ordered_by_subtopology_then_partition() -> None:
    """As numbers, not as text."""
    ids = [TaskId.parse(text) for text in ("0_10", "0_9", "1_0")]
    assert [str(task) for task in sorted(ids)] == ["0_9", "0_10", "1_0"]


@pytest.mark.parametrize("text", ["", "0", "0_", "_0", "0-1", "a_1", "0_1_2", "-1_0"])
def test_texts_that_are_no_task_id_are_refused(text: str) -> None:
    """With the form that is expected."""
    with pytest.raises(ValueError, match="expected <subtopology>_<partition>, such as 0_1"):
        TaskId.parse(text)


def test_the_version_is_that_of_the_distribution() -> None:
    """One source of truth."""
    assert ks_actors.__version__[0].isdigit()
