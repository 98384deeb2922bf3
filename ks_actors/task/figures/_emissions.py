"""Counts of the results that nodes hold back: suppressed changes, and final results of windows."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, final

from ks_actors.system import Later, is_loaded

if TYPE_CHECKING:
    from ks_actors.processors.api import Operator, Process, ProcessBatch
    from ks_actors.records import Batch, Headers


if TYPE_CHECKING:
    from ks_actors.processors import aggregates, tables
else:
    aggregates = Later("ks_actors.processors.aggregates")
    tables = Later("ks_actors.processors.tables")


class Emission(Enum):
    """The kind of results that a node holds back."""

    SUPPRESSED = auto()
    """Changes of a table."""
    FINAL = auto()
    """Results of windows, until they close; none where each update is sent."""


@final
class Emitted:
    """The number of results that a node of a task has forwarded."""

    __slots__ = ("count", "holds_back", "kind")

    def __init__(self, kind: Emission, *, holds_back: bool) -> None:
        self.kind: Emission = kind
        self.holds_back: bool = holds_back
        self.count: int = 0

    def counted(self, process: Process) -> Process:
        """Return a function that counts a result, and forwards it."""

        def count(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            self.count += 1
            process(key, value, timestamp, headers)

        return count

    def counted_batch(self, process: ProcessBatch) -> ProcessBatch:
        """Return a function that counts the results of a batch, and forwards it."""

        def count(records: Batch) -> None:
            self.count += len(records)
            process(records)

        return count


def emissions_of(operator: Operator) -> Emitted | None:
    """Return a new count for an operator that can hold results back; None for others."""
    if is_loaded(tables) and isinstance(operator, tables.Suppress):
        return Emitted(Emission.SUPPRESSED, holds_back=True)
    if not is_loaded(aggregates):
        return None
    if isinstance(operator, aggregates.FinalSessionAggregate | aggregates.FinalWindowedAggregate):
        return Emitted(Emission.FINAL, holds_back=True)
    if isinstance(operator, aggregates.SlidingAggregate):
        return Emitted(Emission.FINAL, holds_back=operator.on_close)
    if isinstance(operator, aggregates.SessionAggregate | aggregates.WindowedAggregate):
        return Emitted(Emission.FINAL, holds_back=False)
    return None
