"""Dead letters are listed, and written back to their source once."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ks_actors import Batch, Fenced, LogTimeout, ProduceFailed, RedriveRefused, StreamsBuilder, UnknownTopicOrPartition
from ks_actors.letters import Letter, Lot, _read, newest_letters, read_letter, read_letters, redrive, redrive_letters, survey_letters
from ks_actors.log import GroupMetadata, Log, NewTopic, Outgoing, TopicPartition
from ks_actors.testing import AppHarness, TestRecord, run_app
from ks_actors.topology import Topology
from tests.examples_of import examples
from tests.ks_actors.runtime.helpers import GUARANTEES, STRINGS, STRINGS_OUT, feed_all, in_app, in_virtual_time

TOPICS = {"in": 2, "out": 2, "dead": 1}
DEAD = TopicPartition("dead", 0)
HEADERS = (("trace", b"7"), ("empty", None), ("trace", b"8"))


class Parser:
    """A function that cannot read some values until it is mended."""

    def __init__(self) -> None:
        self.mended: bool = False

    def __call__(self, value: str) -> str:
        if value.startswith("bad") and not self.mended:
            raise ValueError(f"cannot parse {value}")
        return value.upper()


class Mended(Parser):
    """A function that reads each value when it comes again."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __call__(self, value: str) -> str:
        self.mended = value in self.seen
        self.seen.add(value)
        return super().__call__(value)


def parsing(parser: Parser) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(parser).to("out", STRINGS_OUT)
    return builder.build()


SETTINGS: Any = {"processing_exception_handler": "continue", "errors_dead_letter_queue_topic_name": "dead"}


async def letters(harness: AppHarness, count: int = 10) -> list[Letter]:
    return await read_letters(harness.log, "dead", limit=count)


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_virtual_time
async def test_a_redriven_letter_is_processed_once(guarantee: str) -> None:
    """Its record comes back in its own partition with its key, value, timestamp and headers; the letter then counts as redriven."""
    parser = Parser()
    async with AppHarness(parsing(parser), topics=TOPICS, processing_guarantee=guarantee, **SETTINGS) as harness:
        await feed_all(harness, "in", [TestRecord("a", "bad", 7, HEADERS), TestRecord("a", "fine", 8)], partition=1)
        (letter,) = await letters(harness)
        assert (letter.key, letter.value, letter.timestamp, letter.headers) == (b"a", b"bad", 7, HEADERS)
        assert (letter.source, letter.source_offset, letter.redriven) == (TopicPartition("in", 1), 0, False)
        assert letter.exception is not None
        assert letter.message is not None
        assert letter.exception.endswith("ValueError")
        assert "cannot parse bad" in letter.message
        parser.mended = True
        assert await redrive(harness.log, letter.place, letter.offset, application_id="app") == letter
        await harness.caught_up()
        assert [record.value for record in await harness.read("out")] == ["FINE", "BAD"]
        back = (await harness.read("in"))[-1]
        assert (back.key, back.timestamp, back.headers) == ("a", 7, (*HEADERS, ("__ks_actors.redriven_from", b"dead-0@0")))
        (again,) = await letters(harness)
        assert again.redriven
        with pytest.raises(RedriveRefused, match="was written back to in-1 before"):
            await redrive(harness.log, DEAD, 0, application_id="app")
        assert len(await harness.read("in")) == 3


@in_app(parsing(Parser()), topics=TOPICS, **SETTINGS)
async def test_a_letter_that_fails_again_is_a_new_letter(harness: AppHarness) -> None:
    """It names the letter before it once, and can be redriven in its turn."""
    await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
    await redrive(harness.log, DEAD, 0, application_id="app")
    await harness.caught_up()
    newest = max(await letters(harness), key=lambda letter: letter.offset)
    assert not newest.redriven
    await redrive(harness.log, DEAD, newest.offset, application_id="app")
    last = (await harness.read("in"))[-1]
    assert last.headers == (("__ks_actors.redriven_from", f"dead-0@{newest.offset}".encode()),)


NAMES = [
    "trace",
    "__ks_actors.redriven",
    "__ks_actors.redriven_from",
    *(f"__streams.errors.{name}" for name in ("topic", "offset", "message", "own")),
]
CONTENTS = st.sampled_from([None, b"", b"0", b"1", b"2", b"14", b"-1", b"out", b"in"])
ROWS = st.lists(st.tuples(st.sampled_from(["bad", None]), st.lists(st.tuples(st.sampled_from(NAMES), CONTENTS), max_size=3)), min_size=1, max_size=4)


@settings(max_examples=examples(25))
@given(ROWS)
def test_headers_of_a_record_decide_about_no_letter(rows: list[tuple[str | None, list[tuple[str, bytes | None]]]]) -> None:
    """With any headers that failed records bring, each is listed, redriven once, and comes back to its source as it was."""

    def fail(value: str | None) -> str:
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in", STRINGS).map_values(fail).to("out", STRINGS_OUT)

    async def test(harness: AppHarness) -> None:
        await feed_all(harness, "in", [TestRecord("a", value, 7, tuple(headers)) for value, headers in rows], partition=0)
        fed = list(enumerate(rows))
        assert [(each.source_offset, each.redriven) for each in reversed(await letters(harness))] == [(row, False) for row, _ in fed]
        for row, (value, headers) in fed:
            letter = await redrive(harness.log, DEAD, row, application_id="app")
            assert (letter.source, letter.value, letter.headers) == (TopicPartition("in", 0), value and value.encode(), tuple(headers))
            back = (await harness.read("in"))[-1]
            # Of the letters that it was before it names the last one alone.
            kept = [pair for pair in headers if pair[0] != "__ks_actors.redriven_from"]
            assert back.headers == (*kept, ("__ks_actors.redriven_from", f"dead-0@{row}".encode()))
            assert {each.offset for each in await letters(harness, 100) if each.redriven} == set(range(row + 1))

    run_app(test, builder.build(), topics=TOPICS, **SETTINGS)


def letter_at(partition: int, offset: int, timestamp: int) -> Letter:
    return Letter(topic="dead", partition=partition, offset=offset, timestamp=timestamp, key=None, value=None, headers=())


@in_app(parsing(Parser()), topics={**TOPICS, "dead": 2}, **SETTINGS)
async def test_the_letters_written_last_are_listed_whatever_their_timestamps(harness: AppHarness) -> None:
    """Records with a wrong time, such as microseconds for milliseconds, do not stay on top for ever."""
    wrong = [TestRecord("a", f"bad{number}", 1_700_000_000_000_000 - number) for number in range(60)]
    await feed_all(harness, "in", wrong, partition=0)
    await feed_all(harness, "in", [TestRecord("b", "bad", 7)], partition=1)
    found = await letters(harness, 50)
    assert len(found) == 50
    assert sum(letter.key == b"b" for letter in found) == 1
    assert [letter.value for letter in found if letter.key == b"a"] == [f"bad{number}".encode() for number in range(59, 10, -1)]
    assert {letter.key for letter in await letters(harness, 2)} == {b"a", b"b"}


def test_partitions_give_their_newest_letters_in_turn() -> None:
    """Each in the order of its offsets; the timestamps decide between partitions only."""
    columns = [letter_at(0, offset, 1_000 + offset) for offset in range(5)] + [letter_at(1, 7, 3), letter_at(1, 8, 2), letter_at(2, 0, 1_002)]
    found = [(letter.partition, letter.offset) for letter in newest_letters(columns, 5)]
    assert found == [(0, 4), (0, 3), (2, 0), (1, 8), (1, 7)]
    assert [(letter.partition, letter.offset) for letter in newest_letters(columns, 2)] == [(0, 4), (2, 0)]
    assert newest_letters([], 3) == []


@in_app(parsing(Parser()), topics=TOPICS, **SETTINGS)
async def test_two_operators_at_once_redrive_a_letter_once(harness: AppHarness) -> None:
    """The second fences the first, or finds its marker: at most one record is written."""
    await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
    tries = [redrive(harness.log, DEAD, 0, application_id="app") for _ in range(3)]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)
    assert sum(isinstance(outcome, Letter) for outcome in outcomes) == 1
    assert all(isinstance(outcome, Letter | Fenced | RedriveRefused) for outcome in outcomes)
    assert len(await harness.read("in")) == 2


@pytest.mark.parametrize("seed", range(5))
@in_app(lambda: parsing(Mended()), topics=TOPICS, **SETTINGS)
async def test_operators_with_different_ids_at_once_redrive_a_letter_once(harness: AppHarness, seed: int) -> None:
    """The topic may be shared by applications: the marker that comes first counts, the others are refused."""
    await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
    ids = ("one", "two", "three", "app")
    outcomes = await asyncio.gather(*(redrive(harness.log, DEAD, 0, application_id=each) for each in ids), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, Letter)] == [RedriveRefused] * 3
    assert len(await harness.read("in")) == 2


@in_app(lambda: parsing(Mended()), topics=TOPICS, **SETTINGS)
async def test_letters_of_a_group_go_back_once_whoever_else_redrives_some(harness: AppHarness) -> None:
    """Each record is written once, in its order, by operators with different ids that redrive all and one; aborted tries leave nothing."""
    values = [f"bad{number}" for number in range(10)]
    await feed_all(harness, "in", [TestRecord("a", value, 7) for value in values[:6]], partition=0)
    await feed_all(harness, "in", [TestRecord("a", value, 7) for value in values[6:]], partition=1)
    tries = [redrive_letters(harness.log, DEAD, range(10), application_id=each) for each in ("one", "two")]
    found = await asyncio.gather(*tries, redrive(harness.log, DEAD, 3, application_id="app"), return_exceptions=True)
    every = [letter.offset for one in found for letter in (one.written if isinstance(one, Lot) else [one] if isinstance(one, Letter) else [])]
    assert sorted(every) == list(range(10))
    back = [str(record.value) for record in await harness.read("in")]
    assert sorted(back) == sorted(values * 2)
    back = back[6:12]
    assert [value for value in back if value != "bad3"] == [value for value in values[:6] if value != "bad3"]
    assert all(letter.redriven for letter in await letters(harness))


@in_app(lambda: parsing(Mended()), topics=TOPICS, **SETTINGS)
async def test_a_redrive_that_is_given_up_lets_the_next_one_write(harness: AppHarness) -> None:
    """A marker that was aborted does not count, and a redrive that cannot wait longer for it writes nothing."""
    log = harness.log
    await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
    other = await log.transactional_producer("other-redrive", client_id="other", timeout_ms=60_000)
    await other.send([Outgoing(DEAD, Batch([None], [None], [1], [(("__ks_actors.redriven", b"0"),)]))])
    with pytest.raises(LogTimeout, match="a transaction is open in dead-0"):
        await redrive(log, DEAD, 0, application_id="app", timeout_ms=500)
    waiting = asyncio.create_task(redrive(log, DEAD, 0, application_id="app"))
    await asyncio.sleep(0.1)
    await other.abort()
    assert (await waiting).offset == 0
    await other.close()
    assert len(await harness.read("in")) == 2


@pytest.mark.parametrize("ends", [True, False])
@in_virtual_time
async def test_an_open_transaction_hides_no_marker(*, ends: bool) -> None:
    """A redrive waits for the transactions of other writers in the topic; if they stay open it fails, and writes nothing."""
    async with AppHarness(parsing(Parser()), topics=TOPICS, **SETTINGS) as harness:
        log = harness.log
        await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
        other = await log.transactional_producer("other", client_id="other", timeout_ms=60_000)
        await other.send([Outgoing(DEAD, Batch([None], [None], [1]))])
        # A marker behind the first record of the open transaction.
        producer = await log.transactional_producer("app-redrive", client_id="earlier", timeout_ms=60_000)
        await producer.send([Outgoing(DEAD, Batch([None], [None], [1], [(("__ks_actors.redriven", b"0"),)]))])
        await producer.commit({}, GroupMetadata("", -1, ""))
        await producer.close()
        again = asyncio.create_task(redrive(log, DEAD, 0, application_id="app", timeout_ms=1_000))
        if ends:
            await asyncio.sleep(0.5)
            await other.abort()
        with pytest.raises(RedriveRefused if ends else LogTimeout, match="before"):
            await again
        await other.close()
        assert len(await harness.read("in")) == 1


@in_app(parsing(Parser()), topics=TOPICS, **SETTINGS)
async def test_what_is_no_letter_is_refused(harness: AppHarness) -> None:
    """An offset without a letter, a marker, and a record without a source; nothing is written then."""
    log = harness.log
    producer = await log.producer(client_id="other")
    await producer.send([Outgoing(DEAD, Batch([b"k"], [b"v"], [1], [(("__streams.errors.partition", b"x"),)]))])
    await producer.close()
    with pytest.raises(RedriveRefused, match="does not name its source partition"):
        await redrive(log, DEAD, 0, application_id="app")
    with pytest.raises(RedriveRefused, match="no dead letter at offset 5 of dead-0"):
        await redrive(log, DEAD, 5, application_id="app")
    await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
    (letter,) = [one for one in await letters(harness) if one.source is not None]
    await redrive(log, DEAD, letter.offset, application_id="app")
    marker = letter.offset + 1
    assert await read_letter(log, DEAD, marker) is None
    with pytest.raises(RedriveRefused, match="no dead letter"):
        await redrive(log, DEAD, marker, application_id="app")
    with pytest.raises(UnknownTopicOrPartition):
        await read_letters(log, "nowhere")


@in_app(parsing(Parser()), topics={**TOPICS, "dead": 3}, **SETTINGS)
async def test_the_newest_letters_come_first_up_to_a_limit(harness: AppHarness) -> None:
    """Of each partition the last ones are read, and all together are cut to the limit."""
    await feed_all(harness, "in", [TestRecord("a", f"bad{number}", number) for number in range(12)])
    assert [letter.value for letter in await letters(harness, 3)] == [b"bad11", b"bad10", b"bad9"]
    assert len(await letters(harness, 100)) == 12
    assert await read_letters(harness.log, "out", limit=5) == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
@in_app(lambda: parsing(Mended()), topics=TOPICS, **SETTINGS)
async def test_letters_before_the_markers_of_others_are_listed(harness: AppHarness, guarantee: str) -> None:
    """The limit counts letters: markers and ends of transactions behind them hide none."""
    await feed_all(harness, "in", [TestRecord("a", f"bad{number}", number) for number in range(4)])
    for letter in await letters(harness, 4):
        await redrive(harness.log, letter.place, letter.offset, application_id="app")
    listed = await letters(harness, 3)
    assert [letter.value for letter in listed] == [b"bad3", b"bad2", b"bad1"]
    assert all(letter.redriven for letter in listed)


@in_app(parsing(Parser()), topics=TOPICS, **SETTINGS)
async def test_letters_that_cannot_be_read_in_time_are_an_error(harness: AppHarness) -> None:
    """The error names the partition and how far the reading came."""
    await feed_all(harness, "in", [TestRecord("a", "bad", 7)])
    with pytest.raises(LogTimeout, match="could not read dead letters within 0 ms: dead-0 at 0 of 1"):
        await read_letters(harness.log, "dead", timeout_ms=0)


@in_app(parsing(Parser()), topics=TOPICS, start=False, **SETTINGS)
async def test_large_letters_are_listed_up_to_a_number_of_bytes(harness: AppHarness, caplog: pytest.LogCaptureFixture) -> None:
    """The newest of each partition stay, one at least, and a warning tells how many; without a limit all are there."""
    for number in range(6):
        await harness.produce("dead", b"k", b"%d" % number + b"x" * 1000, number)
    sizes = {None: 6, 3500: 3, 10: 1, 100_000: 6}
    for max_bytes, count in sizes.items():
        caplog.clear()
        found = await read_letters(harness.log, "dead", max_bytes=max_bytes)
        assert [(letter.value or b"")[:1] for letter in found] == [b"5", b"4", b"3", b"2", b"1", b"0"][:count]
        told = [record.getMessage() for record in caplog.records if "only its newest" in record.getMessage()]
        assert len(told) == (count < 6)
        assert all(f"the dead letters of dead-0 are large: only its newest {count} are listed" in line for line in told)


@in_app(parsing(Parser()), topics={**TOPICS, "small": NewTopic("small", 1, configs={"max.message.bytes": "2000"})}, start=False, **SETTINGS)
async def test_large_letters_go_back_in_lots_and_one_that_is_too_large_stays(harness: AppHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lot has so many bytes at most, one letter at least; the letter that the source refuses is named, and the others are written once."""
    monkeypatch.setattr(_read, "LOT_BYTES", 2500)
    sizes = (1000, 1000, 1000, 1900, 10, 10)
    source = (("__streams.errors.topic", b"small"), ("__streams.errors.partition", b"0"))
    producer = await harness.log.producer(client_id="other")
    await producer.send(
        [
            Outgoing(
                DEAD,
                Batch(
                    [None] * 6, [b"x" * size for size in sizes], [1] * 6, [(*source, ("big", b"y" * 900 if size == 1900 else b"")) for size in sizes]
                ),
            )
        ]
    )
    await producer.close()
    lots: list[Lot] = []
    start: int | None = 0
    while start is not None:
        lots.append(await redrive_letters(harness.log, DEAD, range(start, 6), application_id="app"))
        start = lots[-1].next
    assert [([one.offset for one in lot.written], [*lot.failed]) for lot in lots] == [([0, 1], []), ([2], []), ([4, 5], [3])]
    assert [len(record.value or "") for record in await harness.read("small")] == [1000, 1000, 1000, 10, 10]
    with pytest.raises(ProduceFailed, match="small-0"):
        await redrive(harness.log, DEAD, 3, application_id="app")


@in_app(parsing(Parser()), topics={**TOPICS, "dead": 2}, start=False, **SETTINGS)
async def test_a_survey_lists_the_newest_letters_and_counts_older_ones_while_there_is_room(
    harness: AppHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It tells which offsets it has counted; markers of counted letters count whatever is read first; without time it lists what it has."""
    log = harness.log
    for number in range(60):
        await harness.produce("dead", b"k", b"%02d" % number + b"x" * 1000, number, partition=number % 2)
    producer = await log.producer(client_id="other")
    await producer.send([Outgoing(DEAD, Batch([None], [None], [1], [(("__ks_actors.redriven", b"0"),)]))])
    await producer.close()
    options: Any = {"limit": 3, "client_id": "page", "max_bytes": 1 << 20}
    found = await survey_letters(log, "dead", **options)
    (group,) = found.groups
    assert (found.whole, found.starts, found.ends, group.count, group.redriven) == (True, (0, 0), (31, 30), 60, 1)
    assert [(one.value or b"")[:2] for one in found.letters] == [b"59", b"58", b"57"]
    monkeypatch.setattr(_read, "SURVEYED_BYTES", 20_000)
    found = await survey_letters(log, "dead", **options)
    assert not found.whole
    assert len(found.letters) == 3
    assert 15 <= found.groups[0].count == 61 - sum(found.starts) - 1 <= 25
    monkeypatch.setattr(_read, "_SURVEY_S", 0.0)
    found = await survey_letters(log, "dead", **options)
    assert (found.whole, found.starts, found.groups[0].count) == (False, (28, 27), 5)
    with pytest.raises(LogTimeout):
        await survey_letters(log, "dead", **options, timeout_ms=0)
    # A log that answers once, with the first part or with a record of each partition.
    for at_once, expected in ((500, ((28, 27), (31, 30), 5)), (2, ((28, 27), (29, 28), 2))):
        monkeypatch.setattr(_read, "_AT_ONCE", at_once)
        monkeypatch.setattr(_read, "_SURVEY_S", 3.0)
        found = await survey_letters(cast("Log", AnswersOnce(log)), "dead", **options)
        assert not found.whole
        assert (found.starts, found.ends, found.groups[0].count) == expected


class AnswersOnce:
    """A log whose readers get one answer together, and wait after it."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.answered: bool = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fetcher(self, **options: Any) -> Any:
        fetcher = self.inner.fetcher(**options)
        fetch = fetcher.fetch

        async def once(**bounds: Any) -> Any:
            if self.answered:
                await asyncio.Event().wait()
            self.answered = True
            return await fetch(**bounds)

        return Wrapped(fetcher, once)


class Wrapped:
    """A fetcher with another `fetch`."""

    def __init__(self, inner: Any, fetch: Any) -> None:
        self.inner = inner
        self.fetch = fetch

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)
