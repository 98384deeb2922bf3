"""The cases in which the chaos tester reports a standstill."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.chaos.clients import Record, Trouble
from tests.chaos.feed import Feeder
from tests.chaos.options import Options
from tests.chaos.stable import Sample, StableEnds, find_stalls
from tests.chaos.standstill import Progress, Stall, Standstills

PARTITION_OF = {b"a": 0, b"b": 1}


def update(partition: int, offset: int, key: bytes, total: int, number: int | None) -> Record:
    return Record(partition, offset, key, total.to_bytes(8, "big"), number)


def stalls_of(samples: Sequence[Sample], records: Sequence[Record], begun: float = 0) -> list[Stall]:
    return find_stalls(samples, records, Progress(PARTITION_OF, 2), begun)


@pytest.mark.parametrize("numbers", [(0, 1, 2), (None, None, None)])
def test_a_partition_stands_still_until_more_of_it_can_be_read_as_committed(numbers: tuple[int | None, ...]) -> None:
    """Progress is a committed record that can be read; an end that moves by an abort alone is no progress."""
    records = [update(0, 2, b"a", 1, numbers[0]), update(0, 9, b"a", 2, numbers[1]), update(1, 4, b"b", 1, numbers[2] and 0)]
    samples = [
        Sample(1, (0, 0), (2, 1)),
        Sample(2, (3, 0), (2, 1)),
        Sample(5, (8, 0), (2, 1)),
        Sample(7, (10, 3), (2, 1)),
        Sample(8, (10, 5), (2, 1)),
    ]
    assert sorted(stalls_of(samples, records), key=str) == sorted(
        [Stall(0, 1, 2), Stall(0, 2, 7), Stall(1, 1, 8), Stall(None, 1, 2), Stall(None, 2, 7), Stall(None, 7, 8)], key=str
    )


def test_a_running_app_reports_no_standstill() -> None:
    """Actions from before the first observation do not count; an unfinished one ends with the last observation."""
    records = [update(0, 0, b"a", 1, 0)]
    samples = [Sample(1, (1, 0), (1, 0)), Sample(9, (1, 0), (1, 0)), Sample(10, (1, 0), (1, 1)), Sample(14, (1, 0), (1, 1))]
    assert stalls_of(samples, records) == [Stall(1, 10, 14), Stall(None, 10, 14)]


def test_the_warm_up_does_not_count() -> None:
    """A standstill at its end lasts from then on."""
    samples = [Sample(1, (0, 0), (1, 0)), Sample(5, (0, 0), (1, 0)), Sample(6, (1, 0), (1, 0))]
    assert stalls_of(samples, [update(0, 0, b"a", 1, 0)], begun=4.5) == [Stall(0, 4.5, 6), Stall(None, 4.5, 6)]


def test_short_pauses_are_none() -> None:
    """Commits come each tenth of a second or so."""
    found = Standstills(1)
    found.look(1, [1], [0])
    assert found.look(1.3, [2], [1]) == 1
    found.look(1.5, [2], [2])
    assert found.until(9) == []


def test_offsets_that_are_missing_are_no_standstill_of_nothing() -> None:
    """Without an observation there is no progress to report."""
    options = Options()
    watched = StableEnds(options, "127.0.0.1:1", "out", Feeder(options, "127.0.0.1:1", "in"))
    with pytest.raises(Trouble, match="last stable offsets of out"):
        watched.stalls([], 0)
