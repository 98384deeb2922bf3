"""A table against a dict: any order of puts, reads, scans, commits, failures, writes to disk, crashes, restores and queries."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, ClassVar

import pytest

from ks_actors.state import reader_of
from ks_actors.topology._stores import StoreSpec
from tests.ks_actors.state.helpers import key_value
from tests.ks_actors.state.model import StoreModel, case_of, drive, order, within

pytestmark = pytest.mark.unmeasured


class TableAgainstADict(StoreModel):
    EMPTY: ClassVar = {"s": {}}

    def specs(self, random: Random, key: Any, value: Any) -> Sequence[StoreSpec]:
        return (key_value("s", key=key, value=value),)

    def change(self, random: Random) -> None:
        key, value = self.key(random.randrange(self.keys)), self.next_value(random)
        self.task["s"].put(key, value)
        table = {**self.open["s"], key: value}
        if value is None:
            del table[key]
        self.open = {**self.open, "s": table}
        assert self.task.stores.uncommitted_bytes > 0

    def read(self, random: Random) -> None:
        store, key, reverse = self.task["s"], self.key(random.randrange(self.keys)), random.random() < 0.5
        found = store.get(key)
        assert found == self.open["s"].get(key)
        if isinstance(found, list):
            found.append("a copy, of no consequence")
        low, high = self.bounds(random)
        assert list(store.reverse_range(low, high) if reverse else store.range(low, high)) == self.rows(self.open, low, high, reverse=reverse)

    def query(self, random: Random) -> None:
        committed, reverse = random.random() < 0.6, random.random() < 0.3
        state = self.committed if committed else self.open
        reader: Any = reader_of(self.task["s"])
        key = self.key(random.randrange(self.keys))
        entry = reader.get(key, committed=committed)
        assert (None if entry is None else entry[0]) == state["s"].get(key)
        low, high = self.bounds(random)
        for _ in reader.prepare():
            pass
        rows = reader.scan(*reader.bounds(low, high), committed=committed, reverse=reverse)
        self.scan(rows, self.rows(state, low, high, reverse=reverse), random)

    def bounds(self, random: Random) -> list[Any]:
        return [None if random.random() < 0.3 else self.key(random.randrange(self.keys)) for _ in range(2)]

    def rows(self, state: Any, low: Any, high: Any, *, reverse: bool) -> list[tuple[Any, Any]]:
        return sorted((row for row in state["s"].items() if within(row[0], low, high)), key=lambda row: order(row[0]), reverse=reverse)


TestTableAgainstADict = case_of(TableAgainstADict)


@pytest.mark.parametrize("seed", range(60))
def test_a_table_is_like_a_dict(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any actions in any order; a scan finds the rows of its beginning, whatever happens between two of them."""
    drive(TableAgainstADict, seed, monkeypatch)
