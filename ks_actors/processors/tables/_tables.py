"""Tables: records become changes `(new, old)`; filters and maps work on changes.

ToStream converts changes back to records. `old` is None unless a downstream node needs it
(`send_old`). An operator with a `store` keeps its result there; the old value is then the store's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.aggregates import Superseded, cached_rows, with_history
from ks_actors.processors.api import Bound, for_old, truth_of, withdrawn
from ks_actors.processors.stateless import Inline, failed, forward_rest
from ks_actors.records import Batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import (
        Cache,
        KeyValueForOperators,
        NodeContext,
        Process,
        ProcessBatch,
    )
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class TableSource(Inline):
    """Turn records of a topic into changes of a table, kept in `store` if there is one.

    Records without key are dropped; records without value delete.
    """

    store: str | None = None
    send_old: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        if self.store is None:
            return Bound(_unstored_form(context), _unstored_batch_form(context))
        history = with_history(context, self.store)
        if history is not None:
            return Bound(self._record_form(history, history.store(self.store)))
        store: KeyValueForOperators = context.store(self.store)
        cache = context.cache(self.store, send_old=self.send_old)
        if cache is not None:
            return cached_rows(context, store, cache)
        return Bound(self._record_form(context, store), self._batch_form(context, store))

    def _record_form(self, context: NodeContext, store: KeyValueForOperators) -> Process:
        get = store.get_entry
        put = store.put_entry
        forward = context.forward
        send_old = self.send_old

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is None:
                context.dropped()
                return
            entry = get(key) if send_old else None
            put(key, None if value is None else (value, timestamp))
            forward(key, (value, None if entry is None else entry[0]), timestamp, headers)

        return process

    def _batch_form(self, context: NodeContext, store: KeyValueForOperators) -> ProcessBatch:
        get = store.get_entry
        put = store.put_entry
        forward_batch = context.forward_batch
        send_old = self.send_old

        def process_batch(batch: Batch) -> None:
            left_out: list[int] = []
            changes: list[Any] = []
            dropped = 0
            for key, value, timestamp in zip(
                batch.keys, batch.values, batch.timestamps, strict=True
            ):
                if key is None:
                    dropped += 1
                    # Every earlier record is either a change or a hole, so both together give this
                    # record's index.
                    left_out.append(len(changes) + len(left_out))
                    continue
                try:
                    # Read only if a node downstream needs old values: a read from the store costs
                    # the most here.
                    entry = get(key) if send_old else None
                    put(key, None if value is None else (value, timestamp))
                except BaseException as error:  # noqa: BLE001 - the handler decides
                    index = len(changes) + len(left_out)
                    failed(context, batch, index, error)
                    left_out.append(index)
                    continue
                changes.append((value, None if entry is None else entry[0]))
            if dropped:
                context.dropped(dropped)
            forward_rest(forward_batch, batch, left_out, changes)

        return process_batch


def _unstored_form(context: NodeContext) -> Process:
    forward = context.forward

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        if key is None:
            context.dropped()
        else:
            forward(key, (value, None), timestamp, headers)

    return process


def _unstored_batch_form(context: NodeContext) -> ProcessBatch:
    forward_batch = context.forward_batch

    def process_batch(batch: Batch) -> None:
        left_out = [index for index, key in enumerate(batch.keys) if key is None]
        if left_out:
            context.dropped(len(left_out))
        forward_rest(
            forward_batch,
            batch,
            left_out,
            [
                (value, None)
                for key, value in zip(batch.keys, batch.values, strict=True)
                if key is not None
            ],
        )

    return process_batch


@final
@dataclass(frozen=True, kw_only=True)
class TableFilter(Inline):
    """Forward values for which `predicate(key, value)` is true (or, `negated`, false).

    Other values are deleted downstream. If old values are known, a change from no value to no value
    is not forwarded, unless the table is `versioned`.
    """

    predicate: Callable[[Any, Any], object]
    negated: bool = False
    store: str | None = None
    send_old: bool = False
    versioned: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        return _bind_view(context, self)

    def _compute(
        self, context: NodeContext, store: KeyValueForOperators | None, *, send_old: bool
    ) -> _Compute:
        predicate = self.predicate
        negated = self.negated
        versioned = self.versioned

        def passed(key: Any, value: Any) -> Any:
            if value is None:
                return None
            holds = predicate(key, value)
            if holds is not True and holds is not False:
                holds = truth_of(predicate, holds, awaited=False)
            return value if holds is not negated else None

        passed_old = for_old(context, passed)

        def compute(key: Any, change: tuple[Any, Any], timestamp: int) -> tuple[Any, Any] | None:
            new = passed(key, change[0])
            old = None
            if send_old:
                old = passed_old(key, change[1]) if store is None else _value(store.get_entry(key))
                if old is None and new is None and not versioned:
                    return None
            if store is not None:
                store.put_entry(key, None if new is None else (new, timestamp))
            return new, old

        return compute


@final
@dataclass(frozen=True, kw_only=True)
class TableMapValues(Inline):
    """Map values by `mapper(value)`, or `mapper(key, value)` if it is `keyed`.

    A result of None deletes; deletes are forwarded without being mapped.
    """

    mapper: Callable[..., Any]
    keyed: bool = False
    store: str | None = None
    send_old: bool = False
    versioned: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        return _bind_view(context, self)

    def _compute(
        self, context: NodeContext, store: KeyValueForOperators | None, *, send_old: bool
    ) -> _Compute:
        mapper = self.mapper
        keyed = self.keyed

        def mapped(key: Any, value: Any) -> Any:
            if value is None:
                return None
            return mapper(key, value) if keyed else mapper(value)

        mapped_old = for_old(context, mapped)

        def compute(key: Any, change: tuple[Any, Any], timestamp: int) -> tuple[Any, Any]:
            new = mapped(key, change[0])
            old = None
            if send_old:
                old = mapped_old(key, change[1]) if store is None else _value(store.get_entry(key))
            if store is not None:
                store.put_entry(key, None if new is None else (new, timestamp))
            return new, old

        return compute


@final
@dataclass(frozen=True, kw_only=True)
class ToStream(Inline):
    """Turn changes into records: the new value, None for a delete."""

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        forward = context.forward
        forward_batch = context.forward_batch

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            forward(key, change[0], timestamp, headers)

        def process_batch(batch: Batch) -> None:
            forward_batch(
                Batch(
                    batch.keys,
                    [new for new, _ in batch.values],
                    batch.timestamps,
                    batch.headers,
                    batch.offsets,
                )
            )

        return Bound(process, process_batch)


@final
@dataclass(frozen=True, kw_only=True)
class TablePassThrough(Inline):
    """Forward changes unchanged, where the streams of a cogroup merge."""

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        return Bound(context.forward, context.forward_batch)


def _marked(compute: _Compute) -> _Compute:
    """Return `compute`, with the result of an out-of-order change marked as out of order."""

    def marked(key: Any, change: tuple[Any, Any], timestamp: int) -> tuple[Any, Any] | None:
        computed = compute(key, change, timestamp)
        return (
            Superseded(computed)
            if type(change) is Superseded and computed is not None
            else computed
        )

    return marked


def _value(entry: tuple[Any, int] | None) -> Any:
    return None if entry is None else entry[0]


def _stored(
    context: NodeContext, name: str | None, *, send_old: bool
) -> tuple[KeyValueForOperators | None, Cache | None]:
    """Return an operator's store and its cache, None where there is none."""
    return (
        (None, None)
        if name is None
        else (context.store(name), context.cache(name, send_old=send_old))
    )


def _bind_view(context: NodeContext, view: TableFilter | TableMapValues) -> Bound:
    """Make the functions of one task, with the store, the cache and the history of a view."""
    history = with_history(context, view.store)
    store, cache = _stored(history or context, view.store, send_old=view.send_old)
    compute = view._compute(context, store, send_old=view.send_old or cache is not None)
    if history is not None:
        return Bound(_change_form(compute, history.forward, None))
    return _bound(
        context,
        _marked(compute) if view.versioned and store is None else compute,
        cache,
        None if store is not None else context,
    )


def _bound(
    context: NodeContext, compute: _Compute, cache: Cache | None, unstored: NodeContext | None
) -> Bound:
    """Return both forms; `unstored` is the context of an operator without a store."""
    forward, forward_batch = (
        (context.forward, context.forward_batch)
        if cache is None
        else (cache.hold, cache.hold_batch)
    )
    return Bound(
        _change_form(compute, forward, unstored),
        _change_batch_form(context, compute, forward_batch, unstored),
    )


def _taken_back(
    unstored: NodeContext | None, compute: _Compute, key: Any, change: tuple[Any, Any], time: int
) -> tuple[Any, Any] | None:
    """Return the delete of the old value's result, after the new value has failed."""
    # A store has the former result, which becomes the old value of the next change.
    back = None if unstored is None else withdrawn(unstored, change)
    computed = None if back is None else compute(key, back, time)
    return None if computed is None or computed[1] is None else computed


def _change_form(compute: _Compute, forward: Process, unstored: NodeContext | None) -> Process:
    def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
        try:
            computed = compute(key, change, timestamp)
        except Exception:
            if back := _taken_back(unstored, compute, key, change, timestamp):
                forward(key, back, timestamp, headers)
            raise
        if computed is not None:
            forward(key, computed, timestamp, headers)

    return process


def _change_batch_form(
    context: NodeContext,
    compute: _Compute,
    forward_batch: ProcessBatch,
    unstored: NodeContext | None,
) -> ProcessBatch:
    def process_batch(batch: Batch) -> None:
        left_out: list[int] = []
        changes: list[Any] = []
        for key, change, timestamp in zip(batch.keys, batch.values, batch.timestamps, strict=True):
            try:
                computed = compute(key, change, timestamp)
            except BaseException as error:  # noqa: BLE001 - the handler decides
                index = len(changes) + len(left_out)
                failed(context, batch, index, error)
                computed = _taken_back(unstored, compute, key, change, timestamp)
            if computed is None:
                left_out.append(len(changes) + len(left_out))
            else:
                changes.append(computed)
        forward_rest(forward_batch, batch, left_out, changes)

    return process_batch


if TYPE_CHECKING:
    _Compute = Callable[[Any, tuple[Any, Any], int], tuple[Any, Any] | None]
