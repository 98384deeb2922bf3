"""An actor behind a web service: it owns the state, requests only send messages.

Shows: a system with the lifetime of the application, GET as `ask`, POST as `offer`. A full mailbox
is backpressure: the client gets a 503 and retries later, and memory stays bounded under any load.
The service needs the extra `web`.

Run: python examples/starlette_app.py
Then: curl -X POST '127.0.0.1:8000/hits?page=home' ; curl '127.0.0.1:8000/hits?page=home'
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, assert_never

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from actors import Actor, ActorStopped, AskTimeout, Mailbox, MailboxFull, Message, Reply, Resume, Spec, System

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

    from actors import Ref


class Hit(Message, frozen=True):
    page: str


class Count(Message, frozen=True):
    reply: Reply[int]
    page: str


class Hits(Actor[Hit | Count]):
    """Count the hits of each page; a hit counts once it is saved."""

    def __init__(self, save: Callable[[str], Awaitable[None]]) -> None:
        self._save = save
        self._counts: Counter[str] = Counter()

    async def receive(self, message: Hit | Count) -> None:
        match message:
            case Hit(page):
                await self._save(page)
                self._counts[page] += 1
            case Count(reply, page):
                reply.tell(self._counts[page])
            case _:
                assert_never(message)


async def save_slowly(page: str) -> None:
    """Fake a database."""
    del page
    await asyncio.sleep(0.01)


def unavailable(why: str) -> JSONResponse:
    return JSONResponse({"error": why}, status_code=503, headers={"Retry-After": "1"})


async def post_hit(request: Request) -> JSONResponse:
    hits: Ref[Hit | Count] = request.app.state.hits
    accepted = hits.offer(Hit(request.query_params["page"]))
    return JSONResponse({"accepted": True}, status_code=202) if accepted else unavailable("too many hits at once")


async def get_hits(request: Request) -> JSONResponse:
    hits: Ref[Hit | Count] = request.app.state.hits
    try:
        count = await hits.ask(Count, request.query_params["page"])
    except (MailboxFull, ActorStopped, AskTimeout) as error:
        return unavailable(str(error))
    return JSONResponse({"count": count})


def create_app(*, save: Callable[[str], Awaitable[None]] = save_slowly, capacity: int = 100) -> Starlette:
    """Create the application; at most `capacity` hits wait to be saved."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with System("web") as system:
            # A hit that could not be saved is lost and logged; the counts stay correct.
            spec = Spec(lambda: Hits(save), supervise=lambda _: Resume(), mailbox=Mailbox(capacity=capacity))
            app.state.hits = await system.spawn(spec, "hits")
            yield
            # Leaving the block stops the actor: hits queued at this moment are lost, and logged.

    return Starlette(routes=[Route("/hits", post_hit, methods=["POST"]), Route("/hits", get_hits, methods=["GET"])], lifespan=lifespan)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(create_app(), host="127.0.0.1", port=8000)
