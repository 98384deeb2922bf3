"""Topologies of the runtime's tests, and the checks of their output."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import wraps
from random import Random
from typing import Any, Concatenate, ParamSpec

from actors.testing import VirtualLoop
from ks_actors import serdes
from ks_actors.dsl import Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.runtime import UncaughtResponse
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology

P = ParamSpec("P")
GUARANTEES = ("at_least_once", "exactly_once_v2")
EOS = "exactly_once_v2"
ALOS = "at_least_once"
SETTINGS = (("guarantee", "processing_guarantee"), ("seed", "seed"))
STRINGS = Consumed(serdes.STRING, serdes.STRING)
STRINGS_OUT = Produced(serdes.STRING, serdes.STRING)


def provided(test: Callable[..., object], run: Callable[P, None], number: int = 1) -> Callable[P, None]:
    """Let `run` stand for a test, to which it gives the first parameters itself."""
    signature = inspect.signature(test)
    wraps(test)(run)
    setattr(run, "__signature__", signature.replace(parameters=[*signature.parameters.values()][number:]))  # noqa: B010 - mypy knows no such attribute
    return run


def in_app(
    topology: Topology | Callable[..., Topology], **options: Any
) -> Callable[[Callable[Concatenate[AppHarness, P], Awaitable[object]]], Callable[P, None]]:
    """Run a test in an app, in virtual time, as `run_app` does.

    A test's parameters `guarantee` and `seed` are the app's, too. A topology that depends on others is a function of these.
    """

    def decorate(test: Callable[Concatenate[AppHarness, P], Awaitable[object]]) -> Callable[P, None]:
        def run(*args: P.args, **given: P.kwargs) -> None:
            made = topology(**{name: given[name] for name in inspect.signature(topology).parameters}) if callable(topology) else topology
            own: dict[str, Any] = {to: given[name] for name, to in SETTINGS if name in given}
            run_app(lambda harness: test(harness, *args, **given), made, **own, **options)

        return provided(test, run)

    return decorate


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, object]]) -> Callable[P, None]:
    """Run a test on a loop of its own, in virtual time."""

    @wraps(test)
    def run(*args: P.args, **given: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **given))

    return run


async def feed(harness: AppHarness, *record: Any, **options: Any) -> None:
    """Write a record, and wait until all are processed."""
    await harness.produce(*record, **options)
    await harness.caught_up()


async def feed_all(harness: AppHarness, topic: str, records: Iterable[TestRecord[Any, Any]], **options: Any) -> None:
    """Write records, and wait until all are processed."""
    await harness.produce_all(topic, records, **options)
    await harness.caught_up()


def replace(_: Exception) -> UncaughtResponse:
    return UncaughtResponse.REPLACE_WORKER


class Asked(list[Exception]):
    """A handler of uncaught errors, which are noted."""

    def __init__(self, answer: UncaughtResponse = UncaughtResponse.REPLACE_WORKER) -> None:
        super().__init__()
        self._answer = answer

    def __call__(self, error: Exception) -> UncaughtResponse:
        self.append(error)
        return self._answer


async def befall(harness: AppHarness, random: Random) -> None:
    """Let an app crash, lose its disk too, share its tasks for a moment, or go on."""
    fate = random.choice(("crash", "wipe", "move", "go on"))
    if fate == "move":
        async with harness.another():
            await harness.kit.clock.advance(1)
    elif fate != "go on":
        await harness.crash()
        if fate == "wipe":
            harness.wipe_state()
        await harness.restart()


class Bomb:
    """A function for `peek` that raises when it is armed, once per time."""

    def __init__(self) -> None:
        self.armed: int = 0
        self.exploded: int = 0

    def __call__(self, key: Any, value: Any) -> None:
        if self.armed:
            self.armed -= 1
            self.exploded += 1
            raise RuntimeError(f"boom at {key}")


def nothing(key: Any, value: Any) -> None:
    """Do the same as most records do to a bomb."""


def echo(bomb: Callable[[Any, Any], None] = nothing) -> Topology:
    """Write the records read."""
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).peek(bomb).to("out", STRINGS_OUT)
    return builder.build()


def counting(
    store: str | None = None, bomb: Callable[[Any, Any], None] = nothing, *, repartition: bool = False, topics: Sequence[str] = ("in",)
) -> Topology:  # fmt: skip
    """Count the records of each key; with `repartition`, the records of each value."""
    builder = StreamsBuilder()
    stream = builder.stream(list(topics), STRINGS).peek(bomb)
    grouped = (
        stream.group_by(lambda _, value: value, Grouped(serdes.STRING, serdes.STRING, name="by-value")) if repartition else stream.group_by_key()
    )
    counts = grouped.count(Materialized("counts", serdes.STRING, serdes.LONG, store_type=store))  # type: ignore[arg-type]  # of two words
    counts.to_stream().to("out", Produced(serdes.STRING, serdes.LONG))
    return builder.build()


def by_key(records: Iterable[TestRecord[Any, Any]]) -> dict[Any, list[Any]]:
    """Return the values of each key, in order."""
    found: dict[Any, list[Any]] = defaultdict(list)
    for record in records:
        found[record.key].append(record.value)
    return dict(found)


def check_counts(out: Iterable[TestRecord[Any, Any]], sent: Mapping[str, int], guarantee: str) -> None:
    """Check counts: exactly once each is there from 1 on, in order; at least once none is missing."""
    found = by_key(out)
    assert found.keys() == sent.keys()
    for key, number in sent.items():
        wanted = list(range(1, number + 1))
        values = found[key]
        missing = sorted(set(wanted) - set(values))
        assert not missing, f"{key}: of {number} counts {missing[:10]} are missing"
        if guarantee == EOS and values != wanted:
            at = next(index for index, value in enumerate(values) if index >= number or value != wanted[index])
            raise AssertionError(f"{key}: {number} counts, but from the {at}th on there are {values[at : at + 10]}, {len(values)} in all")


class Load:
    """Records with random keys, and a count of them."""

    def __init__(self, harness: AppHarness, random: Random, *, keys: int = 12, by_value: bool = False) -> None:
        self.sent: Counter[str] = Counter()
        self._harness = harness
        self._random = random
        self._keys = keys
        self._by_value = by_value

    async def through(self, number: int) -> None:
        """Write so many records, and wait until all are processed."""
        await self.send(number)
        await self._harness.caught_up()

    async def check(self, guarantee: str) -> None:
        """Check the counts when all are processed."""
        await self._harness.caught_up()
        check_counts(await self._harness.read("out"), self.sent, guarantee)

    async def send(self, number: int) -> None:
        """Write so many records."""
        for _ in range(number):
            what = f"k{self._random.randrange(self._keys)}"
            self.sent[what] += 1
            key, value = (f"x{self._random.randrange(100)}", what) if self._by_value else (what, "v")
            await self._harness.produce("in", key, value)


def states(seen: Sequence[tuple[Any, Any]]) -> list[str]:
    """Return the names of the states that a listener was told, in order."""
    return [new.name for new, _ in seen]


def own_threads() -> list[str]:
    """The threads there are that an app, or its actor system, has started."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(("ks-", "actors-"))]
