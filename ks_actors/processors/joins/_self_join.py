"""A stream joined with itself; its records are stored once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from ks_actors.processors.api import Bound
from ks_actors.processors.stateless import Inline

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import JoinWindowsForOperators, NodeContext
    from ks_actors.records import Headers


@final
@dataclass(frozen=True, kw_only=True)
class SelfJoin(Inline):
    """Join records with those in `store` and with themselves.

    Each record is joined, as the left side, with records from `before_ms` before to `after_ms`
    after its time; then, as the right side, with the window reversed. Results and their order are
    those of the join of two streams, with one exception. A record joins itself if it is less than
    `retention_ms` minus 1 ms behind stream time, regardless of the windows. (Kafka Streams'
    KStreamKStreamSelfJoin does the same.) Records without key or value are dropped.
    """

    store: str
    joiner: Callable[..., Any]
    before_ms: int
    after_ms: int
    retention_ms: int
    keyed: bool = False

    def bind(self, context: NodeContext) -> Bound:
        """Make the functions of one task."""
        forward, keyed, given = context.forward, self.keyed, self.joiner
        store: JoinWindowsForOperators = context.store(self.store)
        fetch = store.fetch_entries
        before, after, retention = self.before_ms, self.after_ms, self.retention_ms
        now = store.observed  # The store keeps stream time across a restart.

        def joined(key: Any, left: Any, right: Any) -> Any:
            return given(key, left, right) if keyed else given(left, right)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            nonlocal now
            if key is None or value is None:
                context.dropped()
                return
            with_itself = joined(key, value, value)
            now = max(now, timestamp)
            due = timestamp > now - retention + 1
            for time, (other, _) in fetch(
                key, max(0, timestamp - before), max(0, timestamp + after)
            ):
                forward(key, joined(key, value, other), max(timestamp, time), headers)
            for time, (other, _) in fetch(
                key, max(0, timestamp - after), max(0, timestamp + before)
            ):
                # The pair of the record with itself has its place in the order of time.
                if due and time > timestamp:
                    due = False
                    forward(key, with_itself, timestamp, headers)
                forward(key, joined(key, other, value), max(timestamp, time), headers)
            if due:
                forward(key, with_itself, timestamp, headers)

        return Bound(process)
