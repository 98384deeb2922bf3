"""Progress beside functions that take long: what works on is never stuck."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import pytest

from actors.actor._context import Context
from ks_actors import Record, Retry, serdes
from ks_actors.dsl import Grouped, Materialized, Stream, StreamsBuilder
from ks_actors.log import TopicPartition
from ks_actors.runtime import blocking
from ks_actors.testing import AppHarness, TestRecord, run_app
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import ALOS, EOS, STRINGS, STRINGS_OUT, Asked

# What a commit costs beside its interval (s).
MARGIN_S: Final = 0.05


class Calls:
    """Slow functions, whose calls are counted, and threads in virtual time."""

    def __init__(self, random: Random, longest: float) -> None:
        self.ended: Counter[str] = Counter()
        self.most: int = 0
        self._running: int = 0
        self._blocked: float = 0.0
        self._failed: set[str] = set()
        self._random = random
        self._longest = longest

    def _seconds(self) -> float:
        # As often a few milliseconds as the longest.
        return max(0.001, self._longest * self._random.random() ** self._random.choice((1, 4)))

    async def slow(self, value: str) -> str:
        self._running += 1
        self.most = max(self.most, self._running)
        await asyncio.sleep(self._seconds())
        self._running -= 1
        self.ended[value] += 1
        return value

    async def failing(self, value: str) -> str:
        if value not in self._failed and self._random.random() < 0.5:
            self._failed.add(value)
            await asyncio.sleep(self._seconds())
            raise OSError(value)
        return await self.slow(value)

    async def many(self, records: list[Record[str, str]]) -> list[Record[str, str]]:
        await asyncio.sleep(self._seconds())
        self.ended.update(record.value for record in records)
        return records

    def block(self, value: str) -> str:
        self._blocked += self._seconds()
        self.ended[value] += 1
        return value

    @contextmanager
    def threads(self, harness: AppHarness) -> Iterator[None]:
        """Have a worker's job in a thread take the virtual time of its calls."""
        own = Context.blocking

        async def take_time(context: Any, function: Callable[[], Any], *args: Any, **options: Any) -> Any:
            before = self._blocked
            result = await own(context, function, *args, **options)
            if taken := self._blocked - before:
                await asyncio.sleep(taken)
            return result

        harness.kit.works_by(lambda: self._blocked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Context, "blocking", take_time)
            yield


def _plain(builder: StreamsBuilder, calls: Calls, **options: Any) -> None:
    builder.stream("in", STRINGS).map_values(calls.slow, **options).to("out", STRINGS_OUT)


def _many_of_one(builder: StreamsBuilder, calls: Calls, **options: Any) -> None:
    copies = builder.stream("in", STRINGS).flat_map_values(lambda value: [f"{value}.{index}" for index in range(20)])
    copies.map_values(calls.slow, **options).to("out", STRINGS_OUT)


def _latest(builder: StreamsBuilder) -> Stream[str, str]:
    grouped = builder.stream("in", STRINGS).group_by_key(Grouped(serdes.STRING, serdes.STRING))
    return grouped.reduce(lambda _, value: value, Materialized("latest", serdes.STRING, serdes.STRING)).to_stream().map_values(str)


def _behind_a_cache(builder: StreamsBuilder, calls: Calls, **options: Any) -> None:
    _latest(builder).map_values(calls.slow, **options).to("out", STRINGS_OUT)


def _in_a_row(builder: StreamsBuilder, calls: Calls, **options: Any) -> None:
    first = builder.stream("in", STRINGS).map_values(calls.slow, **options).map_values(lambda value: f"{value} again")
    first.map_values(calls.slow, **options).to("out", STRINGS_OUT)


def _retried(builder: StreamsBuilder, calls: Calls, **options: Any) -> None:
    retry = Retry(attempts=3, backoff_ms=20_000, max_backoff_ms=90_000)
    builder.stream("in", STRINGS).map_values(calls.failing, retry=retry, **options).to("out", STRINGS_OUT)


def _in_batches(builder: StreamsBuilder, calls: Calls, **_: Any) -> None:
    builder.stream("in", STRINGS).batch(calls.many, max_records=5, max_wait_ms=1_000).to("out", STRINGS_OUT)


def _blocking(builder: StreamsBuilder, calls: Calls, **_: Any) -> None:
    builder.stream("in", STRINGS).map_values(blocking(lambda value: calls.block(value))).to("out", STRINGS_OUT)


def _blocking_behind_a_cache(builder: StreamsBuilder, calls: Calls, **_: Any) -> None:
    _latest(builder).map_values(blocking(lambda value: calls.block(value))).to("out", STRINGS_OUT)


SHAPES: Final = (_plain, _many_of_one, _behind_a_cache, _in_a_row, _retried, _in_batches, _blocking, _blocking_behind_a_cache)


def committed(harness: AppHarness, topic: str) -> int:
    """Return the committed records of a topic of one partition."""
    found = harness.log._groups.get("app").committed().get(TopicPartition(topic, 0))
    return 0 if found is None else found.offset


def check_progress(seed: int) -> None:
    """Run a random app beside a quick stream: the quick one is committed in time, the slow one as its calls end, each called once."""
    random = Random(seed)
    longest, shape = random.choice((0.01, 0.7, 5.0, 30.0)), random.choice(SHAPES)
    calls = Calls(random, longest)
    # The kit's watchdog looks once a second: hours of virtual time cost seconds.
    most = 10 if longest >= 5 or shape is _retried else 60
    builder = StreamsBuilder()
    shape(builder, calls, **({} if random.random() < 0.3 else {"max_in_flight": random.randint(1, 10)}))
    builder.stream("quick", STRINGS).map_values(str.upper).to("soon", STRINGS_OUT)
    keys: tuple[str | None, ...] = random.choice(((None,), ("hot",), ("hot", "hot", "hot", "a", "b"), tuple(map(str, range(30)))))
    records = [TestRecord(random.choice(keys), f"v{index}", index) for index in range(random.randint(1, most))]
    interval = random.choice((0.1, 1.0, 5.0))
    errors = Asked()

    async def test(harness: AppHarness) -> None:
        with calls.threads(harness):
            await harness.produce_all("in", records)
            for count in range(1, 6):
                await harness.kit.clock.advance(random.random() * 10)
                before = harness.kit.clock.time()
                await harness.produce("quick", "k", str(count))
                await harness.kit.clock.advance(interval + MARGIN_S)
                assert committed(harness, "quick") == count, f"not committed {harness.kit.clock.time() - before:g} s later"
            for _ in range(10_000):
                if committed(harness, "in") == len(records):
                    break
                await harness.kit.clock.advance(10)
            assert committed(harness, "in") == len(records)
        assert errors == []
        assert set(calls.ended.values()) <= {1}, "called again without a crash"

    run_app(
        test,
        builder.build(),
        seed=seed,
        topics={"in": 1, "out": 1, "quick": 1, "soon": 1},
        num_workers=2,
        commit_interval_ms=int(interval * 1000),
        processing_guarantee=random.choice((ALOS, EOS)),
        statestore_cache_max_bytes=random.choice((0, 10_000_000)),
        uncaught_handler=errors,
    )


@pytest.mark.parametrize("block", range(8))
def test_what_works_on_is_committed(block: int) -> None:
    """A task beside slow functions is committed within one interval and 50 ms, and no call of theirs is made twice."""
    for seed in range(block * 1_000, block * 1_000 + examples(4)):
        try:
            check_progress(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_worker_that_comes_during_a_commit_delays_none(guarantee: str) -> None:
    """It gets no task before the committer knows it, which is busy: else that task would wait for its worker, and the next commit for the task."""
    builder = StreamsBuilder()
    _latest(builder).to("out", STRINGS_OUT)
    builder.stream("quick", STRINGS).to("soon", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await harness.kit.clock.advance(5)
        held = harness.log.hold("send")
        await harness.produce("quick", "k", "1")
        await harness.kit.clock.advance(0.5)
        commits = [asyncio.create_task(harness.app.commit()) for _ in range(2)]
        await harness.kit.clock.advance(0.5)
        await harness.app.add_worker()
        await harness.produce("in", "k", "1")
        await harness.kit.clock.advance(0.1)
        held.set()
        await asyncio.gather(*commits)
        await harness.caught_up()
        assert [record.value for record in await harness.read("out")] == ["1"]

    run_app(
        test,
        builder.build(),
        topics={"in": 1, "out": 1, "quick": 1, "soon": 1},
        num_workers=1,
        commit_interval_ms=30_000,
        transaction_timeout_ms=60_000,
        processing_guarantee=guarantee,
        statestore_cache_max_bytes=10_000_000,
    )
