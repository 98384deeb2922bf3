"""Each wait for brokers holds its deadline, whatever the brokers do, in virtual time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from ks_actors._errors import LogError, LogTimeout
from ks_actors.log import Assigned, IsolationLevel, MemberAssignment, NewMember, NewTopic, OffsetAndMetadata
from ks_actors.log._groups import GroupMember
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client import Unavailable, as_one_call
from ks_actors.log.kafka.client._connections import COORDINATION, MAIN
from ks_actors.log.kafka.wire import MetadataRequest
from tests.ks_actors.log.kafka.client.answering import FIRST, SECOND, TOPIC, WAY_S, Brokers, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ks_actors.log import MemberInfo
    from ks_actors.log.kafka.group import KafkaMembership

# Of a whole call; and what it may wait beyond that for brokers to hear of a new topic.
CALL_S: Final = 20
SLACK_S: Final = 1.1
OPTIONS: Final = KafkaOptions(api_timeout_ms=CALL_S * 1_000, delivery_timeout_ms=CALL_S * 1_000)
OFFSETS: Final = {FIRST: OffsetAndMetadata(1), SECOND: OffsetAndMetadata(1)}
UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
CALLS: Final[dict[str, Callable[[KafkaLog], Awaitable[Any]]]] = {
    "describe_topics": lambda log: log.describe_topics([TOPIC]),
    "describe_topics of all": lambda log: log.describe_topics(),
    "create_topics": lambda log: log.create_topics([NewTopic("new", 1)]),
    "check_new_topics": lambda log: log.check_new_topics([NewTopic("new", 1)]),
    "create_partitions": lambda log: log.create_partitions({TOPIC: 3}),
    "delete_topics": lambda log: log.delete_topics([TOPIC]),
    "set_configs": lambda log: log.set_configs({TOPIC: {"retention.ms": "1"}}),
    "delete_records": lambda log: log.delete_records({FIRST: 0, SECOND: 0}),
    "begin_offsets": lambda log: log.begin_offsets([FIRST, SECOND]),
    "end_offsets": lambda log: log.end_offsets([FIRST, SECOND], UNCOMMITTED),
    "offsets_for_times": lambda log: log.offsets_for_times({FIRST: 1, SECOND: 1}),
    "group_ids": lambda log: log.group_ids(),
    "group_members": lambda log: log.group_members("g"),
    "group_offsets": lambda log: log.group_offsets("g"),
    "set_group_offsets": lambda log: log.set_group_offsets("g", OFFSETS),
    "remove_members": lambda log: log.remove_members("g", [GroupMember("m", "c")]),
    "allowed_operations": lambda log: log.allowed_operations([TOPIC], "g", "x"),
    "producer": lambda log: log.producer(client_id="p", topics=[TOPIC]),
}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Have two brokers."""
    return Brokers(monkeypatch, count=2, options=OPTIONS)


def now() -> float:
    return asyncio.get_running_loop().time()


async def within(limit_s: float, call: Awaitable[Any], slack_s: float = 0.01) -> LogError | None:
    """Assert that a call ends in time; return its error."""
    began, error = now(), None
    try:
        await asyncio.wait_for(asyncio.ensure_future(call), 1_000)
    except LogError as raised:
        error = raised
    took = now() - began
    assert took <= limit_s + slack_s, f"{took:.1f} s"
    return error


def keep(members: Sequence[MemberInfo], _: object) -> dict[str, MemberAssignment]:
    """Assign nothing."""
    return {member.member_id: MemberAssignment(()) for member in members}


async def member_of(log: KafkaLog, *, takes_over: bool = False) -> KafkaMembership:
    """Return a new member of a group."""
    new = NewMember(
        client_id="m", topics=[TOPIC], user_data=b"", assignor=keep, session_timeout_ms=6_000, rebalance_timeout_ms=60_000, takes_over=takes_over
    )
    return await log.join("g", new)


def with_log(brokers: Brokers, test: Callable[[KafkaLog], Awaitable[None]]) -> None:
    async def run() -> None:
        async with brokers.log() as log:
            await test(log)

    in_virtual_time(run)


@pytest.mark.parametrize("state", ["frozen", "mute", "away", "muted", "slow"])
@pytest.mark.parametrize("connected", [True, False])
def test_a_request_holds_its_deadline(brokers: Brokers, state: str, connected: bool) -> None:
    """Connecting counts, and so does a login that has to be renewed; only a pause that the broker has asked for is as long again."""

    async def test(log: KafkaLog) -> None:
        client = log._client
        if connected:
            brokers.brokers[1].throttle_ms = 3_600_000 if state == "muted" else 0
            await client.send(1, MetadataRequest([]), channel="other")
        if state in {"frozen", "mute", "away"}:
            brokers.turn(state)
        brokers.brokers[1].slow_s = 3_600 if state == "slow" else WAY_S
        for _ in range(2):
            error = await within(0.5, client.send(1, MetadataRequest([]), channel="other", timeout_ms=500))
            assert isinstance(error, Unavailable) or (error is None and state == "muted" and not connected)
        brokers.turn("well")

    with_log(brokers, test)


def test_the_deadline_of_a_call_binds_nothing_that_outlives_it(brokers: Brokers) -> None:
    """A task or timer that begins during a call, such as the fetcher's when it hears of a topic, has its own limits behind the end of that call."""

    class Caller:
        def __init__(self, log: KafkaLog) -> None:
            self._client = log._client
            self.heir: asyncio.Task[float] | None = None

        def begin(self) -> None:
            self.heir = asyncio.ensure_future(self.outlive())

        async def outlive(self) -> float:
            end = now() + 3 * CALL_S
            await asyncio.sleep(2 * CALL_S)

            async def attempt() -> float:
                if now() < end:
                    raise Unavailable("not yet")
                return now()

            return await self._client.retry("it", attempt, timeout_ms=2 * CALL_S * 1_000)

        @as_one_call
        async def call(self) -> None:
            asyncio.get_running_loop().call_later(1, self.begin)
            await asyncio.sleep(2)

    async def test(log: KafkaLog) -> None:
        caller = Caller(log)
        await caller.call()
        assert caller.heir is not None
        assert await caller.heir >= 3 * CALL_S

    with_log(brokers, test)


async def failing_after(brokers: Brokers, log: KafkaLog, name: str, answers: int, state: str) -> LogError | None:
    """Return the error of a call during which the brokers fail after so many answers."""
    brokers.left, brokers.dies = answers, state
    error = await within(CALL_S, CALLS[name](log), SLACK_S)
    brokers.left = float("inf")
    brokers.turn("well")
    return error


@pytest.mark.parametrize("state", ["frozen", "mute", "away"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_holds_its_deadline_whenever_the_brokers_fail(monkeypatch: pytest.MonkeyPatch, name: str, state: str) -> None:
    """After each number of answers, until it needs no more."""
    for answers in range(20):
        brokers, errors = Brokers(monkeypatch, count=2, options=OPTIONS), list[LogError | None]()
        test = partial(failing_after, brokers, name=name, answers=answers, state=state)

        async def noting(log: KafkaLog, test: Any = test, errors: list[LogError | None] = errors) -> None:
            errors.append(await test(log))

        with_log(brokers, noting)
        if errors == [None]:
            assert answers
            return
        assert isinstance(errors[0], LogTimeout), errors
    pytest.fail("it needs ever more answers")


@pytest.mark.parametrize("state", ["frozen", "mute", "away", "muted"])
def test_closing_holds_its_deadline(brokers: Brokers, state: str) -> None:
    """A fetcher tells brokers for half a second, and a member its group for three; what is left to close takes none."""

    async def test(log: KafkaLog) -> None:
        fetcher, producer = log.fetcher(client_id="r", isolation=UNCOMMITTED), await log.producer(client_id="p")
        fetcher.assign({FIRST: 0, SECOND: 0})
        member = await member_of(log)
        assert isinstance(await member.event(), Assigned)
        await fetcher.fetch(max_wait_ms=600)
        assert brokers.sessions
        if state == "muted":
            for broker in brokers.brokers.values():
                broker.throttle_ms = 3_600_000
            await fetcher.fetch(max_wait_ms=600)
        else:
            brokers.turn(state)
        await within(0.5, fetcher.close())
        # Nor is a connection of it left, or an attempt to make one, which may take much longer.
        connections = log._client._connections
        await asyncio.sleep(0.01)
        assert not [channel for _, channel in (*connections._ready, *connections._opening) if channel.startswith("fetch")]
        await within(0.0, producer.close())
        await within(3.0, member.close())
        await within(0.0, log.close())

    with_log(brokers, test)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_several_slow_steps_holds_its_deadline(brokers: Brokers, name: str) -> None:
    """The deadline is that of the call, and not of each of its steps."""

    async def test(log: KafkaLog) -> None:
        for broker in brokers.brokers.values():
            broker.slow_s = 0.45 * CALL_S
        await within(CALL_S, CALLS[name](log), SLACK_S)
        for broker in brokers.brokers.values():
            broker.slow_s = WAY_S

    with_log(brokers, test)


@pytest.mark.parametrize(("name", "asked"), [("describe_topics", 2), ("group_members", 1), ("producer", 1), ("allowed_operations", 3)])
def test_a_broker_that_is_silent_does_not_hold_up_what_any_other_could_answer(brokers: Brokers, name: str, asked: int) -> None:
    """The next one is asked beside it after three seconds, for configs, coordinators and producer ids alike."""
    brokers.coordinator, brokers.view[FIRST] = 2, (2, 0)

    async def test(log: KafkaLog) -> None:
        for channel in (MAIN, COORDINATION):
            await log._client.send(1, MetadataRequest([]), channel=channel)
        brokers.brokers[1].state = "mute"
        assert await within(3 * asked, CALLS[name](log), 0.1) is None

    with_log(brokers, test)


def test_answers_that_take_long_are_waited_for(brokers: Brokers) -> None:
    """Where all brokers are slow, or one is slow and the others are away, asking the next one beside it ends no call."""

    async def test(log: KafkaLog) -> None:
        for away in (False, True):
            await log._client.send(1, MetadataRequest([]))
            brokers.brokers[1].slow_s = 8.0
            if away:
                brokers.turn("away")
                brokers.brokers[1].state = "well"
                await log._client.send(1, MetadataRequest([]))
            assert await within(CALL_S, log.describe_topics([TOPIC], configs=False)) is None

    with_log(brokers, test)
