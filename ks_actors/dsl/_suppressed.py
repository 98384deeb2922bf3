"""Options of suppress: when changes of a table are forwarded, and how many may wait."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, final

from ks_actors._errors import TopologyError
from ks_actors._hints import Hinted
from ks_actors.dsl import _table
from ks_actors.dsl._logic import add_logic
from ks_actors.dsl.graph import Closes
from ks_actors.processors.api import (
    check_configs,
    check_flag,
    check_kind,
    check_one_of,
    check_whole,
    checked_ms,
)
from ks_actors.processors.tables import BufferedChangeSerde, Suppress, SuppressView
from ks_actors.topology import StoreKind, StoreSpec, valid_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from ks_actors.dsl._table import Table
    from ks_actors.dsl.graph import GraphNode
    from ks_actors.processors.api import Operator
    from ks_actors.processors.tables import View

K = TypeVar("K")
V = TypeVar("V")

_SUPPRESS = "KTABLE-SUPPRESS-"


@final
@dataclass(frozen=True)
class BufferConfig(metaclass=Hinted):
    """Limits for waiting changes (at most one per key): their number, or their serialized bytes.

    None is no limit. When the buffer is full, the first changes are emitted early, or processing
    ends. Waiting changes are in memory, and in a changelog topic unless `logging` is off.
    """

    max_records: int | None = None
    max_bytes: int | None = None
    when_full: Literal["emit_early", "shut_down"] = "shut_down"
    logging: bool = True
    changelog_configs: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, limit in (("max_records", self.max_records), ("max_bytes", self.max_bytes)):
            if limit is not None:
                check_whole(limit, role=name, of="BufferConfig", least=0)
        check_one_of(
            self.when_full, ("emit_early", "shut_down"), role="when_full", of="BufferConfig"
        )
        check_flag(self.logging, role="logging", of="BufferConfig")
        check_configs(self.changelog_configs, role="changelog_configs", of="BufferConfig")

    @classmethod
    def unbounded(cls) -> BufferConfig:
        """Return the config of a buffer without limits."""
        return cls()


@final
@dataclass(frozen=True, init=False)
class Suppressed(metaclass=Hinted):
    """The time at which changes of a table are forwarded.

    Made by `until_time_limit` and `until_window_closes`; in the latter `wait_ms` is None. With
    `idle_after_ms`, stream time also advances by the wall clock: when the task of one partition has
    received no change for that time (ms), and has read everything in its topics.
    """

    wait_ms: int | None
    buffer: BufferConfig
    name: str | None = None
    idle_after_ms: int | None = None

    def __init__(
        self,
        wait_ms: int | timedelta | None,
        buffer: BufferConfig,
        name: str | None = None,
        idle_after_ms: int | timedelta | None = None,
    ) -> None:
        if wait_ms is not None:
            wait_ms = checked_ms(wait_ms, role="wait_ms", of="Suppressed", least=0)
        if idle_after_ms is not None:
            idle_after_ms = checked_ms(
                idle_after_ms, role="idle_after_ms", of="Suppressed", least=1
            )
        object.__setattr__(self, "wait_ms", wait_ms)
        object.__setattr__(self, "buffer", buffer)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "idle_after_ms", idle_after_ms)
        check_kind(
            self.buffer,
            BufferConfig,
            role="buffer",
            of="Suppressed",
            remedy="give a BufferConfig, such as BufferConfig.unbounded()",
        )
        if self.name is not None:
            valid_name(self.name)

    @classmethod
    def until_time_limit(
        cls,
        wait_ms: int | timedelta,
        buffer: BufferConfig,
        *,
        idle_after_ms: int | timedelta | None = None,
    ) -> Suppressed:
        """Forward a key's latest change when stream time is `wait_ms` past its first change.

        With `idle_after_ms`, stream time also advances while no change comes, so the last changes
        are forwarded, too.
        """
        return cls(wait_ms, buffer, idle_after_ms=idle_after_ms)

    @classmethod
    def until_window_closes(
        cls, buffer: BufferConfig, *, idle_after_ms: int | timedelta | None = None
    ) -> Suppressed:
        """Forward one result of each window, when it has closed: after its end and grace period.

        Deleted results are not forwarded. The buffer must not emit early: that would make more than
        one result.

        With `idle_after_ms` windows also close while no change comes. The table still takes records
        for them until its own stream time has passed them; the changes from these records are
        dropped here and counted, so that each window has one result.
        """
        check_kind(
            buffer,
            BufferConfig,
            role="buffer",
            of="Suppressed",
            remedy="give a BufferConfig, such as BufferConfig.unbounded()",
        )
        if buffer.when_full == "emit_early" and (
            buffer.max_records is not None or buffer.max_bytes is not None
        ):
            raise TopologyError(
                "a buffer that emits early cannot wait until windows close: let it shut down when "
                "it is full, or remove its limits"
            )
        return cls(None, buffer, idle_after_ms=idle_after_ms)

    def with_name(self, name: str) -> Suppressed:
        """Return a copy with this name for its node; the store's name is this name and `-store`."""
        return replace(self, name=name)


class SuppressLogic:
    """A table with suppressed changes; old values tell which values were sent last."""

    def __init__(
        self, parent: Table[Any, Any], spec: StoreSpec, suppressed: Suppressed, closes: Closes
    ) -> None:
        self._parent: Table[Any, Any] = parent
        self._spec: StoreSpec = spec
        self._suppressed: Suppressed = suppressed
        self._closes: Closes = closes
        parent.send_old(force=True)

    def operator(self) -> Operator:
        """Make the operator."""
        buffer = self._suppressed.buffer
        return Suppress(
            store=self._spec.name,
            wait_ms=self._closes.grace_ms,
            until_close=self._suppressed.wait_ms is None,
            end_included=self._closes.end_included,
            max_records=buffer.max_records,
            max_bytes=buffer.max_bytes,
            shut_down=buffer.when_full == "shut_down",
            idle_after_ms=self._suppressed.idle_after_ms,
        )

    def stores(self) -> Sequence[StoreSpec]:
        """Return the store of waiting changes."""
        return (self._spec,)

    def view(self) -> View:
        """Return the parent's view, with the prior values of waiting changes."""
        return SuppressView(self._parent.view(), self._spec.name)

    @property
    def history_ms(self) -> int | None:
        """None: a waiting change is not part of a history."""
        return None

    def send_old(self, *, force: bool) -> bool:
        """Send old values; the parent was forced to send them."""
        return self._parent.send_old(force=force)


def suppress(table: Table[K, V], suppressed: Suppressed) -> Table[K, V]:
    """Hold back the changes of a table."""
    graph, buffer = table.graph, suppressed.buffer
    if table.has_versioned_store:
        raise TopologyError(
            f"table {table.node.name} has a versioned store, and its changes cannot be suppressed: "
            "suppress a table without history"
        )
    name = (
        graph.new_processor_name(_SUPPRESS)
        if suppressed.name is None
        else valid_name(suppressed.name)
    )
    wait_ms = suppressed.wait_ms
    closes = _closes(table) if wait_ms is None else Closes(wait_ms, end_included=False)
    spec = StoreSpec(
        name=graph.new_store_name(_SUPPRESS) if suppressed.name is None else f"{name}-store",
        kind=StoreKind.KEY_VALUE,
        key=table.key,
        value=BufferedChangeSerde(table.value),
        # As in Kafka Streams, which has no such buffer on disk.
        type="in_memory",
        logging=buffer.logging,
        changelog_configs=dict(buffer.changelog_configs),
    )
    logic = SuppressLogic(table, spec, suppressed, closes)
    node = add_logic(graph, name, logic, table.node)
    return _table.Table(graph, node, frozenset({table.node.name}), table.key, table.value, logic)


def _closes(table: Table[Any, Any]) -> Closes:
    """Return when a table's windows close: the latest of all aggregations that it results from.

    As in Kafka Streams, the search goes up the graph through all operations, to the first
    aggregation by windows on each path.

    Raises TopologyError if a path leads to a source without such an aggregation.
    """
    found: list[Closes] = []
    seen: set[GraphNode] = set()
    waiting = [table.node]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.closes is not None:
            found.append(node.closes)
        elif table.graph.root in node.parents:
            raise TopologyError(
                f"table {table.node.name} has no windows that close, because it is made from "
                f"{node.name} without an aggregation by windows between them: use "
                "Suppressed.until_time_limit, or aggregate all its input by windows"
            )
        else:
            waiting += node.parents
    return max(found)
