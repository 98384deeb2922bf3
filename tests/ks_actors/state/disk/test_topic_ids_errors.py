"""Errors of the file of topic ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors import StateError
from ks_actors.state.disk._topic_ids import TOPIC_IDS, TopicIds


def test_a_file_of_topic_ids_that_cannot_be_used_names_its_task(tmp_path: Path) -> None:
    """The error says which task and which file it is, at reading and at writing."""
    path = tmp_path / TOPIC_IDS
    path.mkdir()
    ids = TopicIds("0_3", tmp_path, {}, {"in": "an id"})
    for use in (ids.read, ids.write):
        with pytest.raises(StateError, match=f"^task 0_3: the file of topic ids {path}"):
            use()
