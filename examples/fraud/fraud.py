"""Payments in, a score for each from a service over HTTP, alerts out.

Shows: an `async def` in a stream, with a limit of calls in flight, a time limit and
retries; the order of each card; dead letters; each alert exactly once, also after a crash.

Run: python fraud.py
On Kafka: KS_ACTORS_BOOTSTRAP_SERVERS=localhost:9092 python fraud.py
With a scorer: SCORER_URL=http://scorer KS_ACTORS_BOOTSTRAP_SERVERS=… ks-actors run fraud:app
"""

import asyncio
import os
from dataclasses import dataclass
from itertools import count

import httpx

from ks_actors import App, Retry, StreamsBuilder, StreamsConfig, Topic, Topology


@dataclass(frozen=True)
class Payment:
    """A payment, whose key is the card."""

    shop: str
    cents: int


@dataclass(frozen=True)
class Alert:
    payment: Payment
    score: float


PAYMENTS = Topic("payments", str, Payment)
ALERTS = Topic("alerts", str, Alert)
DEAD_LETTERS = Topic("payments-dead-letters", bytes, bytes)
TOPICS = {PAYMENTS: 4, ALERTS: 4, DEAD_LETTERS: 1}

AT_ONCE = 50  # calls in flight in each task, that is for each partition of payments
HIGH = 0.9
RETRY = Retry(
    attempts=4,
    backoff_ms=100,
    # Only errors that may go away. A refused payment is refused again.
    on=(httpx.TransportError, ConnectionError, TimeoutError),
)


def topology(scorer: httpx.AsyncClient) -> Topology:
    """Return the topology; the client has the address of the service."""

    async def score(card: str, payment: Payment) -> Alert:
        asked = {"card": card, "shop": payment.shop, "cents": payment.cents}
        answer = await scorer.post("/score", json=asked)
        if answer.is_server_error:
            raise ConnectionError(f"the scorer answers {answer.status_code}")
        answer.raise_for_status()
        return Alert(payment, answer.json()["score"])

    builder = StreamsBuilder()
    scored = builder.stream(PAYMENTS).map_values(
        score,
        max_in_flight=AT_ONCE,
        order="key",  # payments of one card one after the other, of all cards side by side
        timeout_ms=2_000,
        retry=RETRY,
    )
    scored.filter(lambda _, alert: alert.score >= HIGH).to(ALERTS)
    return builder.build()


def config() -> StreamsConfig:
    """Return the settings; the environment has those of the place, such as the servers."""
    return StreamsConfig.load(
        application_id="fraud",
        processing_guarantee="exactly_once_v2",
        # A payment that cannot be read or scored goes to the dead letters. After ten of them
        # in a minute the scorer is at fault: the app ends, and goes on there when restarted.
        deserialization_exception_handler="continue",
        processing_exception_handler="stop_after(10, per_seconds=60)",
        errors_dead_letter_queue_topic_name=DEAD_LETTERS.name,
    )


def app(scorer: httpx.AsyncClient | None = None) -> App:
    """Return the app. It opens the client at its start, and closes it at its end."""
    scorer = scorer or httpx.AsyncClient(base_url=os.environ["SCORER_URL"])
    return App(topology(scorer), config(), topics=TOPICS, services=[scorer])


async def demo() -> None:
    """Send payments to a scorer within this process, and print what comes out."""
    numbers = count(1)

    async def answer(request: httpx.Request) -> httpx.Response:
        number = next(numbers)
        await asyncio.sleep(0.01)
        if number % 20 == 0:
            return httpx.Response(503)  # busy: the call is repeated
        if b"closed" in request.content:
            return httpx.Response(422)  # refused: the payment becomes a dead letter
        return httpx.Response(200, json={"score": 0.95 if b"99999" in request.content else 0.1})

    scorer = httpx.AsyncClient(transport=httpx.MockTransport(answer), base_url="http://scorer")
    async with app(scorer) as running:
        payments = [(f"card-{n % 40}", Payment("shop", 1_000 + n)) for n in range(200)]
        payments += [("card-7", Payment("jeweller", 99_999)), ("card-8", Payment("closed", 5))]
        await running.send_many(PAYMENTS, payments)
        await running.wait_until_caught_up()
        async for alert in running.records(ALERTS, until="end"):
            print(f"alert: {alert.key} {alert.value}")
        async for letter in running.records(DEAD_LETTERS, until="end"):
            print(f"dead letter: {letter.key!r} {letter.value!r}")


if __name__ == "__main__":
    if "KS_ACTORS_BOOTSTRAP_SERVERS" not in os.environ:
        os.environ["KS_ACTORS_LOG"] = "memory://"
    asyncio.run(demo())
