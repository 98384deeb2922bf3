"""A versioned store against lists of versions: any order of puts, reads, commits, failures, writes to disk, crashes, restores and queries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import pytest

from ks_actors.records._versioned import PUT_RETURN_CODE_NOT_PUT, PUT_RETURN_CODE_VALID_TO_UNDEFINED, VersionedRecord
from ks_actors.serdes import LONG, STRING
from ks_actors.state import VersionedReader, reader_of
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.helpers import versioned
from tests.ks_actors.state.model import SERDES, StoreModel, case_of, drive

pytestmark = pytest.mark.unmeasured

RETENTION = 40
History = dict[Any, dict[int, Any]]
Content = tuple[History, int]


class VersionsAgainstLists(StoreModel):
    """The content: by key the value from each time on, and stream time."""

    SERDES: ClassVar = {"bytes": SERDES["bytes"], "text": (STRING, LONG, lambda number: "\0" * number, int)}  # keys that begin with each other
    RESIDENT_BYTES = (900, 1 << 20)
    TAIL_RECORDS = 9
    EMPTY: ClassVar = {"s": ({}, -1)}
    now = too_late = 0

    def specs(self, random: Random, key: Any, value: Any) -> Sequence[StoreSpec]:
        return (versioned("s", key=key, value=value, history_retention_ms=RETENTION),)

    def change(self, random: Random) -> None:
        self.now += random.randrange(4)
        key, value, time = self.key(random.randrange(self.keys)), self.next_value(random), max(0, self.now - random.randrange(13) ** 2 // 2)
        history, observed = self.open["s"]
        code = self.task["s"].put(key, value, time)
        if time < observed - RETENTION:
            self.too_late += 1
            assert code == PUT_RETURN_CODE_NOT_PUT
            return
        versions = {**history.get(key, {}), time: value}
        self.open = {**self.open, "s": ({**history, key: versions}, max(observed, time))}
        assert code == min((other for other in versions if other > time), default=PUT_RETURN_CODE_VALID_TO_UNDEFINED)
        assert self.task.late == self.too_late

    def read(self, random: Random) -> None:
        key, time = self.key(random.randrange(self.keys)), max(0, self.now - random.randrange(60))
        assert self.task["s"].get(key) == version_at(self.open["s"], key, None)
        found = self.task["s"].get(key, time)
        assert found == version_at(self.open["s"], key, time)
        if found is not None and isinstance(found.value, list):
            found.value.append("a copy, of no consequence")
        self.query(random)

    def query(self, random: Random) -> None:
        key, time = self.key(random.randrange(self.keys)), max(0, self.now - random.randrange(60))
        reader = reader_of(self.task["s"])
        assert isinstance(reader, VersionedReader)
        for committed, state in ((True, self.committed["s"]), (False, self.open["s"])):
            assert reader.get(key, None, committed=committed) == version_at(state, key, None)
            assert reader.get(key, time, committed=committed) == version_at(state, key, time)
            for time_from, time_to in ((None, None), (time, None), (None, time), (time, self.now)):
                rows = all_versions(state, key, time_from, time_to)
                assert reader.versions(key, time_from, time_to, committed=committed, reverse=False) == rows
                assert reader.versions(key, time_from, time_to, committed=committed, reverse=True) == rows[::-1]


def version_at(content: Content, key: Any, time: int | None) -> VersionedRecord[Any] | None:
    history, observed = content
    versions = history.get(key, {})
    times = sorted(versions)
    place = len(times) if time is None else bisect_right(times, time)
    if place == 0 or versions[times[place - 1]] is None or (place < len(times) and time is not None and time < observed - RETENTION):
        return None
    return VersionedRecord(versions[times[place - 1]], times[place - 1], times[place] if place < len(times) else None)


def all_versions(content: Content, key: Any, time_from: int | None, time_to: int | None) -> list[VersionedRecord[Any]]:
    history, observed = content
    versions = history.get(key, {})
    times = sorted(versions)
    low = max(-1 if time_from is None else time_from, observed - RETENTION)
    found = []
    for time, end in zip(times, [*times[1:], None], strict=False):
        if versions[time] is None or (time_to is not None and time > time_to):
            continue
        if end is None or (end > low and not (time_to is not None and time_to < observed - RETENTION)):
            found.append(VersionedRecord(versions[time], time, end))
    return found


TestVersionsAgainstLists = case_of(VersionsAgainstLists)


@pytest.mark.parametrize("seed", range(60))
def test_versions_are_like_lists(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any actions in any order, with steps so small that everything falls between two of them."""
    drive(VersionsAgainstLists, seed, monkeypatch)
