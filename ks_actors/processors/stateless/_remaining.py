"""Shared parts of stateful operators' batch forms: new columns for the remaining records."""

from __future__ import annotations

from itertools import compress
from typing import TYPE_CHECKING, Any

from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ks_actors.processors.api import ProcessBatch

ATOMS: frozenset[type] = frozenset({bool, bytes, float, int, str})
"""Types whose objects never change."""


def forward_rest(
    forward: ProcessBatch,
    batch: Batch,
    left_out: Sequence[int],
    values: list[Any],
    timestamps: list[int] | None = None,
    keys: list[Any] | None = None,
) -> None:
    """Forward new `values` for the records of `batch`, without those at `left_out`.

    `left_out` are positions, ascending; nothing is forwarded when no record remains. `timestamps`
    and `keys`, where given, are those of the remaining records; other columns are the batch's own.
    """
    # Nodes downstream expect at least one record: the first record of a batch has the context.
    if not values:
        return
    if not left_out:
        keys = batch.keys if keys is None else keys
        timestamps = batch.timestamps if timestamps is None else timestamps
        forward(Batch(keys, values, timestamps, batch.headers, batch.offsets))
        return
    left = bytearray(b"\1") * len(batch)
    for position in left_out:
        left[position] = 0
    forward(
        Batch(
            list(compress(batch.keys, left)) if keys is None else keys,
            values,
            list(compress(batch.timestamps, left)) if timestamps is None else timestamps,
            None if batch.headers is None else list(compress(batch.headers, left)),
            list(compress(batch.offsets, left)),
        )
    )
