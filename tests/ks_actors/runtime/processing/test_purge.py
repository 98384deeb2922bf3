"""The deletion of processed records from repartition topics."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from ks_actors import LogError
from ks_actors.log import TopicPartition
from ks_actors.runtime.processing import Purger
from ks_actors.task import Position

ONE, OTHER, SOURCE = TopicPartition("through", 0), TopicPartition("through", 1), TopicPartition("in", 0)


async def delete(_: Mapping[TopicPartition, int]) -> None:
    raise AssertionError


def purger() -> Purger:
    """Return one with an interval of 1 s, which has begun at 0 s."""
    made = Purger(["through"], 1_000, delete)
    made.committed([ONE])
    assert made.due({ONE: Position(5)}, 0.0) == {}
    return made


def test_records_are_deleted_once_in_an_interval() -> None:
    """Those of repartition topics that were committed since the last time, when the last deletion has ended."""
    one = purger()
    one.committed([SOURCE])
    positions = {ONE: Position(7), OTHER: Position(3), SOURCE: Position(9)}
    assert one.due(positions, 0.9) == {}
    assert one.due(positions, 1.0) == {ONE: 7}
    one.committed([OTHER])
    assert one.due(positions, 2.0) == {}
    one.ended(None)
    assert one.due(positions, 2.5) == {OTHER: 3}
    one.ended(None)
    assert one.due(positions, 9.0) == {}


def test_only_present_positions_count() -> None:
    """Of a partition that was given up, nothing is deleted; of one that was moved since the commit, what lies before its new position."""
    one = purger()
    one.committed([OTHER])
    assert one.due({ONE: Position(2)}, 1.0) == {ONE: 2}
    one.ended(None)
    one.committed([OTHER])
    assert one.due({}, 2.0) == {}
    one.committed([ONE])
    assert one.due({ONE: Position(4)}, 3.0) == {ONE: 4}


def test_a_failed_deletion_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """The next one may begin."""
    one = purger()
    assert one.due({ONE: Position(5)}, 1.0) == {ONE: 5}
    one.ended(LogError("the broker is away"))
    assert caplog.messages == ["could not delete processed records of repartition topics; a later commit retries: the broker is away"]
    one.committed([ONE])
    assert one.due({ONE: Position(6)}, 2.0) == {ONE: 6}
