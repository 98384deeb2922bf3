"""Error codes that brokers of Kafka 4.4 answer, and what the client does then: the table, and brokers in virtual time that answer each of them.

The table is by Kafka's sources: classes of responses, `KafkaApis`, `GroupCoordinatorService`, `GroupMetadataManager`, `ReplicationControlManager`.
A request may also get a code that is not in its line; those are tried as well.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from struct import pack, unpack, unpack_from
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from aiokafka.protocol.admin import (  # type: ignore[import-untyped]
    ApiVersionResponse_v0,
    SaslAuthenticateResponse_v0,
    SaslHandShakeResponse_v1,
)

from ks_actors._errors import (
    ConfigError,
    IllegalGeneration,
    KsActorsError,
    LogCorrupted,
    LogError,
    LogTimeout,
    NotAuthorized,
    OffsetOutOfRange,
    RecordTooLarge,
    TopicExists,
    UnknownTopicOrPartition,
)
from ks_actors.log import Assigned, IsolationLevel, Lost, NewTopic, OffsetAndMetadata, Revoked
from ks_actors.log._groups import GroupMember
from ks_actors.log.kafka import KafkaOptions
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.wire import RETRIABLE, name_of
from tests.kafka.broker import PASSWORD, USER
from tests.ks_actors.log.kafka.client.answering import FIRST, TOPIC, Brokers, in_virtual_time
from tests.ks_actors.log.kafka.client.test_deadlines import member_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.log.kafka import KafkaLog
    from ks_actors.log.kafka.group import KafkaMembership

TIMED_OUT: Final = 7
UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED
# It asks again, until the deadline: the caller does not notice.
MEMBER_ID_REQUIRED: Final = 79
AGAIN: Final = "again"
# The code is an answer.
TAKEN: Final = "taken"


def tell(codes: str, outcome: Any) -> dict[int, Any]:
    """Return one outcome for several codes."""
    return dict.fromkeys(map(int, codes.split()), outcome)


async def fetched(log: KafkaLog) -> Any:
    fetcher = log.fetcher(client_id="r", isolation=UNCOMMITTED)
    fetcher.assign({FIRST: 0})
    try:
        return await fetcher.fetch(max_wait_ms=10_000)
    finally:
        await fetcher.close()


async def truncated(log: KafkaLog) -> None:
    history = log._client.epochs.add(FIRST, 0)
    history.note(0, 5, [(0, 3)])
    await log.delete_read({FIRST: 5})


async def next_event(member: KafkaMembership) -> Any:
    """Return the next event of a member, or None if there is none for a while."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(member.event(), 2)


async def joined(log: KafkaLog) -> Any:
    return await next_event(await member_of(log))


async def assigned(log: KafkaLog) -> KafkaMembership:
    member = await member_of(log)
    assert isinstance(await next_event(member), Assigned)
    return member


async def succeeding(log: KafkaLog) -> Any:
    """Join in the place of a process that has died."""
    return await next_event(await member_of(log, takes_over=True))


async def itself(log: KafkaLog) -> KafkaLog:
    return log


class Line(NamedTuple):
    """A request: the call that sends it, the outcome of each code, and that of codes that last, where it is not LogTimeout.

    With `whole` the code is that of the whole answer. The `first` answers of other requests have these codes. An outcome may also be an error, or
    an event of a membership. The call gets what `before` returns.
    """

    request: str
    call: Callable[[Any], Awaitable[Any]]
    codes: dict[int, Any]
    lasting: dict[int, Any] = {}  # noqa: RUF012 - never changed
    whole: bool = False
    first: tuple[tuple[str, int], ...] = ()
    before: Callable[[KafkaLog], Awaitable[Any]] = itself


TABLE: Final[dict[str, Line]] = {
    "Metadata": Line(
        "Metadata",
        lambda log: log.describe_topics([TOPIC], configs=False),
        # A topic that is unknown, or has an invalid name, is missing in the end.
        tell("3 5 17 -1", AGAIN) | tell("29", NotAuthorized),
        tell("3 17", AGAIN),
    ),
    "Metadata for a leader": Line(
        "Metadata",
        lambda log: log.begin_offsets([FIRST]),
        tell("3 5 17 -1", AGAIN) | tell("29", NotAuthorized),
        {3: UnknownTopicOrPartition, 17: UnknownTopicOrPartition},
    ),
    "ListOffsets": Line(
        "ListOffsets",
        lambda log: log.begin_offsets([FIRST]),
        tell("3 5 6 9 56 74 75 78 -1", AGAIN) | tell("29", NotAuthorized) | tell("42 43", LogError),
    ),
    "OffsetForLeaderEpoch": Line(
        "OffsetForLeaderEpoch", truncated, tell("3 6 9 56 74 75", AGAIN) | tell("29", NotAuthorized) | tell("42 -1", LogError)
    ),
    "DeleteRecords": Line(
        "DeleteRecords",
        lambda log: log.delete_records({FIRST: 0}),
        tell("3 5 6 7 9 56", AGAIN) | tell("1", OffsetOutOfRange) | tell("29", NotAuthorized) | tell("42 44 -1", LogError),
    ),
    "Fetch": Line(
        "Fetch",
        fetched,
        tell("1 3 5 6 9 56 74 75 78 100 103 -1", AGAIN) | tell("2", LogCorrupted) | tell("29", NotAuthorized) | tell("42 76", LogError),
        tell("1 3 5 6 9 56 74 75 78 100 103 -1", AGAIN),
    ),
    "Fetch as a whole": Line("Fetch", fetched, tell("70 71 106 -1", AGAIN) | tell("35 42", LogError), tell("70 71 106 -1", AGAIN), whole=True),
    "FindCoordinator": Line(
        "FindCoordinator", lambda log: log.group_members("g"), tell("14 15", AGAIN) | tell("30 53", NotAuthorized) | tell("24 42 -1", LogError)
    ),
    "OffsetFetch": Line(
        "OffsetFetch", lambda log: log.group_offsets("g"), tell("3", TAKEN) | tell("88", AGAIN) | tell("29", NotAuthorized), {3: TAKEN}
    ),
    "OffsetFetch of a member": Line(
        "OffsetFetch", lambda member: member.committed([FIRST]), tell("3", TAKEN) | tell("88", AGAIN) | tell("29", NotAuthorized), before=assigned
    ),
    "OffsetFetch as a whole": Line(
        "OffsetFetch",
        lambda log: log.group_offsets("g"),
        tell("14 15 16", AGAIN) | tell("30", NotAuthorized) | tell("25", IllegalGeneration) | tell("24 35 69 113 -1", LogError),
        whole=True,
    ),
    "OffsetCommit": Line(
        "OffsetCommit",
        lambda log: log.set_group_offsets("g", {FIRST: OffsetAndMetadata(1)}),
        tell("3 7 14 15 16", AGAIN)
        | tell("22 25 27 82", IllegalGeneration)
        | tell("29 30", NotAuthorized)
        | tell("10 18", RecordTooLarge)
        | tell("12 24 28 35 69 113 -1", LogError),
        {3: UnknownTopicOrPartition},
    ),
    "OffsetCommit of a member": Line(
        "OffsetCommit",
        lambda member: member.commit({FIRST: OffsetAndMetadata(1)}),
        tell("3 7 14 15 16", AGAIN)
        | tell("22 25 27 82", IllegalGeneration)
        | tell("29 30", NotAuthorized)
        | tell("10 18", RecordTooLarge)
        | tell("12 24 28 35 69 113 -1", LogError),
        {3: UnknownTopicOrPartition},
        before=assigned,
    ),
    "JoinGroup": Line(
        "JoinGroup",
        joined,
        # The member joins again, as a new one where the group does not know it; a fenced one asks its owner.
        tell("14 15 16 22 25 27 79", AGAIN) | tell("82", Lost) | tell("30", NotAuthorized) | tell("23 24 26 35 42 81 -1", LogError),
        tell("14 15 16 22 25 27 79", AGAIN),
    ),
    "SyncGroup": Line(
        "SyncGroup",
        joined,
        tell("14 15 16 22 25 27", AGAIN) | tell("82", Lost) | tell("30", NotAuthorized) | tell("23 24 35 -1", LogError),
        tell("14 15 16 22 25 27", AGAIN),
    ),
    "Heartbeat": Line(
        "Heartbeat",
        next_event,
        tell("14 15 16", AGAIN) | tell("22 25 82", Lost) | tell("27", Revoked) | tell("30", NotAuthorized) | tell("24 35 -1", LogError),
        tell("14 15 16", AGAIN),
        before=assigned,
    ),
    "LeaveGroup": Line(
        "LeaveGroup",
        lambda member: member.leave(),
        tell("14 15 16", AGAIN) | tell("24 25 30 82 -1", TAKEN),
        tell("14 15 16", AGAIN),
        whole=True,
        before=assigned,
    ),
    "LeaveGroup by an operator": Line(
        "LeaveGroup",
        lambda log: log.remove_members("g", [GroupMember("m", "c")]),
        tell("25", TAKEN) | tell("82", IllegalGeneration) | tell("-1", LogError),
    ),
    "LeaveGroup by an operator as a whole": Line(
        "LeaveGroup",
        lambda log: log.remove_members("g", [GroupMember("m", "c")]),
        tell("14 15 16", AGAIN) | tell("25", TAKEN) | tell("30", NotAuthorized) | tell("24 -1", LogError),
        whole=True,
    ),
    "DescribeGroups": Line(
        "DescribeGroups",
        lambda log: log.group_members("g"),
        tell("14 15 16", AGAIN) | tell("69", TAKEN) | tell("30", NotAuthorized) | tell("24 -1", LogError),
    ),
    "DescribeGroups before a member takes over": Line(
        # Who may not look joins all the same, and waits for the session of the dead member.
        "DescribeGroups",
        succeeding,
        tell("14 15 16", AGAIN) | tell("24 30 69 -1", TAKEN),
        tell("14 15 16", AGAIN),
        # Between the two requests of a join: the group has given the new member its id.
        first=(("JoinGroup", MEMBER_ID_REQUIRED),),
    ),
    "DescribeGroups for the operations of a user": Line(
        "DescribeGroups", lambda log: log.allowed_operations([TOPIC], "g"), tell("14 15 16", AGAIN) | tell("24 30 69 -1", TAKEN)
    ),
    "Metadata for the operations of a user": Line(
        "Metadata",
        lambda log: log.allowed_operations([TOPIC], "g"),
        tell("5", AGAIN) | tell("3 17 29 -1", TAKEN),
    ),
    "ListGroups": Line("ListGroups", lambda log: log.group_ids(), tell("14 15 16", AGAIN) | tell("31", NotAuthorized) | tell("-1", LogError)),
    "DescribeConfigs": Line(
        "DescribeConfigs",
        lambda log: log.describe_topics([TOPIC]),
        # Such topics have no configs; the user may not see them, or they are gone.
        tell("3 17 29 31", TAKEN) | tell("40 42 -1", LogError),
        {3: TAKEN},
    ),
    "CreateTopics": Line(
        "CreateTopics",
        lambda log: log.create_topics([NewTopic("new", 1)]),
        tell("7 41 89", AGAIN)
        | tell("29 31", NotAuthorized)
        | tell("36", TopicExists)
        | tell("40", ConfigError)
        | tell("17 35 37 38 39 42 44 -1", LogError),
    ),
    "CreatePartitions": Line(
        "CreatePartitions",
        lambda log: log.create_partitions({TOPIC: 3}),
        tell("7 41 89", AGAIN) | tell("3", UnknownTopicOrPartition) | tell("29 31", NotAuthorized) | tell("17 35 37 38 39 42 44 60 -1", LogError),
    ),
    "DeleteTopics": Line(
        "DeleteTopics",
        lambda log: log.delete_topics([TOPIC]),
        tell("7 41 89", AGAIN) | tell("3", UnknownTopicOrPartition) | tell("29 31", NotAuthorized) | tell("17 35 42 44 73 -1", LogError),
    ),
    "IncrementalAlterConfigs": Line(
        "IncrementalAlterConfigs",
        lambda log: log.set_configs({TOPIC: {"retention.ms": "1"}}),
        tell("7 41 89", AGAIN)
        | tell("3", UnknownTopicOrPartition)
        | tell("29 31", NotAuthorized)
        | tell("40", ConfigError)
        | tell("17 35 42 44 -1", LogError),
    ),
}
# Lines, each with a code, and with all other codes that Kafka has.
CODES: Final = range(-1, 137)
LISTED: Final = [(name, code) for name, line in TABLE.items() for code in line.codes]
LASTING: Final = [(name, code) for name, code in LISTED if TABLE[name].codes[code] == AGAIN]


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    """Have one broker, which has a record."""
    made = Brokers(monkeypatch, options=KafkaOptions(api_timeout_ms=5_000))
    made.records[FIRST] = [b"a"]
    return made


def outcome_of(brokers: Brokers, line: Line, code: int, *, lasting: bool = False) -> Any:
    """Return what comes of a code: AGAIN, TAKEN, an error or an event."""
    found: Any = None
    asked = 0

    async def run() -> None:
        nonlocal found, asked
        if line.whole:
            brokers.whole.add(line.request)
        async with brokers.log() as log:
            subject = await line.before(log)
            before = brokers.count(line.request)
            for request, first in line.first:
                brokers.codes[request].append(first)
            if lasting:
                brokers.lasting[line.request] = code
            else:
                brokers.codes[line.request].append(code)
            try:
                found = await line.call(subject)
            except KsActorsError as error:
                found = error
            finally:
                asked = brokers.count(line.request) - before
                brokers.lasting.clear()

    in_virtual_time(run)
    assert not brokers.codes[line.request], "nobody has asked"
    if isinstance(found, KsActorsError | Lost | Revoked):
        return found
    return AGAIN if asked > 1 else TAKEN


def check(found: Any, outcome: Any, code: int) -> None:
    """Assert an outcome; the text of an error has Kafka's name of the code, or says what it means."""
    if isinstance(outcome, str):
        assert found == outcome
        return
    assert type(found) is outcome, repr(found)
    named = not isinstance(found, OffsetOutOfRange | TopicExists | ConfigError | LogCorrupted) and isinstance(found, KsActorsError)
    assert not named or f"{name_of(code)} ({code})" in str(found)


@pytest.mark.parametrize(("name", "code"), LISTED)
def test_each_code_that_a_broker_may_answer_is_expected(brokers: Brokers, name: str, code: int) -> None:
    """The client does what the table says."""
    line = TABLE[name]
    check(outcome_of(brokers, line, code), line.codes[code], code)


@pytest.mark.parametrize(("name", "code"), LASTING)
def test_a_code_that_lasts_is_told_of_at_the_deadline(brokers: Brokers, name: str, code: int) -> None:
    """With its name; some codes mean something else then."""
    line = TABLE[name]
    found, outcome = outcome_of(brokers, line, code, lasting=True), line.lasting.get(code, LogTimeout)
    assert found == outcome if isinstance(outcome, str) else type(found) is outcome, repr(found)
    assert outcome is not LogTimeout or name_of(code) in str(found)


@pytest.mark.parametrize("name", TABLE)
def test_no_other_code_is_unexpected(brokers: Brokers, name: str) -> None:
    """The client asks again after all that Kafka's clients take for temporary, and names all others in an error."""
    line = TABLE[name]
    for code in sorted(set(CODES) - {0} - line.codes.keys()):
        found = outcome_of(brokers, line, code)
        if code in RETRIABLE and not isinstance(found, UnknownTopicOrPartition):
            assert found == AGAIN, (code, found)
        elif found != TAKEN:
            assert isinstance(found, KsActorsError | Lost), (code, found)
            assert isinstance(found, Lost) or name_of(code) in str(found) or isinstance(found, OffsetOutOfRange | TopicExists | ConfigError), (
                code,
                found,
            )


@pytest.mark.parametrize(("name", "code"), [("CreateTopics", 36), ("CreatePartitions", 37), ("DeleteTopics", 3)])
def test_what_the_controller_has_done_late_is_done(brokers: Brokers, name: str, code: int) -> None:
    """It says that the time was up, and to the next request that nothing is left to do."""
    brokers.codes[name] = [TIMED_OUT]
    assert outcome_of(brokers, TABLE[name], code) == AGAIN
    check(outcome_of(brokers, TABLE[name], code), TABLE[name].codes[code], code)


def test_each_code_has_its_name() -> None:
    """Errors and warnings have the names that Kafka's documentation has."""
    assert not [code for code in CODES if name_of(code).startswith("error ")]
    assert (name_of(137), name_of(136), name_of(121)) == ("error 137", "CONTROLLER_ID_NOT_REGISTERED", "INVALID_RECORD_STATE")


@pytest.mark.parametrize(
    ("api", "code", "outcome", "text"),
    [
        (18, 35, LogTimeout, "UNSUPPORTED_VERSION"),
        (18, 42, LogTimeout, "INVALID_REQUEST"),
        (18, -1, LogTimeout, "UNKNOWN_SERVER_ERROR"),
        (17, 33, NotAuthorized, "UnsupportedSaslMechanism"),
        (17, 34, LogTimeout, "IllegalSaslState"),
        (36, 58, NotAuthorized, "check the credentials"),
        (36, 34, LogTimeout, "IllegalSaslState"),
        (36, -1, LogTimeout, "UnknownError"),
    ],
)
async def test_codes_of_a_connection_that_begins_are_expected(api: int, code: int, outcome: type[LogError], text: str) -> None:
    """A refused login is told at once, all else is tried again until the deadline, with the reason."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                (size,) = unpack(">i", await reader.readexactly(4))
                key, _, number = unpack_from(">hhi", await reader.readexactly(size))
                bad = code if key == api else 0
                answers = {
                    18: ApiVersionResponse_v0(bad, [(18, 0, 0), (17, 0, 1), (36, 0, 0)]),
                    17: SaslHandShakeResponse_v1(bad, ["PLAIN"]),
                    36: SaslAuthenticateResponse_v0(bad, "why", b""),
                }
                body = pack(">i", number) + answers[key].encode()
                writer.write(pack(">i", len(body)) + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    options = KafkaOptions(sasl_mechanism="PLAIN", sasl_username=USER, sasl_password=PASSWORD)
    client = KafkaClient(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", options, client_id="c")
    with pytest.raises(outcome, match=text):
        await client.start(timeout_ms=300)
    await client.close()
    server.close()
