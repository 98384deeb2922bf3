"""Tables with values that a user's object computes; the object may have its own stores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, final

from ks_actors._errors import TopologyError
from ks_actors.processors.aggregates import Superseded, with_history
from ks_actors.processors.api import (
    Bound,
    Context,
    checked_punctuator,
    checked_schedule,
    for_old,
    too_early,
)
from ks_actors.processors.tables._views import derived

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta

    from ks_actors.processors.api import (
        KeyValueForOperators,
        NodeContext,
        PunctuationType,
        RecordMetadata,
    )
    from ks_actors.processors.tables._views import Reader, View
    from ks_actors.records import Headers, TaskId

K = TypeVar("K")
V = TypeVar("V")
VOut = TypeVar("VOut")


class ValueTransformer(ABC, Generic[K, V, VOut]):
    """Base class of a transformer, which computes a table's values from another table and stores.

    Subclass it and override `transform`. A supplier (the class itself will do) makes a new
    transformer per task. Each reader of a table that is not stored gets another transformer.
    """

    context: Context[Never]

    def init(self, context: Context[Never]) -> None:
        """Prepare, when the task's stores are ready. The context forwards nothing.

        If you override it, keep the context (or call super).
        """
        self.context = context

    @abstractmethod
    def transform(self, key: K, value: V | None) -> VOut | None:
        """Return the new value of a row, None for no row. `value` None is a delete."""

    def close(self) -> None:
        """Release resources that `init` took, except stores.

        Called when the task ends, at least on this instance.
        """


@final
@dataclass(frozen=True, kw_only=True)
class TableTransformValues:
    """Compute values by a ValueTransformer, and keep them in `store` if there is one.

    `supplier` makes a new `transformer` for each task. Without a store, old values are computed by
    the same transformer, right after the new ones.
    """

    supplier: Callable[[], ValueTransformer[Any, Any, Any]]
    transformer: type[ValueTransformer[Any, Any, Any]]
    store: str | None = None
    send_old: bool = False
    record_context: bool = True
    asynchronous: None = None

    def bind(self, context: NodeContext) -> Bound:
        """Make and initialize the transformer of one task."""
        started = _Started(context, self.supplier, TransformContext(context))
        context = with_history(context, self.store) or context
        store: KeyValueForOperators | None = (
            None if self.store is None else context.store(self.store)
        )
        cache = None if self.store is None else context.cache(self.store, send_old=self.send_old)
        forward = context.forward if cache is None else cache.hold
        send_old = self.send_old or cache is not None

        def process(key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers) -> None:
            transform = started.transform
            new = transform(key, change[0])
            old = None
            if store is not None:
                if send_old:
                    entry = store.get_entry(key)
                    old = None if entry is None else entry[0]
                store.put_entry(key, None if new is None else (new, timestamp))
            elif send_old:
                old = for_old(context, transform)(key, change[1])
            forward(
                key,
                Superseded((new, old))
                if type(change) is Superseded and store is None
                else (new, old),
                timestamp,
                headers,
            )

        return Bound(process, None, started.close)


@final
@dataclass(frozen=True)
class TransformView:
    """The rows of another view through this view's own transformer, with its `own_stores`."""

    parent: View
    supplier: Callable[[], ValueTransformer[Any, Any, Any]]
    own_stores: tuple[str, ...] = ()

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of the parent and of the transformer."""
        return tuple(dict.fromkeys(self.parent.stores + self.own_stores))

    @property
    def record_context(self) -> bool:
        """True: the transformer has a context."""
        return True

    def bind(self, context: NodeContext) -> Reader:
        """Make and initialize the transformer of one reading node."""
        below, close_below, below_as_of = self.parent.bind(context)
        own = TransformContext(context)
        started = _Started(context, self.supplier, own)

        def computed(key: Any, entry: tuple[Any, int] | None) -> tuple[Any, int] | None:
            own.reading = True
            try:
                value = started.transform(key, None if entry is None else entry[0])
            finally:
                own.reading = False
            # -1 is the unknown time of Kafka Streams: the transformer made a value from no row.
            return None if value is None else (value, -1 if entry is None else entry[1])

        def close() -> None:
            close_below()
            started.close()

        return derived(computed, below, below_as_of, close)


@final
class _Started:
    """A transformer of one node of one task, made and initialized by `when_made`."""

    __slots__ = ("_own", "_supplier", "_transformer", "transform")

    def __init__(
        self,
        context: NodeContext,
        supplier: Callable[[], ValueTransformer[Any, Any, Any]],
        own: TransformContext,
    ) -> None:
        self._supplier: Callable[[], ValueTransformer[Any, Any, Any]] = supplier
        self._own: TransformContext = own
        self._transformer: ValueTransformer[Any, Any, Any] | None = None
        self.transform: Callable[[Any, Any], Any] = too_early(context.node)
        context.when_made(self._make, self._init)

    def _make(self) -> None:
        self._transformer = self._supplier()

    def _init(self) -> None:
        transformer = self._transformer
        assert transformer is not None
        # Also for a user's `init` that does not call super; see `Processor`.
        if not hasattr(transformer, "context"):
            with suppress(AttributeError, TypeError, ValueError):
                transformer.context = self._own
        transformer.init(self._own)
        self.transform = transformer.transform

    def close(self) -> None:
        assert self._transformer is not None
        self._transformer.close()


@final
class TransformContext(Context[Never]):
    """The access of a transformer to its task: everything but forwarding.

    While it is `reading` for another node, no record is the current one.
    """

    __slots__ = ("_context", "reading")

    def __init__(self, context: NodeContext) -> None:
        self._context: NodeContext = context
        self.reading: bool = False

    @property
    def application_id(self) -> str:
        return self._context.application_id

    @property
    def task_id(self) -> TaskId:
        return self._context.task_id

    def forward(self, record: Never, child: str | None = None) -> None:  # noqa: ARG002 - it raises
        raise TopologyError(
            f"the transformer of table {self._context.node} cannot forward: return the value of "
            "the row from transform instead"
        )

    def get_state_store(self, name: str) -> Any:
        return self._context.store(name)

    def schedule(
        self,
        interval_ms: int | timedelta,
        punctuation: PunctuationType,
        callback: Callable[[int], None],
        start_ms: int | datetime | timedelta | None = None,
    ) -> Callable[[], None]:
        interval, start = checked_schedule(
            interval_ms, punctuation, callback, start_ms, self._context
        )
        return self._context.schedule(interval, punctuation, checked_punctuator(callback), start)

    def commit(self) -> None:
        self._context.request_commit()

    def current_stream_time_ms(self) -> int:
        return self._context.stream_time()

    def current_system_time_ms(self) -> int:
        return self._context.wall_time()

    def record_metadata(self) -> RecordMetadata | None:
        return None if self.reading else self._context.record_metadata()
