"""Sampling an app each second, shared by all readers of the page."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import asynccontextmanager
from time import monotonic, thread_time
from typing import TYPE_CHECKING

import ks_actors
from ks_actors.lifecycle import component_log
from ks_actors.web._answers import as_json
from ks_actors.web._group import GroupView, instance_name, look_at_group
from ks_actors.web._trends import Trends
from ks_actors.web._view import (
    EventView,
    Figures,
    TopicView,
    View,
    figures,
    health_view,
    node_views,
    stuck_nodes,
    task_view,
    worker_views,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from ks_actors.app import App
    from ks_actors.runtime import HealthBounds
    from ks_actors.web._graph import Layout
    from ks_actors.web._view import PartitionView, TaskView

_EACH_S = 1.0
# With hundreds of tasks a look takes long: the page is to take no more than this share of a core,
# but takes an instance that tells nothing for longer than 5 s as gone.
_SHARE = 0.01
_SLOWEST_S = 4.0
_GROUP_EACH_S = 2.0
_EVENTS = 50
_log = component_log(__name__)


class Sampler:
    """Sample an app once a second while there are readers, and send the view to all of them.

    If a sample takes more than 10 ms, the next one comes later, after 4 s at the latest.

    Rates are those between two samples. Every two seconds the group's members are looked up,
    independently of the samples, so that a log that does not answer delays no sample.
    """

    def __init__(
        self, app: App, layout: Layout, bounds: HealthBounds, trends: Trends | None = None
    ) -> None:
        self._app = app
        self._layout = layout
        self._bounds = bounds
        self._trends = Trends(app, layout) if trends is None else trends
        self._readers: set[asyncio.Queue[bytes]] = set()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self._group = GroupView()
        self._last_at: float | None = None
        self._last = Figures(0, 0, 0, {}, {})
        self._last_positions: dict[str, int] = {}
        self._events: deque[EventView] = deque(maxlen=_EVENTS)
        self._members: frozenset[str] | None = None
        self._state: str | None = None

    @property
    def readers(self) -> int:
        """The number of readers."""
        return len(self._readers)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[asyncio.Queue[bytes]]:
        """Return a queue with the newest view, as JSON; a slow reader misses views."""
        # Keep one view: a slow reader needs only the newest view, and memory must not grow with its
        # delay.
        queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)
        self._readers.add(queue)
        # An app without readers pays nothing for its page.
        if len(self._readers) == 1:
            # The last sample may be old: a rate over all of that time would mislead.
            self._last_at = None
            self._tasks = (
                asyncio.create_task(self._look_each_second()),
                asyncio.create_task(self._ask_the_group()),
            )
        try:
            yield queue
        finally:
            self._readers.discard(queue)
            if not self._readers:
                await self._stop()

    async def _stop(self) -> None:
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        # Wait for the tasks, so that no sample touches an app that is closed after the last reader
        # has left.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look_each_second(self) -> None:
        while True:
            began = thread_time()
            try:
                view = as_json(self.look())
            except Exception:  # noqa: BLE001 - the page goes on, and the log has the error
                _log.exception("could not read the state of the app; retrying")
            else:
                for queue in self._readers:
                    if queue.full():
                        # This view replaces the unread view.
                        queue.get_nowait()
                    queue.put_nowait(view)
            took = thread_time() - began
            await asyncio.sleep(min(_SLOWEST_S, max(_EACH_S, took / _SHARE)))

    async def _ask_the_group(self) -> None:
        while True:
            try:
                found = await look_at_group(self._app, self._layout)
            except Exception as error:  # noqa: BLE001 - the page goes on, and tells it
                _log.exception("could not look up the group; retrying")
                found = GroupView(error=f"could not look up the group: {error!r}")
            if found.error is None:
                self._group = found
                self._note_members()
            else:
                # Keep the last known members, with the reason why they are old.
                self._group = GroupView(self._group.members, self._group.partitions, found.error)
            await asyncio.sleep(_GROUP_EACH_S)

    def look(self) -> View:
        """Return the view of this moment; rates are those since the last sample."""
        app = self._app
        now = asyncio.get_running_loop().time()
        seconds = None if self._last_at is None else now - self._last_at
        health = health_view(app.health(self._bounds))
        self._note_state(health.state)
        bound = app.config.stall_warning_ms
        tasks = tuple(task_view(task, bound) for task in app.tasks())
        found = figures(app)
        before, self._last = self._last, found
        topics = tuple(self._topics(tasks, before, seconds))
        self._last_at = now
        lags = [topic.lag for topic in topics if topic.lag is not None]
        return View(
            at_ms=_now_ms(),
            application_id=app.config.application_id,
            name=instance_name(app),
            version=ks_actors.__version__,
            guarantee=app.config.processing_guarantee.value,
            uptime_s=None if (since := app._start_report.since) is None else monotonic() - since,
            health=health,
            paused=any(one.reason == "paused" and one.query is None for one in health.problems),
            processed=found.processed,
            processed_rate=_rate(found.processed - before.processed, seconds),
            produced=found.produced,
            produced_rate=_rate(found.produced - before.produced, seconds),
            dropped=found.dropped,
            dropped_rate=_rate(found.dropped - before.dropped, seconds),
            lag=sum(lags) if lags else None,
            trends=self._trends.view(),
            workers=worker_views(app),
            tasks=tasks,
            topics=topics,
            nodes=node_views(tasks, stuck_nodes(tasks)),
            group=self._group,
            events=tuple(self._events),
        )

    def _topics(
        self, tasks: Iterable[TaskView], before: Figures, seconds: float | None
    ) -> Iterable[TopicView]:
        """Add up the partitions of each topic that is read, and add the topics that are written."""
        found = self._last
        reads = _by_topic(tasks)
        positions = {
            one.partition: one.position
            for rows in reads.values()
            for one, _ in rows
            if one.position is not None
        }
        last, self._last_positions = self._last_positions, positions
        for topic in sorted(reads.keys() | found.written.keys()):
            rows = reads.get(topic, [])
            lags = [one.lag for one, _ in rows if one.lag is not None]
            moved = sum(
                max(0, positions[one.partition] - last.get(one.partition, positions[one.partition]))
                for one, _ in rows
                if one.partition in positions
            )
            written = found.written.get(topic)
            yield TopicView(
                topic=topic,
                rate=_rate(moved, seconds) if rows else None,
                written_rate=None
                if written is None
                else _rate(written - before.written.get(topic, 0.0), seconds),
                lag=sum(lags) if lags else None,
                lag_s=found.lag_s.get(topic),
                buffered=sum(one.buffered for one, _ in rows),
                pressure=any(pressed for _, pressed in rows),
            )

    # --- events -----------------------------------------------------------------------------------

    def _note_members(self) -> None:
        # Client ids, because member ids change each time that an instance joins.
        names = frozenset(member.client_id for member in self._group.members)
        # Note nothing after the first answer: these members did not join just now.
        if self._members is not None:
            for name in sorted(names - self._members):
                self._note(f"{name} has joined the group")
            for name in sorted(self._members - names):
                self._note(f"{name} has left the group")
        self._members = names

    def _note_state(self, state: str) -> None:
        if self._state not in {None, state}:
            self._note(f"the app is {state}, was {self._state}")
        self._state = state

    def _note(self, text: str) -> None:
        self._events.append(EventView(_now_ms(), text))


def _by_topic(tasks: Iterable[TaskView]) -> dict[str, list[tuple[PartitionView, bool]]]:
    """Return the partitions of all tasks by topic, and whether they are under back-pressure."""
    found: dict[str, list[tuple[PartitionView, bool]]] = {}
    for task in tasks:
        pressed = {wait.partition for wait in task.waits if wait.pressure}
        for one in task.partitions:
            found.setdefault(one.topic, []).append((one, one.partition in pressed))
    return found


def _rate(count: float, seconds: float | None) -> float | None:
    return None if not seconds else max(0.0, count / seconds)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
