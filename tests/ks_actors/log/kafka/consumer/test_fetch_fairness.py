"""No wanted partition stays unread, whatever the others do: against a broker in memory, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors.log import TopicPartition
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.consumer._fetch_broker import FetchBroker
from ks_actors.log.kafka.consumer._fetcher import KafkaFetcher
from tests.examples_of import examples
from tests.ks_actors.log.kafka.consumer.scripted import ScriptedBroker, fetching, partitions
from tests.ks_actors.runtime.helpers import in_virtual_time

# In seconds: a request is put off for 10 ms, or 20, and the way to the broker and back is 2 ms.
BOUND = 0.05
RECORD = b"v" * 100


def now() -> float:
    return asyncio.get_running_loop().time()


class Reader:
    """Fetches all the time; knows when records of each partition came, and sees that they come once and in order."""

    def __init__(self, fetcher: KafkaFetcher) -> None:
        self.fetcher = fetcher
        self.next: dict[TopicPartition, int] = {}
        self.at: dict[TopicPartition, float] = {}
        self.news = asyncio.Event()
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while True:
            for fetched in await self.fetcher.fetch(max_wait_ms=100):
                offsets = list(fetched.batch.offsets)
                assert offsets == list(range(self.next.get(fetched.partition, 0), fetched.next_offset))
                self.next[fetched.partition] = fetched.next_offset
                self.at[fetched.partition] = now()
            self.news.set()

    async def until(self, met: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not met():
                if self._task.done():
                    self._task.result()
                self.news.clear()
                await self.news.wait()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.fetcher.close()


async def trickle(broker: ScriptedBroker, partition: TopicPartition, every_s: float) -> None:
    while True:
        broker.append(partition, RECORD)
        await asyncio.sleep(every_s)


@pytest.mark.parametrize("every_ms", [0.5, 1, 2, 3, 7, 11, 40, 90])
@pytest.mark.parametrize("linger_ms", [0, 10])
@in_virtual_time
async def test_a_partition_is_read_while_others_trickle(every_ms: float, linger_ms: int) -> None:
    """A record of a partition that was quiet waits for no more than a bound."""
    busy, other, *quiet = partitions(6)
    broker = ScriptedBroker(KafkaOptions(linger_ms=linger_ms))
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys((busy, other, *quiet), 0))
    reader = Reader(fetcher)
    flows = [asyncio.ensure_future(trickle(broker, partition, every_ms / 1000)) for partition in (busy, other)]
    for turn in range(40):
        await asyncio.sleep(0.037)
        partition = quiet[turn % len(quiet)]
        broker.append(partition, RECORD)
        written = now()
        await reader.until(lambda partition=partition: reader.next.get(partition) == broker.end(partition))  # type: ignore[misc]
        assert now() - written <= BOUND
    for flow in flows:
        flow.cancel()
    await reader.close()


@in_virtual_time
async def test_full_buffers_of_paused_partitions_keep_nobody_unread() -> None:
    """The partition that a task waits for is read, though others have more bytes buffered than fetch_max_bytes."""
    options = KafkaOptions(max_partition_fetch_bytes=2_000, fetch_max_bytes=5_000)
    left, right = partitions(20, "left"), partitions(20, "right")
    broker = ScriptedBroker(options)
    for partition in left:
        broker.append(partition, RECORD)
        broker.append(partition, *[RECORD] * 15)
        broker.append(partition, *[RECORD] * 15)
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys((*left, *right), 0))
    for partition in left:
        # As a task does that has enough of one side.
        fetched: list[TopicPartition] = []
        while not fetched:
            fetched = [each.partition for each in await fetcher.fetch(max_wait_ms=1_000, max_records=1)]
        fetcher.pause(left)
        fetcher.resume([each for each in left if each.partition > partition.partition])
    fetcher.pause(left)
    assert fetcher._budget.used > 0
    for partition in right:
        broker.append(partition, *[RECORD] * 15)
    reader = Reader(fetcher)
    began = now()
    await reader.until(lambda: all(reader.next.get(partition) == 15 for partition in right))
    # Each answer may have one chunk when there is no room.
    assert now() - began <= len(right) * 0.05
    await reader.close()


@in_virtual_time
async def test_buffered_records_are_bounded() -> None:
    """Nothing is read ahead above fetch_max_bytes; a partition without anything buffered gets one fetch."""
    options = KafkaOptions(max_partition_fetch_bytes=2_000, fetch_max_bytes=10_000, linger_ms=0)
    all_of_them = partitions(40)
    broker = ScriptedBroker(options)
    for partition in all_of_them:
        for _ in range(20):
            broker.append(partition, RECORD * 5, RECORD * 5)
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(all_of_them, 0))
    await asyncio.sleep(5)
    assert fetcher._budget.used == sum(source.buffered for source in fetcher._sources.values()) <= 40 * 2_000
    assert all(len(source.chunks) == 1 for source in fetcher._sources.values())
    reader = Reader(fetcher)
    await reader.until(lambda: all(reader.next.get(partition) == 40 for partition in all_of_them))
    assert fetcher._budget.used == 0
    await reader.close()


@pytest.mark.parametrize("how", ["resume", "assign", "seek"])
@in_virtual_time
async def test_a_newly_wanted_partition_does_not_wait_for_a_request_under_way(how: str) -> None:
    """Again and again, while all others are quiet: a resumed, a new and a moved partition are asked for within a bound."""
    quiet, one, two = partitions(3)
    broker = ScriptedBroker()
    for partition in (one, two):
        broker.append(partition, *[RECORD] * 50)
    fetcher = fetching(broker)
    fetcher.assign({quiet: 0, one: 50, two: 50})
    waits = []
    for turn in range(60):
        await asyncio.sleep(0.013 * (turn % 7) + 0.3 * (turn % 13 == 0))
        partition = (one, two)[turn % 2]
        if how == "assign":
            fetcher.assign({quiet: 0, **{each: 50 for each in (one, two) if each != partition}})
            fetcher.assign({quiet: 0, one: 50, two: 50} | {partition: turn % 49})
        else:
            fetcher.pause([partition])
            await asyncio.sleep(0)
            fetcher.seek(partition, turn % 49)
            fetcher.resume([partition])
        began = now()
        found: list[TopicPartition] = []
        while partition not in found:
            found = [fetched.partition for fetched in await fetcher.fetch(max_wait_ms=1_000)]
        waits.append(now() - began)
    assert max(waits) <= 0.05
    await fetcher.close()


STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "much", "pause", "resume", "seek", "wait"]), st.integers(0, 7), st.sampled_from([0, 1, 5, 12, 33, 600])),
    max_size=60,
)  # fmt: skip


@settings(max_examples=examples(150))
@given(STEPS, st.sampled_from([0, 10]), st.booleans(), st.sampled_from([3_000, 1 << 20]))
def test_after_any_events_all_is_read_in_order_within_a_bound(steps: list[tuple[str, int, int]], linger_ms: int, slots: bool, room: int) -> None:
    """However partitions are written, paused, resumed and moved: when it ends, all is there soon, and nothing came twice or in another order."""

    async def test() -> None:
        broker = ScriptedBroker(KafkaOptions(linger_ms=linger_ms, max_partition_fetch_bytes=1_500, fetch_max_bytes=room), slots=10 * slots)
        every = partitions(8)
        fetcher = fetching(broker)
        fetcher.assign(dict.fromkeys(every, 0))
        reader = Reader(fetcher)
        for what, number, pause_ms in steps:
            partition = every[number]
            match what:
                case "append":
                    broker.append(partition, RECORD)
                case "much":
                    for _ in range(10):
                        broker.append(partition, *[RECORD] * 10)
                case "pause":
                    fetcher.pause([partition])
                case "resume":
                    fetcher.resume([partition])
                case "seek":
                    fetcher.seek(partition, broker.end(partition) // 2)
                    reader.next[partition] = broker.end(partition) // 2
            if what == "wait":
                await asyncio.sleep(pause_ms / 1000)
        fetcher.resume(every)
        began = now()
        await reader.until(lambda: all(reader.next.get(partition, 0) == broker.end(partition) for partition in every))
        left = sum(what == "much" for what, _, _ in steps)
        # A fetch of a partition has a tenth of what is written at once.
        assert now() - began <= BOUND + left * 10 * 0.015
        await reader.close()

    in_virtual_time(test)()


def test_timers_that_are_due_at_once_disturb_nothing_on_uvloop(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop returns a handle that is no timer for a time that has nearly come; the fetcher asks it nothing, and the loop hears of no error."""
    uvloop = pytest.importorskip("uvloop")
    put_off = itertools.cycle([0.0001, 0.0003, 0.0002, 0.0])

    async def test() -> None:
        heard: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context))
        monkeypatch.setattr(FetchBroker, "due", lambda *_: now() + next(put_off))
        wanted = partitions(6)
        broker = ScriptedBroker(KafkaOptions())
        fetcher = fetching(broker)
        fetcher.assign(dict.fromkeys(wanted, 0))
        reader = Reader(fetcher)
        for count in range(1, 31):
            for each in wanted:
                broker.append(each, RECORD)
                fetcher.pause([each])
                await asyncio.sleep(0)
                fetcher.resume([each])
                await asyncio.sleep(0)
            await reader.until(lambda count=count: all(reader.next.get(each) == count for each in wanted))  # type: ignore[misc]
        await reader.close()
        assert heard == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(test())


@in_virtual_time
async def test_sixty_partitions_that_trickle_wait_for_no_other() -> None:
    """Each record of each of them is there within the bound, at 1,000 records a second."""
    broker = ScriptedBroker()
    every = partitions(60)
    fetcher = fetching(broker)
    fetcher.assign(dict.fromkeys(every, 0))
    reader = Reader(fetcher)
    written: dict[TopicPartition, float] = {}
    for partition in itertools.islice(itertools.cycle(every), 3_000):
        late = [each for each, at in written.items() if reader.next.get(each, 0) < broker.end(each) and now() - at > BOUND]
        assert not late
        broker.append(partition, RECORD)
        written[partition] = now()
        await asyncio.sleep(0.001)
    await reader.close()
