"""Counts of hopping windows by panes: all that comes out is as if each record had been added to each of its windows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from ks_actors.processors.aggregates import _cached_windows
from ks_actors.records import Batch
from tests.ks_actors.task.cached_tables import Piped, driver


def run(kind: str, batches: list[list[tuple[str | None, str, int]]], *, headers: bool) -> tuple[Any, ...]:
    """Return results in their order, rows, drops, and the place of each row's record."""
    with driver(kind, 1 << 20) as made:
        piped = Piped(made)
        for number, rows in enumerate(batches):
            piped.feed("in", rows, [((str(at), b""),) if at % 3 else () for at in range(len(rows))] if headers else None)
            if number % 4 == 3:
                piped.flush()
        (cache,) = piped.caches
        seen = cache._recent.seen()
        places = {key: seen.last(key) and seen.last(key)[1] for rows in cache._groups.values() for key in cache._keys(rows, list(rows.olds))}
        piped.flush()
        store = made.get_state_store(cache.name)
        return piped.out, list(store.all()), piped.task.dropped, piped.task.stream_time, places, cache.hit_ratio.figures()


@pytest.mark.parametrize("seed", range(12))
def test_panes_give_the_results_of_single_records(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any times and keys, late ones and such as are in no order: results, times, headers, rows, drops, and origins."""
    random = Random(seed)
    taken: list[bool] = []
    make: Callable[..., Callable[[Batch], bool]] = _cached_windows._pane_counts
    odd, step, headers = random.choice((0.0, 0.1)), random.choice((1, 3)), random.random() < 0.5
    time, batches = 0, []
    for _ in range(10):
        rows: list[tuple[str | None, str, int]] = []
        for _ in range(random.randrange(1, 40)):
            time += random.randrange(step + 1)
            late = random.randrange(40) if random.random() < odd else 0
            rows.append((None if random.random() < odd else random.choice("abcde"), "x", max(0, time - late)))
        batches.append(rows)

    def watched(*given: Any) -> Callable[[Batch], bool]:
        count = make(*given)

        def counted(batch: Batch) -> bool:
            taken.append(count(batch))
            return taken[-1]

        return counted

    monkeypatch.setattr(_cached_windows, "_pane_counts", watched)
    by_panes = run("hopping count", batches, headers=headers)
    assert odd or all(taken)
    monkeypatch.setattr(_cached_windows, "_pane_counts", lambda *_: lambda _: False)
    assert by_panes == run("hopping count", batches, headers=headers)
