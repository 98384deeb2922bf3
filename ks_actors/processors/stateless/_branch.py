"""The operator that splits a stream."""

from __future__ import annotations

from operator import truth
from typing import TYPE_CHECKING, Any

from ks_actors.processors.api import Bound, truth_of
from ks_actors.processors.stateless._columns import collect
from ks_actors.processors.stateless._inline import Inline

if TYPE_CHECKING:
    from ks_actors.processors.api import NodeContext, Process, ProcessBatch
    from ks_actors.processors.stateless._stateless import Function
    from ks_actors.records import Batch, Headers


class Branch(Inline):
    """Send each record to the child of the first predicate (key, value) that holds.

    If no predicate holds, the record goes to the default child, or is dropped. Until the topology
    is built, `branches` and `default` may be added; a child that was removed is skipped.
    """

    def __init__(self) -> None:
        self.branches: list[tuple[Function, str]] = []
        self.default: str | None = None

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        children, batches = context.children, context.children_batch
        default = self.default
        return Bound(
            _record_form(
                [(predicate, children[name]) for predicate, name in self.branches],
                None if default is None else children[default],
            ),
            _batch_form(
                context,
                [(predicate, batches[name]) for predicate, name in self.branches],
                None if default is None else batches[default],
            ),
        )


def _record_form(branches: list[tuple[Function, Process]], otherwise: Process | None) -> Process:
    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for predicate, forward in branches:
            holds = predicate(key, value)
            if holds is not True and holds is not False:
                holds = truth_of(predicate, holds, awaited=False)
            if holds:
                forward(key, value, timestamp, headers)
                return
        if otherwise is not None:
            otherwise(key, value, timestamp, headers)

    return process


def _batch_form(
    context: NodeContext,
    branches: list[tuple[Function, ProcessBatch]],
    otherwise: ProcessBatch | None,
) -> ProcessBatch:
    def batch(records: Batch) -> None:
        found: list[tuple[ProcessBatch, Batch]] = []
        for predicate, forward_batch in branches:
            calls = map(predicate, records.keys, records.values)
            taken, failed_at = collect(context, records, predicate, calls, truth, awaited=False)
            found.append((forward_batch, records.select(taken)))
            # A record that failed in a predicate goes to no branch.
            rest = [not selector for selector in taken]
            for index in failed_at:
                rest[index] = False
            records = records.select(rest)
            if not records.timestamps:
                break
        if otherwise is not None:
            found.append((otherwise, records))
        for forward_batch, part in found:
            if part.timestamps:
                forward_batch(part)

    return batch
