"""Window stores against dicts: any order of puts, reads, commits, failures, writes to disk, crashes, restores and queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest

from ks_actors import SerializationError
from ks_actors.serdes import json
from ks_actors.state import DuplicatesReader, reader_of
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.helpers import PLACES, Task, window
from tests.ks_actors.state.model import StoreModel, case_of, drive, order

pytestmark = pytest.mark.unmeasured

STEP = 25_000
RETENTION = 130_000
FOR_EVER = 1 << 40
Row = tuple[tuple[Any, int], Any]


class WindowsAgainstDicts(StoreModel):
    """`w` has one row a key and window, `d` has each row that was put. Their contents: rows in the order of puts, and the latest start."""

    EMPTY: ClassVar = {"w": ((), -1), "d": ((), -1)}

    def specs(self, random: Random, key: Any, value: Any) -> Sequence[StoreSpec]:
        advance = random.choice((0, STEP))
        return (
            window("w", key=key, value=value, retention_ms=RETENTION, advance_ms=advance),
            window("d", key=key, value=value, retention_ms=RETENTION, retain_duplicates=True),
        )

    def change(self, random: Random) -> None:
        key, value, start, name = self.key(random.randrange(self.keys)), self.next_value(random), self.time(random), random.choice("wd")
        self.task[name].put(key, value, start)
        rows, latest = self.open[name]
        if name == "w" or value is not None or self.in_memory:
            latest = max(latest, start)
        if name == "w":
            rows = tuple(row for row in rows if row[0] != (key, start))
        if value is not None and start > latest - RETENTION:
            rows = (*rows, ((key, start), value))
        self.open = {**self.open, name: (rows, latest)}

    def time(self, random: Random) -> int:
        return max(0, self.late - random.randrange(8)) * STEP

    def visible(self, state: Any, name: str, first: int, last: int, key: Any = None) -> list[Row]:
        rows, latest = state[name]
        return [row for row in rows if first <= row[0][1] <= last and row[0][1] > latest - RETENTION and key in (None, row[0][0])]

    def read(self, random: Random) -> None:
        key, (first, last) = self.key(random.randrange(self.keys)), sorted((self.time(random), self.time(random)))
        if random.random() < 0.3:
            first, last = 0, FOR_EVER
        assert self.task["w"].fetch(key, first) == dict(self.visible(self.open, "w", first, first)).get((key, first))
        for name in "wd":
            of_key = sorted(self.visible(self.open, name, first, last, key), key=lambda row: row[0][1])
            assert list(self.task[name].fetch(key, first, last)) == [(start, value) for (_, start), value in of_key]
            there = sorted(self.visible(self.open, name, first, last), key=lambda row: (row[0][1], order(row[0][0])))
            assert [((key, start), entry[0]) for key, start, entry in self.task[name].fetch_all_entries(first, last)] == there
            assert len(list(self.task[name].fetch_all(first, last))) == len(there)

    def query(self, random: Random) -> None:
        name, key, (first, last) = random.choice("wd"), self.key(random.randrange(self.keys)), sorted((self.time(random), self.time(random)))
        options = {"committed": random.random() < 0.6, "reverse": random.random() < 0.3}
        state = self.committed if options["committed"] else self.open
        reader: Any = reader_of(self.task[name])
        if name == "w":
            entry = reader.get(key, first, committed=options["committed"])
            assert (None if entry is None else entry[0]) == dict(self.visible(state, "w", first, first)).get((key, first))
        if random.random() < 0.5:
            rows, expected = reader.fetch(key, first, last, **options), self.visible(state, name, first, last, key)
        else:
            rows, expected = reader.fetch_all(first, last, **options), self.visible(state, name, first, last)
        segment = self.task["w"].segment_ms

        def place(row: Row) -> Any:
            key, start = row[0]
            return (start, order(key)) if self.in_memory else (start // segment, order(key), start)

        # Rows of one place are in the order of puts, and backwards in the other one.
        expected.sort(key=place)
        self.scan(rows, expected[::-1] if options["reverse"] else expected, random)


TestWindowsAgainstDicts = case_of(WindowsAgainstDicts)


@pytest.mark.parametrize("seed", range(60))
def test_windows_are_like_dicts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any actions in any order, with duplicates in the order of puts; a scan finds the rows of its beginning."""
    drive(WindowsAgainstDicts, seed, monkeypatch)


@pytest.mark.parametrize("place", PLACES)
def test_duplicates_that_can_be_changed_in_place_are_copies(place: str, tmp_path: Path) -> None:
    """A reader gets a copy of each mutable value; a put raises for a value that cannot be written; a put of None adds nothing."""
    task = Task([window(value=json(), retain_duplicates=True)], tmp_path, place)
    store, reader = task.store, DuplicatesReader(task.store)
    store.put("k", [1], 50)
    store.put("k", None, 50)
    for _ in range(2):
        for rows in (reader.fetch("k", 0, 100, committed=False, reverse=False), reader.fetch_all(0, 100, committed=False, reverse=False)):
            for _ in rows.steps:
                pass
            ((_, key, entry),) = rows
            assert (key, entry[0]) == (("k", 50), [1])
            entry[0].append("mine")
    task.commit()
    with pytest.raises(SerializationError, match="the serde cannot write"):
        store.put("k", {object()}, 51)
    ((_, _, entry),) = reader.fetch("k", 0, 100, committed=False, reverse=False)
    assert entry[0] == [1]
    task.stores.drop()
    task.close()
