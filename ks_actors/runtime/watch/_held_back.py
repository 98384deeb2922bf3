"""Records that an open transaction of another producer holds back."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, final

from ks_actors.lifecycle import component_log
from ks_actors.runtime.watch._standstills import warnings_due

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ks_actors.records import TaskId, TopicPartition

_log = component_log(__name__)
# The most partitions to log with their own line, and the most to name in a summary line.
_LINES = 10


class HeldBack(NamedTuple):
    """Offsets from `begin` (inclusive) to `end`, which no reader of committed records gets yet.

    `since` is the time (s) when this was noticed.
    """

    begin: int
    end: int
    since: float

    @property
    def lag(self) -> int:
        """The number of offsets that wait."""
        return self.end - self.begin

    @property
    def text(self) -> str:
        """The reason in words."""
        return (
            f"an open transaction holds back {self.lag} offsets "
            f"from {self.begin} on, until it ends, or times out by its transaction.timeout.ms; if "
            "it hangs, `kafka-transactions.sh find-hanging` finds it, and `abort` ends it"
        )


@final
class OpenTransactions:
    """Track partitions whose last stable offset stays before the end of the log.

    Warns after `bound` seconds, twice that, four times that, and so on. The app's `own` topics, to
    which it writes, are left out: the app has its own transactions there, which end by its commits.
    """

    def __init__(self, bound: float, own: Iterable[str]) -> None:
        self._bound: float = bound
        self._own: frozenset[str] = frozenset(own)
        self._found: dict[TopicPartition, HeldBack] = {}
        self._warnings: dict[TopicPartition, int] = {}

    def forget(self) -> None:
        """Start over."""
        self._found.clear()
        self._warnings.clear()

    def note(
        self, stable: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], now: float
    ) -> None:
        """Note last stable offsets, and the ends of the same logs looked up after them.

        Log the partitions that move again after a warning. Partitions without an end were not
        looked up.
        """
        before, self._found = self._found, {}
        for partition, end in ends.items():
            begin = stable.get(partition, end)
            if begin < end and partition.topic not in self._own:
                known = before.get(partition)
                since = now if known is None or known.begin != begin else known.since
                self._found[partition] = HeldBack(begin, end, since)
        for partition, one in before.items():
            now_held = self._found.get(partition)
            ended = now_held is None or now_held.since != one.since
            if ended and self._warnings.pop(partition, 0) and partition in ends:
                _log.info(
                    "the transaction in %s at offset %d has ended, after records had waited for "
                    "%.0f s",
                    partition,
                    one.begin,
                    now - one.since,
                )

    def of(self, partition: TopicPartition, position: int | None) -> HeldBack | None:
        """Return the held-back records of a partition that is processed up to `position`.

        If `position` is beyond the last known stable offset, the transaction has ended.
        """
        found = self._found.get(partition)
        return found if found is not None and position == found.begin else None

    def tell(self, held: Mapping[TopicPartition, tuple[TaskId, HeldBack]], now: float) -> None:
        """Warn of partitions that have waited for `bound` seconds or longer."""
        due: list[TopicPartition] = []
        for partition, (_, one) in held.items():
            count = warnings_due(now - one.since, self._bound)
            if count > self._warnings.get(partition, 0):
                self._warnings[partition] = count
                due.append(partition)
        for partition in due[:_LINES]:
            task, one = held[partition]
            line = "%s of task %s has waited for %.0f s (transaction): %s"
            _log.warning(line, partition, task, now - one.since, one.text)
        if due[_LINES:]:
            _log.warning(
                "%d more partitions wait for open transactions; App.waiting() names them",
                len(due) - _LINES,
            )
