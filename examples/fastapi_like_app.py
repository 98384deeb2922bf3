"""A streams app in the lifespan of a web service: POST an order, GET the sales counts.

Shows: an app that shares the event loop with the service and writes its requests, a view that
follows the output topic, metrics. The same lines work in the lifespan of any ASGI framework. The
service needs the extra `web`.

Run: python examples/fastapi_like_app.py
Then: curl -X POST '127.0.0.1:8000/orders?customer=ann&cents=450'
      curl '127.0.0.1:8000/sales/ann'
      curl 127.0.0.1:8000/health
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from ks_actors import App, Consumed, InstanceState, Materialized, Produced, StreamsBuilder, StreamsConfig, Topology
from ks_actors.serdes import LONG, STRING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

ORDERS, SALES = "orders", "sales"


def topology() -> Topology:
    builder = StreamsBuilder()
    sales = builder.stream(ORDERS, Consumed(STRING, LONG)).group_by_key().reduce(lambda sum_, cents: sum_ + cents, Materialized(SALES, STRING, LONG))
    sales.to_stream().to(SALES, Produced(STRING, LONG))
    return builder.build()


async def follow(app: App, view: dict[str, int]) -> None:
    """Keep `view` equal to the committed records of the output topic."""
    async for record in app.records(SALES):
        if record.key is not None and record.value is not None:
            view[record.key] = record.value


async def post_order(request: Request) -> JSONResponse:
    app: App = request.app.state.streams
    sent = await app.send(ORDERS, request.query_params["customer"], int(request.query_params["cents"]))
    return JSONResponse({"accepted": f"{sent.topic}-{sent.partition} offset {sent.offset}"}, status_code=202)


async def get_sales(request: Request) -> JSONResponse:
    cents = request.app.state.view.get(request.path_params["customer"])
    return JSONResponse({"error": "nothing is known of them"}, status_code=404) if cents is None else JSONResponse({"cents": cents})


async def get_health(request: Request) -> JSONResponse:
    streams: App = request.app.state.streams
    metrics = streams.metrics()
    told = {name: metrics[name] for name in ("process-total", "commit-total", "active-tasks", "alive-workers")}
    running = streams.state in {InstanceState.RUNNING, InstanceState.REBALANCING}
    return JSONResponse({"state": streams.state.name, **told}, status_code=200 if running else 503)


def create_app(*, log_url: str = "memory://") -> Starlette:
    """Create the service; `embedded:///a/directory` persists orders and sales."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.view = {}
        with tempfile.TemporaryDirectory() as directory:  # restored from the changelog
            config = StreamsConfig(application_id="shop", log=log_url, processing_guarantee="exactly_once_v2", state_dir=directory)
            async with App(topology(), config, topics={ORDERS: 4, SALES: 1}) as app.state.streams, asyncio.TaskGroup() as tasks:
                follower = tasks.create_task(follow(app.state.streams, app.state.view))
                yield
                follower.cancel()

    routes = [
        Route("/orders", post_order, methods=["POST"]),
        Route("/sales/{customer}", get_sales),
        Route("/health", get_health),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(create_app(), host="127.0.0.1", port=8000)
