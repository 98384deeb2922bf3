"""The operator that splits a stream."""

from __future__ import annotations

from operator import truth
from typing import TYPE_CHECKING, Any

from ks_actors.processors.api import Bound
from ks_actors.processors.stateless._columns import collect
from ks_actors.processors.stateless._inline import Inline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext
    from ks_actors.processors.stateless._stateless import Function
    from ks_actors.records import Batch, Headers


class Branch(Inline):
    """Send each record to the child of the first predicate (key, value) that holds.

    Without one, it goes to the default child, or is dropped. `branches` and `default` may grow
    until the topology is built; a child that is not there any more is skipped.
    """

    def __init__(self) -> None:
        self.branches: list[tuple[Function, str]] = []
        self.default: str | None = None

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        children = context.children
        children_batch = context.children_batch
        branches = [(predicate, children[name]) for predicate, name in self.branches]
        batches = [(predicate, children_batch[name]) for predicate, name in self.branches]
        otherwise = None if self.default is None else children[self.default]
        otherwise_batch = None if self.default is None else children_batch[self.default]

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            for predicate, forward in branches:
                if predicate(key, value):
                    forward(key, value, timestamp, headers)
                    return
            if otherwise is not None:
                otherwise(key, value, timestamp, headers)

        def batch(records: Batch) -> None:
            found: list[tuple[Callable[[Batch], None], Batch]] = []
            for predicate, forward_batch in batches:
                taken, failed_at = collect(
                    context, records, map(truth, map(predicate, records.keys, records.values))
                )
                found.append((forward_batch, records.select(taken)))
                # A record that failed in a predicate goes to no branch.
                rest = [not selector for selector in taken]
                for index in failed_at:
                    rest[index] = False
                records = records.select(rest)
                if not records.timestamps:
                    break
            if otherwise_batch is not None:
                found.append((otherwise_batch, records))
            for forward_batch, part in found:
                if part.timestamps:
                    forward_batch(part)

        return Bound(process, batch)
