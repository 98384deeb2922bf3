"""The times since when no member of the group reads partitions of the topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from ks_actors.lifecycle import component_log
from ks_actors.runtime.watch._standstills import warnings_due

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from ks_actors.records import TopicPartition

UNREAD_TEXT = (
    "no member of the group reads it, though the topology of this instance does: the group is "
    "about to assign it, waits for its last member to give it up, or has an assignor that fails"
)
_NAMES = 50
_log = component_log(__name__)


class NotAssigned(NamedTuple):
    """A partition that no member reads: since when, and the number of offsets that wait."""

    since: float
    lag: int

    @property
    def text(self) -> str:
        """The reason in words."""
        return UNREAD_TEXT


@final
class UnreadPartitions:
    """Track the partitions that no member reads, and warn of them.

    Warns after `bound` seconds, twice that, four times that, and so on.
    """

    def __init__(self, bound: float) -> None:
        self._bound: float = bound
        self._found: dict[TopicPartition, NotAssigned] = {}
        self._warnings: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """Start over."""
        self._found.clear()
        self._warnings.clear()

    def note(self, lags: Mapping[TopicPartition, int], now: float) -> None:
        """Note the partitions that no member reads now, with the number of offsets that wait.

        Log the partitions that are read again.
        """
        before, self._found = self._found, {}
        for partition, lag in lags.items():
            since = before[partition].since if partition in before else now
            self._found[partition] = NotAssigned(since, lag)
        for partition in before.keys() - lags.keys():
            if self._warnings.pop(partition, 0):
                _log.info(
                    "%s is read again, or has no more records, after it had no reader for %.0f s",
                    partition,
                    now - before[partition].since,
                )

    def all(
        self, still: Callable[[], frozenset[TopicPartition]]
    ) -> dict[TopicPartition, NotAssigned]:
        """Return the partitions that no member reads.

        Partitions that are not in `still` are left out: this instance reads them by now.
        """
        if not self._found:
            return {}
        missing = still()
        return {
            partition: one for partition, one in sorted(self._found.items()) if partition in missing
        }

    def tell(self, unread: Mapping[TopicPartition, NotAssigned], now: float) -> int:
        """Warn of partitions that have waited for long; return how many there are."""
        stalled = {
            partition: one for partition, one in unread.items() if now - one.since >= self._bound
        }
        warnings = {
            partition: warnings_due(now - one.since, self._bound)
            for partition, one in stalled.items()
        }
        due = [
            partition
            for partition, count in warnings.items()
            if count > self._warnings.get(partition, 0)
        ]
        self._warnings.update(warnings)
        if due:
            longest = max(now - stalled[partition].since for partition in due)
            names = ", ".join(
                f"{partition} ({stalled[partition].lag} offsets)" for partition in due[:_NAMES]
            )
            more = f" and {len(due) - _NAMES} more" if len(due) > _NAMES else ""
            _log.warning(
                "records have waited for %.0f s in %s%s: %s", longest, names, more, UNREAD_TEXT
            )
        return len(stalled)
