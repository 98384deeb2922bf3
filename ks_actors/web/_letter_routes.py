"""Dead letters over HTTP: list and redrive them."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from starlette.requests import ClientDisconnect

from ks_actors.history import Done
from ks_actors.letters import (
    ChosenGroup,
    letters_of_group,
    newest_letters,
    redrive,
    redrive_letters,
    survey_letters,
)
from ks_actors.log import IsolationLevel
from ks_actors.records import TopicPartition
from ks_actors.web._answers import Refusal, answer, number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from starlette.requests import Request
    from starlette.responses import Response

    from ks_actors.app import App
    from ks_actors.letters import Letter, LetterGroup, Survey

_USUAL: Final = 100
_MOST: Final = 1_000
_SHOWN: Final = 2_000
_MOST_BYTES: Final = 10_000
# The limit for all letters of a topic that are listed at once.
_LISTED_BYTES: Final = 32 << 20
# An order for a group writes back so many letters at most, and tells how many are left.
_AT_ONCE: Final = 500
_EACH_S: Final = 1.0
_KEPT_S: Final = 10.0
_MOST_PARTITION: Final = (1 << 31) - 1
_MOST_OFFSET: Final = (1 << 63) - 1


class LetterView(msgspec.Struct, frozen=True):
    """A dead letter: keys and values as text where they are UTF-8, else in base64."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str | None], ...]
    exception: str | None
    message: str | None
    stacktrace: str | None
    source: str | None
    source_offset: int
    redriven: bool


class Order(msgspec.Struct, frozen=True):
    """The letter to redrive."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, le=_MOST_PARTITION)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=_MOST_OFFSET)]


class GroupOrder(msgspec.Struct, frozen=True):
    """The group of letters to redrive.

    `starts` and `ends` are those of the list that the caller has seen; later orders have the
    `starts` of the answer before.
    """

    topic: str
    exception: str | None
    source: str
    starts: tuple[Annotated[int, msgspec.Meta(ge=0, le=_MOST_OFFSET)], ...]
    ends: tuple[Annotated[int, msgspec.Meta(ge=0, le=_MOST_OFFSET)], ...]


class FailedLetter(msgspec.Struct, frozen=True):
    """A letter that its source partition did not take, and the reason."""

    partition: int
    offset: int
    error: str


def letter_view(letter: Letter) -> LetterView:
    """Return a letter for the page."""
    return LetterView(
        letter.topic,
        letter.partition,
        letter.offset,
        letter.timestamp,
        _shown(letter.key),
        _shown(letter.value),
        tuple((name, _shown(value)) for name, value in letter.headers),
        letter.exception,
        letter.message,
        letter.stacktrace,
        None if letter.source is None else str(letter.source),
        letter.source_offset,
        letter.redriven,
    )


class _Surveys:
    """The surveys of all topics, which callers share.

    A survey is used again while the ends of its topics are the same. A new survey begins at the
    earliest one second after the last.
    """

    def __init__(self, app: App, topics: Collection[str]) -> None:
        self._app = app
        self._topics = topics
        self._client_id = f"{app.config.client_id}-page"
        self._lock = asyncio.Lock()
        self._limit = 0
        self._last: dict[str, Survey] = {}
        self._next_at = 0.0
        self._forgets: asyncio.TimerHandle | None = None

    async def found(self, limit: int) -> dict[str, Survey]:
        """Return the survey of each topic, with at least the newest `limit` letters."""
        if not self._topics:
            return {}
        async with self._lock:
            if limit > self._limit or not await self._current():
                clock = asyncio.get_running_loop()
                await asyncio.sleep(self._next_at - clock.time())
                try:
                    await self._survey(_USUAL if limit <= _USUAL else _MOST)
                finally:
                    self._next_at = clock.time() + _EACH_S
                    if self._forgets is not None:
                        self._forgets.cancel()
                    # Letters may be large.
                    self._forgets = clock.call_later(_KEPT_S, self._forget)
            return self._last

    async def _survey(self, limit: int) -> None:
        self._forget()
        found = {
            topic: await survey_letters(
                self._app.log,
                topic,
                limit=limit,
                client_id=self._client_id,
                max_bytes=_LISTED_BYTES,
            )
            for topic in self._topics
        }
        self._last, self._limit = found, limit

    def _forget(self) -> None:
        self._last, self._limit = {}, 0

    async def _current(self) -> bool:
        places = {
            TopicPartition(topic, number): end
            for topic, survey in self._last.items()
            for number, end in enumerate(survey.read_to)
        }
        ends = await self._app.log.end_offsets(places, IsolationLevel.READ_COMMITTED)
        return dict(ends) == places


def list_letters(app: App, topics: Collection[str]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that lists the newest letters of all topics, and counts by group."""
    surveys = _Surveys(app, topics)

    async def handle(request: Request) -> Response:
        limit = number(request, "limit", _USUAL, most=_MOST)
        found = await surveys.found(limit)
        groups = [group for survey in found.values() for group in survey.groups]
        _add_times(groups, app)
        letters = [letter for survey in found.values() for letter in survey.letters]
        return answer(
            {
                "topics": sorted(topics),
                "letters": [letter_view(one) for one in newest_letters(letters, limit)],
                "groups": groups,
                "total": sum(group.count for group in groups),
                "whole": all(survey.whole for survey in found.values()),
                "starts": {topic: survey.starts for topic, survey in found.items()},
                "ends": {topic: survey.ends for topic, survey in found.items()},
            }
        )

    return handle


def _add_times(groups: list[LetterGroup], app: App) -> None:
    """Add the times of the failures in this process; a letter has only that of its record."""
    runs = app._metrics.history.exceptions.latest()
    for group in groups:
        name = (group.exception or "").rpartition(".")[2]
        found = [
            run
            for run in runs
            if run.done is Done.DEAD_LETTERED
            and run.topic == group.source
            and run.error.partition(" ")[0] == name
        ]
        if found:
            group.failed_first_ms = min(run.first_ms for run in found)
            group.failed_last_ms = max(run.last_ms for run in found)


def redrive_letter(app: App, topics: Collection[str]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that writes a letter back to its source."""

    async def handle(request: Request) -> Response:
        order = await body(request, Order)
        if order.topic not in topics:
            raise Refusal(404, f"topic {order.topic} is not a dead letter topic of this app")
        letter = await redrive(
            app.log,
            TopicPartition(order.topic, order.partition),
            order.offset,
            application_id=app.config.application_id,
        )
        return answer({"redriven": letter_view(letter)})

    return handle


def redrive_group(app: App, topics: Collection[str]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that writes letters of a group back, at most 500 of them.

    It answers with the letters that failed, and with the offsets from which the next order begins.
    """

    async def handle(request: Request) -> Response:
        order = await body(request, GroupOrder)
        if order.topic not in topics:
            raise Refusal(404, f"topic {order.topic} is not a dead letter topic of this app")
        if len(order.starts) != len(order.ends):
            raise Refusal(400, "the body is not as expected: starts and ends differ in length")
        config = app.config
        group = ChosenGroup(order.topic, order.exception, order.source)
        where = await letters_of_group(
            app.log, group, order.starts, order.ends, client_id=f"{config.client_id}-page"
        )
        chosen: dict[TopicPartition, list[int]] = {}
        for place, offset in where[:_AT_ONCE]:
            chosen.setdefault(place, []).append(offset)
        redriven = 0
        failed: list[FailedLetter] = []
        starts = list(order.starts)
        for place, offsets in chosen.items():
            lot = await redrive_letters(
                app.log, place, offsets, application_id=config.application_id
            )
            redriven += len(lot.written)
            failed += [
                FailedLetter(place.partition, offset, str(error))
                for offset, error in sorted(lot.failed.items())
            ]
            starts[place.partition] = offsets[-1] + 1 if lot.next is None else lot.next
        left = sum(offset >= starts[place.partition] for place, offset in where)
        return answer({"redriven": redriven, "left": left, "failed": failed, "starts": starts})

    return handle


async def body(request: Request, kind: Any) -> Any:
    """Return the body of a request, read as JSON of a type. Raises Refusal."""
    content = b""
    try:
        async for part in request.stream():
            content += part
            if len(content) > _MOST_BYTES:
                raise Refusal(413, f"the body has more than {_MOST_BYTES} bytes")
    except ClientDisconnect:
        raise Refusal(400, "the client closed the connection before the end of the body") from None
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Refusal(400, f"the body is not as expected: {error}") from None


def _shown(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = f"base64:{base64.b64encode(content).decode()}"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"
