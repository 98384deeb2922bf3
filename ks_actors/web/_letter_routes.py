"""Dead letters over HTTP: list and redrive them."""

from __future__ import annotations

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
from ks_actors.records import TopicPartition
from ks_actors.web._answers import Refusal, answer, number

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from starlette.requests import Request
    from starlette.responses import Response

    from ks_actors.app import App
    from ks_actors.letters import Letter, LetterGroup

_MOST: Final = 1_000
_SHOWN: Final = 2_000
_MOST_BYTES: Final = 10_000
# The limit for all letters of a topic that are listed at once.
_LISTED_BYTES: Final = 32 << 20
# An order for a group writes back so many letters at most, and tells how many are left.
_AT_ONCE: Final = 500
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
    """The group of letters to redrive; `ends` are those of the list that the caller has seen."""

    topic: str
    exception: str | None
    source: str
    ends: tuple[Annotated[int, msgspec.Meta(ge=0, le=_MOST_OFFSET)], ...]


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


def list_letters(app: App, topics: Collection[str]) -> Callable[[Request], Awaitable[Response]]:
    """Return the handler that lists the newest letters of all topics, and counts by group."""

    async def handle(request: Request) -> Response:
        limit = number(request, "limit", 100, most=_MOST)
        found: list[Letter] = []
        groups: list[LetterGroup] = []
        ends: dict[str, tuple[int, ...]] = {}
        whole = True
        for topic in topics:
            client_id = f"{app.config.client_id}-page"
            survey = await survey_letters(
                app.log, topic, limit=limit, client_id=client_id, max_bytes=_LISTED_BYTES
            )
            found += survey.letters
            groups += survey.groups
            _add_times(survey.groups, app)
            ends[topic] = survey.ends
            whole = whole and survey.whole
        return answer(
            {
                "topics": sorted(topics),
                "letters": [letter_view(one) for one in newest_letters(found, limit)],
                "groups": groups,
                "total": sum(group.count for group in groups),
                "whole": whole,
                "ends": ends,
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
    """Return the handler that writes letters of a group back, at most 500 of them."""

    async def handle(request: Request) -> Response:
        order = await body(request, GroupOrder)
        if order.topic not in topics:
            raise Refusal(404, f"topic {order.topic} is not a dead letter topic of this app")
        config = app.config
        group = ChosenGroup(order.topic, order.exception, order.source)
        where = await letters_of_group(
            app.log, group, order.ends, client_id=f"{config.client_id}-page"
        )
        chosen: dict[TopicPartition, list[int]] = {}
        for place, offset in where[:_AT_ONCE]:
            chosen.setdefault(place, []).append(offset)
        redriven = 0
        for place, offsets in chosen.items():
            redriven += len(
                await redrive_letters(app.log, place, offsets, application_id=config.application_id)
            )
        return answer({"redriven": redriven, "left": max(0, len(where) - _AT_ONCE)})

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
