"""Views of another table: read its store, or compute from the stores upstream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, final

from ks_actors.processors.api import for_old, truth_of

if TYPE_CHECKING:
    from ks_actors.processors.api import (
        KeyValueForOperators,
        NodeContext,
        SessionsForOperators,
        VersionsForOperators,
        WindowsForOperators,
    )

Get: TypeAlias = Callable[[Any], "tuple[Any, int] | None"]
"""Return value and timestamp (ms) of a key; the value is never None."""


AsOf: TypeAlias = Callable[[Any, int], "tuple[Any, int] | None"]
"""Return value and timestamp of a key as of a time (ms)."""


def _nothing() -> None:
    """Close nothing."""


class Reader(NamedTuple):
    """A view at work in one node of one task.

    `as_of` reads the past, where the table has a versioned store.
    """

    get: Get
    close: Callable[[], None] = _nothing
    as_of: AsOf | None = None


class View(Protocol):
    """The current content of a table."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that the reading node has to be connected to, without duplicates."""
        ...

    @property
    def record_context(self) -> bool:
        """Whether a user's object computes rows, and so may read the record's context."""
        ...

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        ...


def derived(
    compute: Callable[[Any, tuple[Any, int] | None], tuple[Any, int] | None],
    below: Get,
    below_as_of: AsOf | None,
    close: Callable[[], None],
) -> Reader:
    """Return the reader of a view that computes each row from another view's row."""

    def get(key: Any) -> tuple[Any, int] | None:
        return compute(key, below(key))

    if below_as_of is None:
        return Reader(get, close)
    past = below_as_of

    def as_of(key: Any, time: int) -> tuple[Any, int] | None:
        return compute(key, past(key, time))

    return Reader(get, close, as_of)


@final
@dataclass(frozen=True)
class StoreView:
    """The content of a timestamped key-value store, or of a versioned one."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The store."""
        return (self.store,)

    @property
    def record_context(self) -> bool:
        """False: rows are read as they are."""
        return False

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        store = context.store(self.store)
        if not hasattr(store, "put_version"):
            entries: KeyValueForOperators = store
            return Reader(entries.get_entry)
        versions: VersionsForOperators = store
        past = versions.as_of

        def as_of(key: Any, time: int) -> tuple[Any, int] | None:
            found = past(key, time)
            return None if found is None else found[0]

        return Reader(versions.latest, as_of=as_of)


@final
@dataclass(frozen=True)
class WindowView:
    """The content of a timestamped window store, by windowed keys."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The store."""
        return (self.store,)

    @property
    def record_context(self) -> bool:
        """False: rows are read as they are."""
        return False

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        store: WindowsForOperators = context.store(self.store)
        get_entry = store.get_entry

        def get(windowed: Any) -> tuple[Any, int] | None:
            key, window = windowed
            return get_entry(key, window.start)

        return Reader(get)


@final
@dataclass(frozen=True)
class SessionView:
    """The content of a session store, by windowed keys, at the sessions' ends."""

    store: str

    @property
    def stores(self) -> tuple[str, ...]:
        """The store."""
        return (self.store,)

    @property
    def record_context(self) -> bool:
        """False: rows are read as they are."""
        return False

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        store: SessionsForOperators = context.store(self.store)
        get_entry = store.get_entry

        def get(windowed: Any) -> tuple[Any, int] | None:
            key, (start, end) = windowed
            entry = get_entry(key, start, end)
            # A session's result has the time of the session's end, as in Kafka Streams.
            return None if entry is None else (entry[0], end)

        return Reader(get)


@final
@dataclass(frozen=True)
class FilterView:
    """The rows of another view that pass a predicate (or, `negated`, that do not)."""

    parent: View
    predicate: Callable[[Any, Any], object]
    negated: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of the parent."""
        return self.parent.stores

    @property
    def record_context(self) -> bool:
        """Whether reading the parent's rows needs the record context."""
        return self.parent.record_context

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        below, close, below_as_of = self.parent.bind(context)
        predicate = self.predicate
        negated = self.negated

        def passed(key: Any, entry: tuple[Any, int] | None) -> tuple[Any, int] | None:
            if entry is None:
                return None
            holds = predicate(key, entry[0])
            if holds is not True and holds is not False:
                holds = truth_of(predicate, holds, awaited=False)
            return entry if holds is not negated else None

        return derived(for_old(context, passed), below, below_as_of, close)


def stored_in(view: View) -> str | None:
    """Return the key-value store that has the rows of a view as they are, None without one."""
    while isinstance(view, FilterView):
        view = view.parent
    return view.store if isinstance(view, StoreView) else None


@final
@dataclass(frozen=True)
class MapView:
    """The rows of another view mapped by `mapper(value)`, or `mapper(key, value)` if `keyed`."""

    parent: View
    mapper: Callable[..., Any]
    keyed: bool

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of the parent."""
        return self.parent.stores

    @property
    def record_context(self) -> bool:
        """Whether reading the parent's rows needs the record context."""
        return self.parent.record_context

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        below, close, below_as_of = self.parent.bind(context)
        mapper = self.mapper
        keyed = self.keyed

        def mapped_entry(key: Any, entry: tuple[Any, int] | None) -> tuple[Any, int] | None:
            if entry is None:
                return None
            value, timestamp = entry
            mapped = mapper(key, value) if keyed else mapper(value)
            return None if mapped is None else (mapped, timestamp)

        return derived(for_old(context, mapped_entry), below, below_as_of, close)


@final
@dataclass(frozen=True)
class JoinView:
    """Two views joined by `joiner(left, right)`, or `joiner(key, left, right)` if it is `keyed`.

    A side that is `*_optional` may be missing, though not both.
    """

    left: View
    right: View
    joiner: Callable[..., Any]
    left_optional: bool
    right_optional: bool
    keyed: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        """The stores of both sides."""
        return tuple(dict.fromkeys(self.left.stores + self.right.stores))

    @property
    def record_context(self) -> bool:
        """Whether reading the rows of either side needs the record context."""
        return self.left.record_context or self.right.record_context

    def bind(self, context: NodeContext) -> Reader:
        """Make the reader of one node."""
        # Without `as_of`: the result of a join of tables is not versioned, even if both sides are.
        get_left, close_left, _ = self.left.bind(context)
        get_right, close_right, _ = self.right.bind(context)
        joiner, keyed = for_old(context, self.joiner), self.keyed
        left_optional = self.left_optional
        right_optional = self.right_optional

        def get(key: Any) -> tuple[Any, int] | None:
            left = get_left(key)
            if left is None and not left_optional:
                return None
            right = get_right(key)
            left_value = right_value = None
            timestamp = -1
            if left is not None:
                left_value, timestamp = left
            if right is not None:
                right_value, timestamp = right[0], max(timestamp, right[1])
            elif left is None or not right_optional:
                return None
            value = (
                joiner(key, left_value, right_value) if keyed else joiner(left_value, right_value)
            )
            return None if value is None else (value, timestamp)

        def close() -> None:
            close_left()
            close_right()

        return Reader(get, close)
