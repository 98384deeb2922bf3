"""The write of stores without changelog at a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.state.custom import by_engine
from ks_actors.state.disk import facts_row
from ks_actors.state.task_stores._positions import merged, position_row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from ks_actors.state.core import Engine, StoreForTasks
    from ks_actors.state.task_stores._positions import At, Positions


def write_frozen(
    engines: Iterable[Engine],
    stores: Sequence[StoreForTasks],
    positions: Positions,
    changing: Collection[str],
    changed_at: At,
) -> None:
    """Write the frozen changes of stores, all or nothing, so that they survive a crash.

    The stores among `changing` get the position `changed_at`. Raises StateFull.
    """
    for engine, own in by_engine(engines, stores):
        rows = [row for store in own for row in store.frozen_rows()]
        if not rows:
            continue
        facts = [
            facts_row(store.name, facts)
            for store in own
            if (facts := store.facts(frozen=True)) is not None
        ]
        at = {
            store.name: merged(positions.of(store.name), changed_at)
            for store in own
            if store.name in changing
        }
        engine.write(
            [
                *sorted(rows),
                *facts,
                *(position_row(name, position) for name, position in at.items() if position),
            ],
            # No changelog could bring these rows back, so they must survive a crash of the machine
            # as well.
            durable=True,
        )
