"""The stores' part in a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never, final

from ks_actors.log import Outgoing
from ks_actors.records import TopicPartition
from ks_actors.runtime import messages as m

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from actors import Ref
    from ks_actors.records import TaskId
    from ks_actors.state import TaskStores
    from ks_actors.task import StoreRegistry

# Records per message to the collector.
_TOGETHER: Final = 500


@final
class StateCommit:
    """The stores' steps in a commit: write changelogs, persist other stores, publish.

    `stores` are the open stores. `turn` starts a turn, or continues the turn that began at the
    given time; a long turn yields to other tasks. The log writes at most `batch_bytes` of records
    in one batch; with 0 it takes columns.
    """

    def __init__(
        self,
        stores: Mapping[TaskId, TaskStores],
        changelog: Callable[[str], str],
        collector: Ref[m.CollectorMessage],
        store_registry: StoreRegistry,
        turn: Callable[[float | None], Awaitable[float]],
        *,
        batch_bytes: int,
    ) -> None:
        self._stores = stores
        self._changelog = changelog
        self._collector = collector
        self._store_registry = store_registry
        self._turn = turn
        self._batch_bytes: int = batch_bytes

    async def take_part(
        self, message: m.EncodeChangelog | m.PersistUnlogged | m.CommitSucceeded
    ) -> None:
        """Do one step of a commit, and answer."""
        try:
            match message:
                case m.EncodeChangelog():
                    message.reply.tell(await self._encode(message))
                    return
                case m.PersistUnlogged():
                    for task, token in message.frozen.tokens.items():
                        self._stores[task].persist_unlogged(token)
                case m.CommitSucceeded():
                    self._publish(message)
                case _:
                    assert_never(message)
        except Exception as error:  # noqa: BLE001 - the committer decides what it means
            message.reply.fail(error)
        else:
            message.reply.tell(None)

    async def _encode(self, message: m.EncodeChangelog) -> dict[TopicPartition, int]:
        began = await self._turn(None)
        known: dict[TopicPartition, int] = {}
        # Group small batches: one message per task would cost more than its few records.
        batches: list[Outgoing] = []
        records = 0
        for task, token in message.frozen.tokens.items():
            stores = self._stores[task]
            for name, batch in stores.changelog(token, batch_bytes=self._batch_bytes):
                changelog = TopicPartition(self._changelog(name), task.partition)
                known[changelog] = stores.next_offset(name) or 0
                batches.append(Outgoing(changelog, batch))
                records += len(batch)
                if records >= _TOGETHER:
                    self._collector.tell(m.Output(batches, message.epoch))
                    batches, records = [], 0
                # A yield may last as long as the slices of all workers, so do not yield per batch.
                began = await self._turn(began)
        if batches:
            self._collector.tell(m.Output(batches, message.epoch))
        return known

    def _ends(self, task: TaskId, stores: TaskStores, message: m.CommitSucceeded) -> dict[str, int]:
        """Return the next offsets of changelogs; for source topics, the task's own positions."""
        found: dict[str, int] = {}
        for name in stores.logged:
            changelog = TopicPartition(self._changelog(name), task.partition)
            end = (
                # For this store no changelog record was written: its changelog is the topic that
                # the task reads.
                message.frozen.positions[changelog].offset
                if name in stores.sources
                else message.ends.get(changelog)
            )
            if end is not None:
                found[name] = end
        return found

    def _publish(self, message: m.CommitSucceeded) -> None:
        # Queries report the position of tasks without stores, too.
        for task in message.frozen.tasks.keys() & self._store_registry.stateless.keys():
            self._store_registry.committed(task, message.frozen)
        for task, token in message.frozen.tokens.items():
            stores = self._stores.get(task)
            # The stores were closed after the freeze. The commit is valid anyway: the next opening
            # reads it from the changelog.
            if stores is None:
                continue
            stores.publish(token, self._ends(task, stores, message))
            self._store_registry.committed(task, message.frozen)
