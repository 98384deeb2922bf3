"""The parts of a new store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.state.core._codec import Codec
    from ks_actors.state.core._engine import Engine
    from ks_actors.topology import StoreSpec


class StoreParts(NamedTuple):
    """The arguments of a new store of any kind but custom ones.

    `record_time` returns the timestamp (ms) of the current record. `expired` is called with the
    number of puts that came too late. `engine` is None for a store in memory.
    """

    spec: StoreSpec
    codec: Codec
    engine: Engine | None
    record_time: Callable[[], int]
    expired: Callable[[int], None]
