"""Look up and change topics and offsets."""

from __future__ import annotations

import asyncio
from functools import partial
from sys import maxsize
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, final

from ks_actors._errors import (
    ConfigError,
    LogError,
    LogTruncated,
    NotAuthorized,
    OffsetOutOfRange,
    TopicExists,
    UnknownTopicOrPartition,
)
from ks_actors.lifecycle import component_log
from ks_actors.log._types import IsolationLevel, TopicDescription
from ks_actors.log.kafka.client import UNKNOWN_EPOCH, Lookups, Unavailable, as_one_call
from ks_actors.log.kafka.wire import (
    INVALID_CONFIG,
    INVALID_PARTITIONS,
    INVALID_TOPIC_EXCEPTION,
    NOT_CONTROLLER,
    OFFSET_OUT_OF_RANGE,
    REQUEST_TIMED_OUT,
    RETRIABLE,
    TOPIC,
    TOPIC_ALREADY_EXISTS,
    UNKNOWN_SERVER_ERROR,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    error_of,
    incremental_alter_configs,
    name_of,
    offset_for_leader_epoch,
)
from ks_actors.log.kafka.wire import UNKNOWN_TOPIC_OR_PARTITION as UNKNOWN
from ks_actors.records import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ks_actors.log._types import NewTopic
    from ks_actors.log.kafka.client import KafkaClient, TopicMetadata

T = TypeVar("T")
_Asked: TypeAlias = "list[tuple[str, list[tuple[int, int]]]]"

_log = component_log(__name__)

_EARLIEST = -2
_LATEST = -1
_ISOLATION = {IsolationLevel.READ_UNCOMMITTED: 0, IsolationLevel.READ_COMMITTED: 1}
# Seconds from a lookup of limits, even without an answer, to the next one.
_LIMITS_S = 300


@final
class Admin:
    """Administrative requests to the cluster; each call ends by the client's deadline."""

    def __init__(self, client: KafkaClient) -> None:
        self._client: KafkaClient = client
        self._lookups: Lookups = Lookups(client)
        self._limits: dict[str, tuple[float, int]] = {}

    # --- topics -----------------------------------------------------------------------------------

    @as_one_call
    async def create_topics(self, topics: Iterable[NewTopic]) -> None:
        """Create topics, and wait until they have leaders, even if others create them meanwhile.

        Raises TopicExists, ConfigError, LogError; the other topics are created nevertheless.
        """
        wanted = {topic.name: topic for topic in topics}
        if not wanted:
            return
        # List topics before the request: if a response is lost, TOPIC_ALREADY_EXISTS for an
        # unlisted topic means our own topic. Listed topics are requested too, as a broker may list
        # a topic that has just been deleted.
        listed = set(await self._client.metadata(wanted))
        failed: dict[str, LogError] = {}
        left = dict(wanted)
        lost = await self._change(
            f"to create {', '.join(left)}",
            lambda: self._creation(left.values()),
            left,
            failed,
            dict.fromkeys(left, TOPIC_ALREADY_EXISTS),
        )
        existing = {
            name
            for name, error in failed.items()
            # A user who may not create topics may still use existing topics.
            if isinstance(error, TopicExists)
            or (isinstance(error, NotAuthorized) and name in listed)
        }
        if lost:
            existing |= listed - failed.keys()
        # If somebody else has just created a topic, the controller knows it before the brokers.
        await self._until_led(
            dict.fromkeys(existing - listed, 1)
            | {
                name: topic.partitions
                for name, topic in wanted.items()
                if name not in existing and name not in failed
            }
        )
        for name, error in failed.items():
            if name not in existing:
                raise error
        if existing:
            raise TopicExists(f"topics {', '.join(sorted(existing))} already exist")

    @as_one_call
    async def check_new_topics(self, topics: Iterable[NewTopic]) -> None:
        """Raise the first error that creating the missing topics would raise; create none."""
        wanted = {topic.name: topic for topic in topics}
        if not wanted:
            return
        existing = await self._client.metadata(wanted)
        left = {name: topic for name, topic in wanted.items() if name not in existing}
        failed: dict[str, LogError] = {}

        if left:
            await self._change(
                f"to check {', '.join(left)}",
                lambda: self._creation(left.values(), only_check=True),
                left,
                failed,
                dict.fromkeys(left, TOPIC_ALREADY_EXISTS),
                lost=True,
            )
        for error in failed.values():
            raise error

    def _creation(self, topics: Iterable[NewTopic], *, only_check: bool = False) -> Any:
        options = self._client.options
        asked: list[Any] = [
            (
                topic.name,
                topic.partitions,
                options.replication_factor,
                [],
                list(topic.configs.items()),
            )
            for topic in topics
        ]
        return CreateTopicsRequest(asked, options.request_timeout_ms, only_check)

    async def _change(
        self,
        what: str,
        request: Callable[[], Any],
        left: dict[str, Any],
        failed: dict[str, LogError],
        done: Mapping[str, int],
        *,
        lost: bool = False,
    ) -> bool:
        """Request topic changes of the controller until each is done or has an error in `failed`.

        If an answer was lost (before the call: `lost`) or reported a timeout, a topic's code in
        `done` means that an earlier request has changed the topic. Returns whether an answer was
        lost or reported a timeout.
        """

        async def attempt() -> None:
            nonlocal lost
            try:
                answer = await self._client.ask_controller(request())
            except LogError:
                lost = True
                raise
            again: str | None = None
            late = False
            for name, code, *detail in _rows(answer):
                if code == NOT_CONTROLLER or (code in RETRIABLE and code != UNKNOWN):
                    again = f"the controller answered {name_of(code)} for {name}"
                    late = late or code == REQUEST_TIMED_OUT
                    continue
                left.pop(name, None)
                if code and not (lost and done.get(name) == code):
                    failed[name] = _refusal(name, code, detail[0] if detail else None)
            lost = lost or late
            if again:
                raise Unavailable(again)

        await self._client.retry(what, attempt)
        return lost

    async def _until_led(self, counts: Mapping[str, int]) -> None:
        """Wait until topics have leaders for `counts` partitions, and the brokers know them."""
        ids: dict[str, str] = {}

        async def attempt() -> None:
            found = await self._client.metadata(counts)
            leaders = {name: topic.leaders.values() for name, topic in found.items()}
            missing = [
                name
                for name, count in counts.items()
                if len(leaders.get(name, ())) < max(1, count) or min(leaders[name]) < 0
            ]
            if missing:
                raise Unavailable(f"{', '.join(missing)} have no leaders yet", refresh=False)
            ids.update({name: topic.id for name, topic in found.items()})

        def heard(found: Mapping[str, TopicMetadata]) -> bool:
            # Compare ids: the broker may still know a deleted topic of the same name.
            return all(
                name in found
                and found[name].id == ids[name]
                and len(found[name].leaders) >= max(1, count)
                for name, count in counts.items()
            )

        if counts:
            await self._client.retry(f"to wait until {', '.join(counts)} exist", attempt)
            await self._client.young.spread(counts, heard)

    @as_one_call
    async def create_partitions(self, counts: Mapping[str, int]) -> None:
        """Give topics more partitions, and wait until the new partitions have leaders.

        Raises UnknownTopicOrPartition, LogError; the other topics grow nevertheless.
        """
        left = dict(counts)
        if not left:
            return
        # Count partitions before the request: if a response is lost, INVALID_PARTITIONS for a topic
        # that had fewer partitions means success.
        before = {
            name: len(topic.leaders) for name, topic in (await self._client.metadata(left)).items()
        }
        failed: dict[str, LogError] = {}
        timeout_ms = self._client.options.request_timeout_ms

        def request() -> Any:
            asked: list[Any] = [(name, (count, None)) for name, count in left.items()]
            return CreatePartitionsRequest(asked, timeout_ms, False)

        grow = [name for name, count in counts.items() if before.get(name, count) < count]
        done = dict.fromkeys(grow, INVALID_PARTITIONS)
        await self._change(f"to add partitions to {', '.join(counts)}", request, left, failed, done)
        await self._until_led({name: count for name, count in counts.items() if name not in failed})
        for error in failed.values():
            raise error

    @as_one_call
    async def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics, and wait until the brokers no longer list them.

        Raises UnknownTopicOrPartition; the other topics are deleted nevertheless.
        """
        left: dict[str, None] = dict.fromkeys(names)
        wanted = list(left)
        if not wanted:
            return
        failed: dict[str, LogError] = {}
        there = await self._client.metadata(wanted)

        async def gone() -> None:
            found = await self._client.metadata(wanted)
            if any(name in found for name in wanted if name not in failed):
                raise Unavailable(f"{', '.join(found)} are still listed", refresh=False)

        timeout_ms = self._client.options.request_timeout_ms
        await self._change(
            f"to delete {', '.join(wanted)}",
            lambda: DeleteTopicsRequest(list(left), timeout_ms),
            left,
            failed,
            dict.fromkeys(there, UNKNOWN),
        )
        await self._client.retry(f"to wait until {', '.join(wanted)} are gone", gone)
        deleted = [name for name in wanted if name not in failed]
        await self._client.young.spread(wanted, lambda found: found.keys().isdisjoint(deleted))
        for error in failed.values():
            raise error

    @as_one_call
    async def describe_topics(
        self, names: Iterable[str] | None, *, configs: bool = True
    ) -> Mapping[str, TopicDescription]:
        """Return the topics that exist, with all their effective configs or with none.

        If topics of `names` are missing, several brokers are asked, for `missing_topic_wait_ms`.
        A topic has no configs if it may not be described, or if it was created just now and the
        broker that was asked for configs has not heard of it.
        """
        found = await self._client.metadata(None if names is None else list(names), patient=True)
        shown = [topic for topic in found.values() if not topic.internal]
        described = await self._configs([topic.name for topic in shown]) if configs else {}
        self._note_limits(described)
        return {
            topic.name: TopicDescription(
                topic.name, len(topic.leaders), described.get(topic.name, {}), topic.id
            )
            for topic in shown
        }

    async def _configs(
        self, topics: Sequence[str], names: Sequence[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """Return configs of topics.

        A topic has no configs if it may not be described; a missing topic is left out.
        """
        if not topics:
            return {}
        request = DescribeConfigsRequest([(TOPIC, topic, names) for topic in topics])
        response = await self._client.send_to_any(
            request, lambda answer: [code for code, *_ in answer.resources if code != UNKNOWN]
        )
        found: dict[str, dict[str, str]] = {topic: {} for topic in topics}
        for code, detail, _, topic, entries in response.resources:
            error = error_of(code, f"to describe topic {topic}", detail) if code else None
            if code == INVALID_TOPIC_EXCEPTION or isinstance(error, UnknownTopicOrPartition):
                found.pop(topic, None)
            elif error is None or isinstance(error, NotAuthorized):
                found[topic] = {name: value for name, value, *_ in entries if value is not None}
            else:
                raise error
        return found

    async def set_configs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Set configs of topics; their other configs stay unchanged.

        Raises UnknownTopicOrPartition, ConfigError.
        """
        codes: Callable[[Any], list[int]] = lambda answer: [  # noqa: E731 - short as it is
            code for code, *_ in answer.responses if code != UNKNOWN
        ]
        response = await self._client.send_to_controller(incremental_alter_configs(configs), codes)
        for code, detail, _, topic, *_ in response.responses:
            self._limits.pop(topic, None)
            if code == INVALID_CONFIG:
                raise ConfigError(f"topic {topic}: {detail}")
            if code:
                raise error_of(code, f"to set configs of topic {topic}", detail)

    # --- record size limits of topics -------------------------------------------------------------

    def known_limit(self, topic: str) -> int | None:
        """Return max.message.bytes of a topic if a fresh value is known."""
        entry = self._limits.get(topic)
        if entry is None or entry[0] < asyncio.get_running_loop().time():
            return None
        return entry[1]

    def limit(self, topic: str) -> int:
        """Return the last known max.message.bytes of a topic; no limit if it is unknown."""
        entry = self._limits.get(topic)
        return maxsize if entry is None else entry[1]

    async def learn_limits(self, topics: Iterable[str]) -> None:
        """Look up max.message.bytes of topics that have no fresh value.

        Without permission or after an error the last known value stays. Without any, the leaders
        decide: they refuse batches that are too large.
        """
        asked = [topic for topic in dict.fromkeys(topics) if self.known_limit(topic) is None]
        try:
            configs = await self._configs(asked, ["max.message.bytes"])
        except LogError as error:
            _log.debug("could not look up max.message.bytes; the leaders decide: %s", error)
            configs = {topic: {} for topic in asked}
        # An unknown limit is kept, too: otherwise each write would ask again. With an expired entry
        # the next call asks again for a topic that does not exist yet.
        until = asyncio.get_running_loop().time() + _LIMITS_S
        self._limits |= {
            topic: (until if topic in configs else 0, self.limit(topic)) for topic in asked
        }
        self._note_limits(configs)

    def _note_limits(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        until = asyncio.get_running_loop().time() + _LIMITS_S
        for topic, found in configs.items():
            if "max.message.bytes" in found:
                self._limits[topic] = (until, int(found["max.message.bytes"]))

    # --- offsets ----------------------------------------------------------------------------------

    async def _by_leader(
        self,
        what: str,
        wanted: Mapping[TopicPartition, int],
        send: Callable[[int, _Asked], Awaitable[Any]],
        read: Callable[[Any], Iterable[tuple[TopicPartition, int, int]]],
        retried: frozenset[int] = RETRIABLE,
    ) -> dict[TopicPartition, int]:
        """Ask the leader of each partition; `read` yields partition, error code and result."""
        left = dict(wanted)
        found: dict[TopicPartition, int] = {}

        async def attempt() -> None:
            leaders: dict[int, dict[str, list[tuple[int, int]]]] = {}
            for partition, value in left.items():
                topics = leaders.setdefault(await self._client.find_leader(partition), {})
                topics.setdefault(partition.topic, []).append((partition.partition, value))
            sent = [send(node, list(topics.items())) for node, topics in leaders.items()]
            answers = await asyncio.gather(*sent, return_exceptions=True)
            again: str | None = None
            for answer in answers:
                if isinstance(answer, Unavailable):
                    again = str(answer)
                elif isinstance(answer, BaseException):
                    raise answer
                else:
                    again = self._take(what, read(answer), left, found, retried) or again
            if again is not None:
                raise Unavailable(again)

        await self._client.retry(what, attempt)
        return found

    @staticmethod
    def _take(
        what: str,
        answers: Iterable[tuple[TopicPartition, int, int]],
        left: dict[TopicPartition, int],
        found: dict[TopicPartition, int],
        retried: frozenset[int],
    ) -> str | None:
        again: str | None = None
        for partition, code, result in answers:
            if partition not in left:
                continue  # another caller asked in the same request
            if code in retried:
                again = f"the leader of {partition} answered {name_of(code)}"
            elif code == OFFSET_OUT_OF_RANGE:
                raise OffsetOutOfRange(partition, left[partition], -1, -1)
            elif code:
                raise error_of(code, f"failed {what} of {partition}")
            else:
                found[partition] = result
                del left[partition]
        return again

    async def _offsets(
        self, times: Mapping[TopicPartition, int], isolation: IsolationLevel
    ) -> dict[TopicPartition, int]:
        return await self._by_leader(
            "to look up offsets",
            times,
            lambda node, topics: self._lookups.ask(node, _ISOLATION[isolation], topics),
            lambda answer: (
                (TopicPartition(topic, number), code, offset)
                for topic, partitions in answer.topics
                for number, code, _, offset in partitions
            ),
            # The broker's fault may have passed by the next request, as for Kafka's consumer.
            RETRIABLE | {UNKNOWN_SERVER_ERROR},
        )

    async def begin_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Return the first available offset of each partition."""
        return await self._offsets(
            dict.fromkeys(partitions, _EARLIEST), IsolationLevel.READ_UNCOMMITTED
        )

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], isolation: IsolationLevel
    ) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record, or the last stable offset."""
        return await self._offsets(dict.fromkeys(partitions, _LATEST), isolation)

    @as_one_call
    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Return the first offset at or after each time (ms).

        A partition without such a record gets its end offset.
        """
        found = await self._offsets(
            {partition: max(time, 0) for partition, time in times.items()},
            IsolationLevel.READ_UNCOMMITTED,
        )
        behind = [partition for partition, offset in found.items() if offset < 0]
        return {
            **found,
            **(await self.end_offsets(behind, IsolationLevel.READ_UNCOMMITTED) if behind else {}),
        }

    @as_one_call
    async def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete all records below the given offsets.

        Raises OffsetOutOfRange, UnknownTopicOrPartition.
        """
        await self._delete(before, {})

    @as_one_call
    async def delete_read(self, before: Mapping[TopicPartition, int]) -> None:
        """Delete records that readers of this client have read, below the given offsets.

        Skip partitions that have no reader. Raises LogTruncated when a log has lost records that
        were read, and the errors of `delete_records`.
        """
        known = self._client.epochs
        read = {name: end for name in before if (end := known.read_to(name)) is not None}
        for partition, end in read.items():
            if end < before[partition]:
                error = LogTruncated(partition, before[partition], -1, -1, end)
                await self._out_of_range(error, before[partition])
        # Look up epochs only once: after a loss the readers forget them, perhaps between two tries.
        epochs = {name: known.before(name, before[name]) for name in read}
        await self._delete({name: before[name] for name in read}, epochs)

    async def _delete(
        self, before: Mapping[TopicPartition, int], epochs: Mapping[TopicPartition, int]
    ) -> None:
        try:
            await self._by_leader(
                "to delete records",
                before,
                partial(self._delete_at, epochs),
                lambda answer: (
                    (TopicPartition(topic, number), code, offset)
                    for topic, partitions, *_ in answer.topics
                    for number, offset, code, *_ in partitions
                ),
            )
        except OffsetOutOfRange as error:
            await self._out_of_range(error, before[error.partition])

    async def _out_of_range(self, error: OffsetOutOfRange, position: int) -> NoReturn:
        """Raise the same error with the current range of the partition's log."""
        name = error.partition
        begin = (await self.begin_offsets([name]))[name]
        end = (await self.end_offsets([name], IsolationLevel.READ_UNCOMMITTED))[name]
        if isinstance(error, LogTruncated):
            raise LogTruncated(name, position, begin, end, error.diverges_at) from None
        raise OffsetOutOfRange(name, position, begin, end) from None

    async def _delete_at(
        self, epochs: Mapping[TopicPartition, int], node: int, topics: _Asked
    ) -> Any:
        """Delete records of partitions that a broker leads.

        `epochs` are the leader epochs before the offsets, -1 if unknown. Each attempt first
        compares these with the leader's epochs: a leader that has lost its log would delete records
        that nobody has read.
        """
        offsets = {
            TopicPartition(topic, number): offset
            for topic, numbers in topics
            for number, offset in numbers
        }
        asked = {name: epoch for name in offsets if (epoch := epochs.get(name, UNKNOWN_EPOCH)) >= 0}
        if asked:
            answer = await self._client.send(node, offset_for_leader_epoch(asked))
            for topic, parts, *_ in answer.topics:
                for code, number, *found in parts:
                    name, end = TopicPartition(topic, number), found[1]
                    if code in RETRIABLE:
                        raise Unavailable(f"the leader of {name} answered {name_of(code)}")
                    if code:
                        raise error_of(code, f"failed to look up the epoch of {name}")
                    # The end is -1 if all epochs of the leader are earlier: its log differs, too.
                    if end < offsets[name]:
                        at = end if end >= 0 else None
                        raise LogTruncated(name, offsets[name], -1, -1, at)
        request = DeleteRecordsRequest(topics, self._client.options.request_timeout_ms)
        return await self._client.send(node, request)


def _rows(answer: Any) -> Iterable[Any]:
    """Return the outcome of each topic: its name, error code, and the reason if there is one."""
    rows: Iterable[Any] = (
        answer.topic_error_codes if hasattr(answer, "topic_error_codes") else answer.topic_errors
    )
    return rows


def _refusal(name: str, code: int, reason: str | None) -> Any:
    if code == INVALID_CONFIG:
        return ConfigError(f"topic {name}: {reason}")
    return error_of(code, f"topic {name}", reason)
