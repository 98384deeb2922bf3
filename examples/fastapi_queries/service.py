"""A FastAPI service that takes payments, and returns the total of each customer.

Shows: an app that lives as long as its service, sends what requests bring, and answers from
its own store; typed queries; and the answer when a key is unknown, not restored yet, or on
another instance.

Run: python service.py
Then: curl -X POST 127.0.0.1:8000/payments --json '{"customer": "ann", "cents": 450}'
      curl 127.0.0.1:8000/totals/ann
On Kafka: KS_ACTORS_BOOTSTRAP_SERVERS=localhost:9092 python service.py
"""

import os
from tempfile import TemporaryDirectory

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from ks_actors import App, Materialized, NotRunning, QueryFailed, StreamsBuilder, StreamsConfig, Topic
from ks_actors.query import FailureReason


class Payment(BaseModel, frozen=True):
    """A payment. The model checks requests, and records of the topic as well."""

    customer: str = Field(min_length=1)
    cents: int = Field(gt=0)


class Total(BaseModel, frozen=True):
    """All payments of a customer."""

    payments: int = 0
    cents: int = 0


def add(_customer: str, payment: Payment, total: Total) -> Total:
    return Total(payments=total.payments + 1, cents=total.cents + payment.cents)


PAYMENTS = Topic("payments", str, Payment)
TOPICS = {PAYMENTS: 4}

builder = StreamsBuilder()
totals = builder.stream(PAYMENTS).group_by_key().aggregate(Total, add, Materialized("totals"))


def service(streams: App) -> FastAPI:
    """Return the service, which starts and closes the app."""
    # No request comes before the app runs: its start waits until all stores are restored.
    api = FastAPI(title="payments", lifespan=streams.lifespan)

    @api.post("/payments", status_code=202)
    async def pay(payment: Payment) -> dict[str, int]:
        """Accept a payment, when all replicas have it. Its total follows within moments."""
        sent = await streams.send(PAYMENTS, payment.customer, payment)
        return {"partition": sent.partition, "offset": sent.offset}

    @api.get("/totals/{customer}")
    async def total_of(customer: str) -> Total:
        """Return a customer's total, which type checkers know to be a Total or None."""
        total = await streams.store(totals.queryable()).get(customer)
        if total is None:
            raise HTTPException(404, f"{customer} has paid nothing")
        return total

    @api.get("/totals")
    async def totals_between(first: str, last: str) -> dict[str, Total]:
        """Return the totals of customers from `first` to `last`, of this instance's partitions."""
        return dict(await streams.store(totals.queryable()).range(first, last))

    @api.get("/ready")
    async def ready() -> JSONResponse:
        """Tell whether to send requests here: not while tasks are restored, or records wait."""
        health = streams.health()
        reasons = [problem.text for problem in health.problems]
        return JSONResponse({"reasons": reasons}, 200 if health.ready else 503)

    @api.exception_handler(QueryFailed)
    async def no_answer(_request: Request, error: QueryFailed) -> JSONResponse:
        """Tell a client whether to ask another instance (421), or this one again (503)."""
        elsewhere = error.reason is FailureReason.NOT_PRESENT
        detail = {"detail": str(error), "reason": error.reason.name}
        return JSONResponse(detail, 421 if elsewhere else 503, headers={"Retry-After": "1"})

    @api.exception_handler(NotRunning)
    async def not_running(_request: Request, error: NotRunning) -> JSONResponse:
        return JSONResponse({"detail": str(error), "reason": "NOT_RUNNING"}, 503)

    return api


def main() -> None:
    with TemporaryDirectory() as directory:
        if "KS_ACTORS_BOOTSTRAP_SERVERS" not in os.environ:
            os.environ |= {"KS_ACTORS_LOG": "memory://", "KS_ACTORS_STATE_DIR": directory}
        config = StreamsConfig.load(application_id="payments", processing_guarantee="exactly_once_v2")
        # Other machines come through a proxy with a login: anybody may pay here.
        port = int(os.environ.get("PORT", "8000"))
        uvicorn.run(service(App(builder, config, topics=TOPICS)), host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
