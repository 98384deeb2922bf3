"""Whatever happens to the scorer and to the app, each suspicious payment has one alert.

Run: python -m pytest test_fraud.py
"""

import asyncio
import json
from collections import Counter
from typing import Any

import httpx
import pytest
from fraud import ALERTS, AT_ONCE, DEAD_LETTERS, PAYMENTS, TOPICS, Alert, Payment, config, topology

from ks_actors import ProcessingFailed
from ks_actors.testing import AppHarness, run_app

CARDS = [f"card-{number}" for number in range(60)]


class Scorer:
    """A scorer that finds payments of more than 500 euros suspicious, and takes notes."""

    def __init__(self, *, busy_each: int = 0, down: bool = False) -> None:
        self.calls: Counter[tuple[str, int]] = Counter()
        self.most_at_once = 0
        self._busy_each, self._down, self._at_once = busy_each, down, 0

    async def answer(self, request: httpx.Request) -> httpx.Response:
        payment = json.loads(request.content)
        self.calls[payment["card"], payment["cents"]] += 1
        number = self.calls.total()
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            await asyncio.sleep(0.01 * (number % 3))  # takes no time: the clock jumps
        finally:
            self._at_once -= 1
        if self._down or (self._busy_each and number % self._busy_each == 0):
            return httpx.Response(503)
        if payment["shop"] == "closed":
            return httpx.Response(422)
        return httpx.Response(200, json={"score": 0.95 if payment["cents"] > 50_000 else 0.1})

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.MockTransport(self.answer), base_url="http://scorer")


async def pay_suspiciously(harness: AppHarness) -> None:
    """Pay twice by each card, with a payment that is not suspicious between them."""
    for cents in (60_000, 100, 70_000):
        for card in CARDS:
            await harness.produce(PAYMENTS, card, Payment("shop", cents))


async def alerts_of(harness: AppHarness) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for record in await harness.read(ALERTS):
        found.setdefault(record.key, []).append(record.value)
    return found


TWO_EACH = {card: [Alert(Payment("shop", cents), 0.95) for cents in (60_000, 70_000)] for card in CARDS}


def test_calls_run_side_by_side_within_the_limit_and_in_the_order_of_each_card() -> None:
    """There is one partition, so one task, and it has as many calls in flight as it may."""
    scorer = Scorer()

    async def test(harness: AppHarness) -> None:
        await pay_suspiciously(harness)
        await harness.caught_up()
        assert await alerts_of(harness) == TWO_EACH

    run_app(test, topology(scorer.client()), config=config(), topics=dict.fromkeys(TOPICS, 1))
    assert scorer.most_at_once == AT_ONCE
    assert set(scorer.calls.values()) == {1}


def test_a_busy_scorer_is_asked_again() -> None:
    """Each seventh call fails, and no payment is lost."""
    scorer = Scorer(busy_each=7)

    async def test(harness: AppHarness) -> None:
        await pay_suspiciously(harness)
        await harness.caught_up()
        assert await alerts_of(harness) == TWO_EACH
        assert await harness.read(DEAD_LETTERS) == []

    run_app(test, topology(scorer.client()), config=config(), topics=TOPICS)
    assert max(scorer.calls.values()) > 1


@pytest.mark.parametrize("seed", range(2))
def test_an_alert_comes_once_although_the_app_crashes(seed: int) -> None:
    """Calls may be made again after a crash, alerts are not. A seed is a schedule."""
    scorer = Scorer()

    async def test(harness: AppHarness) -> None:
        await pay_suspiciously(harness)
        for turns in (50, 100):  # in the middle of the work
            await harness.turns(turns)
            await harness.crash()
            await harness.restart()
        await harness.caught_up()
        assert await alerts_of(harness) == TWO_EACH

    # Alerts are written at once, so that a crash can double them.
    run_app(test, topology(scorer.client()), config=config().replace(linger_ms=0), seed=seed, topics=TOPICS)
    assert scorer.calls.total() > 3 * len(CARDS), "no call was under way at a crash"


def test_a_payment_that_is_refused_or_no_payment_is_a_dead_letter() -> None:
    """It holds up no other payment, and tells the reason in its headers."""

    async def test(harness: AppHarness) -> list[Any]:
        await harness.produce(PAYMENTS, "card-1", Payment("closed", 60_000))
        await harness.produce(PAYMENTS, b"card-1", b"no payment")
        await harness.produce(PAYMENTS, "card-1", Payment("shop", 60_000))
        await harness.caught_up()
        assert await alerts_of(harness) == {"card-1": [Alert(Payment("shop", 60_000), 0.95)]}
        letters = await harness.read(DEAD_LETTERS)
        return [(each.value, dict(each.headers)["__streams.errors.exception"]) for each in letters]

    assert run_app(test, topology(Scorer().client()), config=config(), topics=TOPICS) == [
        (b"no payment", b"msgspec.DecodeError"),
        (b'{"shop":"closed","cents":60000}', b"httpx.HTTPStatusError"),
    ]


def test_a_scorer_that_is_down_ends_the_app() -> None:
    """So the payments wait in their topic, and no more than ten become dead letters."""

    async def test(harness: AppHarness) -> None:
        await pay_suspiciously(harness)
        assert isinstance(await harness.ended(), ProcessingFailed)
        assert len(await harness.read(DEAD_LETTERS)) <= 10

    run_app(test, topology(Scorer(down=True).client()), config=config(), topics=TOPICS)
