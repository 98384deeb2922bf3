"""Records on their way to a log: gathered by partition, written in order."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context
from functools import partial
from itertools import count, repeat
from math import inf
from typing import TYPE_CHECKING, Any, Final, final

from ks_actors._errors import (
    InvalidRecord,
    LogError,
    LogTimeout,
    NotRunning,
    ProduceFailed,
    RecordTooLarge,
    UnknownTopicOrPartition,
)
from ks_actors.log import Outgoing, WritesBytes
from ks_actors.records import Batch, Partitioner, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Iterator

    from ks_actors.log import Log, Producer
    from ks_actors.records import Headers

# The most bytes of records that are not acknowledged; further calls wait.
_MOST: Final = 32 << 20
# The most bytes of one write to a partition, for a log without a limit of its own.
_PORTION: Final = 1_000_000
# At least the bytes that a record, a header and a record batch add to keys and values.
_RECORD_BYTES: Final = 48
_HEADER_BYTES: Final = 10
_BATCH_BYTES: Final = 61
# Seconds before a request without an answer is repeated.
_PAUSE_S: Final = 0.1
# These errors may concern single records.
_OF_RECORDS: Final = (RecordTooLarge, InvalidRecord)


def size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """Return about how many bytes a record takes in the log, rather too many than too few."""
    size = _RECORD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name.encode()) + len(content or b"") + _HEADER_BYTES
    return size


@final
class Entry:
    """Records of one call for one partition, until their outcome is known.

    `written` becomes the offset of the first record in partition `number`. `deadline` is a time of
    the event loop. `alone` means that the records are written without others, because one of
    several was refused.
    """

    __slots__ = (
        "alone",
        "deadline",
        "headers",
        "keys",
        "number",
        "size",
        "timestamps",
        "values",
        "written",
    )

    def __init__(
        self,
        keys: list[bytes | None],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers] | None,
        size: int,
        written: asyncio.Future[int],
        deadline: float,
    ) -> None:
        self.keys = keys
        self.values = values
        self.timestamps = timestamps
        self.headers = headers
        self.size = size
        self.written = written
        self.deadline = deadline
        self.number = -1
        self.alone = False

    def __len__(self) -> int:
        return len(self.timestamps)

    def fail(self, error: Exception) -> None:
        """Fail, unless the outcome is known, or nobody waits for it any more."""
        if not self.written.done():
            self.written.set_exception(error)


@final
class _Lane:
    """The records for one partition: one write at a time, in the order of calls."""

    __slots__ = ("busy", "in_flight", "place", "sender", "timer", "topic", "waiting")

    def __init__(self, sender: RecordSender, topic: TopicOutput, number: int) -> None:
        self.sender = sender
        self.topic = topic
        self.place = TopicPartition(topic.name, number)
        self.waiting: deque[Entry] = deque()
        self.in_flight: list[Entry] = []
        self.busy = False
        self.timer: asyncio.TimerHandle | None = None

    def put(self, entry: Entry) -> None:
        """Append records; they are written when those before them are."""
        self.waiting.append(entry)
        if self.timer is None:
            self.timer = self.sender.loop.call_at(entry.deadline, self._expire)
        if not self.busy:
            self.busy = True
            # Begin after the callbacks of this iteration of the event loop: the calls of all tasks
            # that run in the iteration share a write.
            self.sender.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self.sender.spawn(self._write_all(), f"send to {self.place}")

    async def _write_all(self) -> None:
        try:
            while entries := self._take():
                self.in_flight = entries
                await self._write(entries)
                self.in_flight = []
        finally:
            self.busy = False
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

    def _take(self) -> list[Entry]:
        """Remove the records of the next write. Those of cancelled calls are dropped."""
        taken: list[Entry] = []
        room = self.topic.portion
        while self.waiting:
            entry = self.waiting[0]
            if entry.written.done():
                self.sender.release(entry.size)
            elif taken and (entry.size > room or entry.alone or taken[0].alone):
                break
            else:
                room -= entry.size
                taken.append(entry)
            self.waiting.popleft()
        return taken

    async def _write(self, entries: list[Entry]) -> None:
        outgoing = Outgoing(self.place, _joined(entries))
        try:
            while (producer := await self.sender.producer(self.topic.name)) is None:
                if all(entry.written.done() for entry in entries):
                    self.sender.release(sum(entry.size for entry in entries))
                    return
            (end,) = await producer.send([outgoing])
        except ProduceFailed as failed:
            self._refused(entries, failed.errors.get(self.place, failed))
        except Exception as error:  # noqa: BLE001 - callers wait for the outcome
            self._refused(entries, error)
        else:
            offset = end - len(outgoing.batch)
            for entry in entries:
                if not entry.written.done():
                    entry.written.set_result(offset)
                offset += len(entry)
                self.sender.release(entry.size)

    def _refused(self, entries: list[Entry], error: Exception) -> None:
        """Fail the records of a refused write; those without a fault are written again."""
        if isinstance(error, UnknownTopicOrPartition):
            self.topic.forget()
        faulty = entries
        if isinstance(error, _OF_RECORDS) and len(entries) > 1:
            faulty = _of_records(entries, error.records)
            if len(faulty) in (0, len(entries)):
                # The broker has not named single records, or names all of the batch.
                for entry in entries:
                    entry.alone = True
                faulty = []
        for entry in reversed(entries):
            if entry in faulty:
                self.sender.release(entry.size)
                entry.fail(_named(self.place, error))
            else:
                self.waiting.appendleft(entry)

    def _expire(self) -> None:
        """Fail the records that are too late; a write in progress may still succeed."""
        now = self.sender.loop.time()
        for entry in self.in_flight:
            if entry.deadline <= now:
                entry.fail(self.sender.too_late(f"{self.place} did not acknowledge records", "may"))
        while self.waiting and self.waiting[0].deadline <= now:
            entry = self.waiting.popleft()
            self.sender.release(entry.size)
            entry.fail(self.sender.too_late(f"{self.place} did not accept records", "will not"))
        pending = [each.deadline for each in self.in_flight if not each.written.done()]
        pending += [self.waiting[0].deadline] if self.waiting else []
        self.timer = self.sender.loop.call_at(min(pending), self._expire) if pending else None

    def give_up(self, error: Callable[[], Exception]) -> None:
        """Fail all records."""
        for entry in (*self.in_flight, *self.waiting):
            entry.fail(error())
        self.waiting.clear()


@final
class TopicOutput:
    """The records for one topic: a lane per partition, and records without a partition so far.

    `portion` is the most bytes of one write: no more than one record batch, so that its records
    have successive offsets.
    """

    __slots__ = (
        "_lanes",
        "_looking",
        "_seen",
        "_sender",
        "_unplaced",
        "name",
        "partitions",
        "portion",
        "spread",
    )

    def __init__(self, sender: RecordSender, name: str) -> None:
        self.name = name
        self.partitions: Partitioner | None = None
        self.portion: int = _PORTION
        self.spread: Iterator[int] = count(sender.clock())
        self._sender = sender
        self._lanes: dict[int, _Lane] = {}
        self._unplaced: deque[tuple[Entry, Callable[[Partitioner], int]]] = deque()
        self._looking = False
        # The time of the last lookup.
        self._seen = -inf

    def forget(self) -> None:
        """Look the topic up again before the next record: it was deleted."""
        self.partitions = None

    def put(self, entry: Entry, place: Callable[[Partitioner], int]) -> None:
        """Send records to the partition that `place` chooses among those of the topic.

        Raises the error of `place`, unless the number of partitions is still to be looked up.
        """
        partitions = self.partitions
        if partitions is None:
            self._unplaced.append((entry, place))
            self._look_up()
            return
        if self._sender.loop.time() - self._seen > self._sender.max_age_s:
            self._look_up()
        try:
            entry.number = place(partitions)
        except BaseException:
            self._sender.release(entry.size)
            raise
        self.lane(entry.number).put(entry)

    def lane(self, number: int) -> _Lane:
        """Return the lane of a partition."""
        found = self._lanes.get(number)
        if found is None:
            found = self._lanes[number] = _Lane(self._sender, self, number)
        return found

    async def known(self, deadline: float) -> Partitioner:
        """Return the topic's partitions. Raises the error of the lookup."""
        if self.partitions is None:
            loop = self._sender.loop
            entry = Entry([], [], [], None, 0, loop.create_future(), deadline)
            self._unplaced.append((entry, lambda _: -1))
            self._look_up()
            await entry.written
        assert self.partitions is not None
        return self.partitions

    def _look_up(self) -> None:
        if not self._looking:
            self._looking = True
            self._sender.spawn(self._do_look_up(), f"look up topic {self.name}")

    async def _do_look_up(self) -> None:
        try:
            while not await self._look_once():
                pass
        finally:
            self._looking = False
        if self.partitions is not None:
            self._place_all(self.partitions)

    async def _look_once(self) -> bool:
        """Look the topic up; return whether the lookup must not be repeated."""
        loop = self._sender.loop
        self._seen = loop.time()
        # Without records that wait, a lookup is a refresh, and has the log's own deadline.
        deadline = min((entry.deadline for entry, _ in self._unplaced), default=None)
        try:
            async with asyncio.timeout_at(deadline):
                found = await self._sender.log.describe_topics([self.name])
        except (TimeoutError, LogTimeout) as late:
            now = loop.time()
            for entry, _ in self._unplaced:
                if entry.deadline <= now:
                    entry.fail(
                        self._sender.too_late(f"topic {self.name} was not found", "will not", late)
                    )
            self._drop_done()
            if not self._unplaced:
                return True
            await asyncio.sleep(_PAUSE_S)
            return False
        except Exception as error:  # noqa: BLE001 - callers wait for the outcome
            self._fail_unplaced(partial(_renewed, error))
            return True
        described = found.get(self.name)
        if described is None:
            self.forget()
            self._fail_unplaced(
                lambda: UnknownTopicOrPartition(
                    f"topic {self.name} does not exist, so no record was sent to it: create it, "
                    f'as App(topics={{"{self.name}": 4}}), Publisher.create_topics or '
                    "`ks-actors topics create` do"
                )
            )
            return True
        if self.partitions is None or self.partitions.partitions != described.partitions:
            self.partitions = Partitioner(described.partitions)
        limit = described.configs.get("max.message.bytes", "")
        most = min(self._sender.portion, int(limit) if limit.isdecimal() else self._sender.portion)
        self.portion = most - _BATCH_BYTES
        return True

    def _place_all(self, partitions: Partitioner) -> None:
        unplaced, self._unplaced = self._unplaced, deque()
        for entry, place in unplaced:
            if entry.written.done():
                self._sender.release(entry.size)
                continue
            try:
                entry.number = place(partitions)
            except Exception as error:  # noqa: BLE001 - a user's partitioner; the caller gets it
                self._sender.release(entry.size)
                entry.fail(error)
                continue
            if len(entry):
                self.lane(entry.number).put(entry)
            else:
                entry.written.set_result(-1)

    def _fail_unplaced(self, error: Callable[[], Exception]) -> None:
        for entry, _ in self._unplaced:
            entry.fail(error())
        self._drop_done()

    def _drop_done(self) -> None:
        for entry, _ in self._unplaced:
            if entry.written.done():
                self._sender.release(entry.size)
        self._unplaced = deque(each for each in self._unplaced if not each[0].written.done())

    def give_up(self, error: Callable[[], Exception]) -> None:
        """Fail all records."""
        self._fail_unplaced(error)
        for lane in self._lanes.values():
            lane.give_up(error)


@final
class RecordSender:
    """Send records to topics of a log, by an idempotent producer of its own.

    Records of one partition are written in the order of calls, in one write at a time; records of
    calls meanwhile are gathered for the next write. Partitions do not wait for each other. Calls
    wait while 32 MiB of records are not acknowledged.
    """

    def __init__(
        self,
        log: Log,
        *,
        client_id: str,
        who: str,
        clock: Callable[[], int],
        timeout_ms: int,
        max_age_ms: int,
    ) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.log: Log = log
        self.clock: Callable[[], int] = clock
        self.max_age_s: float = max_age_ms / 1000
        self.portion: int = log.batch_bytes if isinstance(log, WritesBytes) else _PORTION
        self._client_id = client_id
        self._who = who
        self._timeout_ms = timeout_ms
        self._topics: dict[str, TopicOutput] = {}
        self._producer: asyncio.Task[Producer] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # Tasks outlive the calls that begin them, and must not run in their contexts.
        self._context = copy_context()
        self._bytes = 0
        self._waiters: deque[tuple[asyncio.Future[None], int]] = deque()
        self.closed = False

    def deadline(self) -> float:
        """Return the deadline of records that are sent now, in the loop's time."""
        return self.loop.time() + self._timeout_ms / 1000

    def too_late(self, what: str, written: str, cause: BaseException | None = None) -> LogTimeout:
        """Return the error for records that are too late."""
        error = LogTimeout(
            f"{what} within {self._timeout_ms} ms (delivery_timeout_ms): the records {written} be "
            "written"
        )
        error.__cause__ = cause
        return error

    def ended(self) -> NotRunning:
        """Return the error for records that were not acknowledged before the end."""
        return NotRunning(
            f"{self._who} was closed before the log acknowledged the record, which may be written"
        )

    def check_open(self) -> None:
        """Raise NotRunning after the close."""
        if self.closed:
            raise NotRunning(f"{self._who} is closed: send records before its end")

    def topic(self, name: str) -> TopicOutput:
        """Return the records for a topic."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicOutput(self, name)
        return found

    def spawn(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run work in a task that `close` waits for."""
        # A copy for each task, because an eager task may begin inside another task.
        task = self.loop.create_task(work, name=name, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def producer(self, topic: str) -> Producer | None:
        """Return the producer, made for the first record; None if the log did not answer."""
        if self._producer is None or (
            self._producer.done() and self._producer.exception() is not None
        ):
            self._producer = self.spawn(self._made(topic), "make a producer")
        try:
            return await asyncio.shield(self._producer)
        except LogTimeout:
            await asyncio.sleep(_PAUSE_S)
            return None

    async def _made(self, topic: str) -> Producer:
        return await self.log.producer(client_id=self._client_id, topics=[topic])

    # --- room -------------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether records may be sent at once."""
        return self._bytes < _MOST and not self._waiters

    def take(self, size: int) -> None:
        """Count records that are to be sent."""
        self._bytes += size

    async def wait_for_room(self, size: int, deadline: float) -> None:
        """Wait until records may be sent, in the order of calls, and count them.

        Raises LogTimeout, and NotRunning after the close.
        """
        waiter = self.loop.create_future()
        self._waiters.append((waiter, size))
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except TimeoutError as late:
            self._withdraw(waiter, size)
            what = f"{_MOST >> 20} MiB of earlier records were not acknowledged"
            raise self.too_late(what, "will not") from late
        except BaseException:
            self._withdraw(waiter, size)
            raise

    def _withdraw(self, waiter: asyncio.Future[None], size: int) -> None:
        if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
            self.release(size)
        else:
            self._waiters = deque(each for each in self._waiters if each[0] is not waiter)

    def release(self, size: int) -> None:
        """Note that the outcome of records is known."""
        self._bytes -= size
        while self._waiters and self._bytes < _MOST:
            waiter, wanted = self._waiters.popleft()
            if not waiter.done():
                self._bytes += wanted
                waiter.set_result(None)

    # --- end --------------------------------------------------------------------------------------

    async def close(self, until: float) -> None:
        """Wait for all records until a time of the loop, then fail the others; close the producer.

        Further records are refused at once.
        """
        self.closed = True
        for waiter, _ in self._waiters:
            if not waiter.done():
                waiter.set_exception(self.ended())
        self._waiters.clear()
        # A lane begins its task in the next iteration of the event loop.
        await asyncio.sleep(0)
        while self._tasks and (left := until - self.loop.time()) > 0:
            await asyncio.wait(tuple(self._tasks), timeout=None if left == inf else left)
        for topic in self._topics.values():
            topic.give_up(self.ended)
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        made = self._producer
        if made is not None and not made.cancelled() and made.exception() is None:
            await made.result().close()


def _joined(entries: list[Entry]) -> Batch:
    if len(entries) == 1:
        (entry,) = entries
        return Batch(entry.keys, entry.values, entry.timestamps, entry.headers)
    batch = Batch([], [], [])
    headers: list[Headers] | None = None if all(entry.headers is None for entry in entries) else []
    for entry in entries:
        batch.keys += entry.keys
        batch.values += entry.values
        batch.timestamps += entry.timestamps
        if headers is not None:
            headers += repeat((), len(entry)) if entry.headers is None else entry.headers
    batch.headers = headers
    return batch


def _of_records(entries: list[Entry], indexes: Iterable[int]) -> list[Entry]:
    """Return the entries with the records of these indexes, counted through all entries."""
    wanted = frozenset(indexes)
    found: list[Entry] = []
    start = 0
    for entry in entries:
        if not wanted.isdisjoint(range(start, start + len(entry))):
            found.append(entry)
        start += len(entry)
    return found


def _renewed(error: Exception, text: str | None = None) -> Exception:
    """Return a copy of an error for one of several callers, with a traceback of its own.

    The copy lacks the records' numbers in the write, which mean nothing to a caller.
    """
    if not isinstance(error, LogError) or isinstance(error, ProduceFailed):
        return error
    try:
        made = type(error)(str(error) if text is None else text)
    except TypeError:
        return error
    made.__cause__ = error
    return made


def _named(place: TopicPartition, error: Exception) -> Exception:
    """Return the error for one caller with records of a partition, which its text names."""
    text = str(error)
    return _renewed(error, text if str(place) in text else f"{place}: {text}")
