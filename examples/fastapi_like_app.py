"""A streams app in the lifespan of a web service: POST an order, GET the sales counts.

Shows: an app that shares the event loop with the service, a producer for requests, a view that
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
import time
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from ks_actors import App, Batch, Consumed, InstanceState, Materialized, Produced, StreamsBuilder, StreamsConfig, Topology, partition_of
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition, open_log
from ks_actors.serdes import LONG, STRING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request

    from ks_actors.log import Log, Producer

ORDERS, SALES = "orders", "sales"
PARTITIONS = 4


def topology() -> Topology:
    builder = StreamsBuilder()
    sales = builder.stream(ORDERS, Consumed(STRING, LONG)).group_by_key().reduce(lambda sum_, cents: sum_ + cents, Materialized(SALES, STRING, LONG))
    sales.to_stream().to(SALES, Produced(STRING, LONG))
    return builder.build()


async def follow(log: Log, view: dict[str, int]) -> None:
    """Keep `view` equal to the committed records of the output topic."""
    fetcher = log.fetcher(client_id="view", isolation=IsolationLevel.READ_COMMITTED)
    customer, cents = STRING.deserializer(SALES, is_key=True), LONG.deserializer(SALES)
    fetcher.assign({TopicPartition(SALES, 0): 0})
    try:
        while True:
            for fetched in await fetcher.fetch(max_wait_ms=1_000):
                view |= zip(map(customer, fetched.batch.keys), map(cents, fetched.batch.values), strict=True)
    finally:
        await fetcher.close()


async def post_order(request: Request) -> JSONResponse:
    producer: Producer = request.app.state.producer
    customer = request.query_params["customer"].encode()
    cents = LONG.serializer(ORDERS)(int(request.query_params["cents"]))
    partition = TopicPartition(ORDERS, partition_of(customer, PARTITIONS))
    (end,) = await producer.send([Outgoing(partition, Batch([customer], [cents], [time.time_ns() // 1_000_000]))])
    return JSONResponse({"accepted": f"{partition} offset {end - 1}"}, status_code=202)


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
        log = open_log(log_url)
        await log.start()
        there = await log.describe_topics()
        await log.create_topics([topic for topic in (NewTopic(ORDERS, PARTITIONS), NewTopic(SALES, 1)) if topic.name not in there])
        app.state.view = {}
        app.state.producer = await log.producer(client_id="web")
        with tempfile.TemporaryDirectory() as directory:  # restored from the changelog
            config = StreamsConfig(application_id="shop", processing_guarantee="exactly_once_v2", state_dir=directory)
            async with App(topology(), config, log=log) as app.state.streams, asyncio.TaskGroup() as tasks:
                follower = tasks.create_task(follow(log, app.state.view))
                yield
                follower.cancel()
        await log.close()

    routes = [
        Route("/orders", post_order, methods=["POST"]),
        Route("/sales/{customer}", get_sales),
        Route("/health", get_health),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run(create_app(), host="127.0.0.1", port=8000)
