"""The service counts what it accepts, and says why it has no answer.

Run: python -m pytest test_service.py
"""

import asyncio
from pathlib import Path

import httpx
from service import PAYMENTS, TOPICS, Payment, builder, service

from ks_actors import App
from ks_actors.testing import AppHarness, run_app

CUSTOMERS = [f"customer-{number}" for number in range(8)]


def client_of(streams: App) -> httpx.AsyncClient:
    """Return a client that calls the service without a server between them."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(service(streams)), base_url="http://test")


def test_payments_that_were_accepted_are_in_the_totals(tmp_path: Path) -> None:
    """The whole service on a log in memory, as long as its lifespan lasts."""

    async def main() -> None:
        streams = App(builder, "payments", log="memory://", topics=TOPICS, state_dir=tmp_path)
        client = client_of(streams)
        async with streams.lifespan():
            for customer, cents in (("ann", 450), ("bob", 1200), ("ann", 3900)):
                answer = await client.post("/payments", json={"customer": customer, "cents": cents})
                assert answer.status_code == 202
            await streams.wait_until_caught_up()
            ann, bob = {"payments": 2, "cents": 4350}, {"payments": 1, "cents": 1200}
            assert (await client.get("/totals/ann")).json() == ann
            assert (await client.get("/totals?first=a&last=c")).json() == {"ann": ann, "bob": bob}
            assert (await client.get("/totals/eve")).status_code == 404
            assert (await client.get("/ready")).status_code == 200
            for wrong in ({"customer": "ann", "cents": -1}, {"customer": "", "cents": 1}):
                assert (await client.post("/payments", json=wrong)).status_code == 422
        answer = await client.get("/totals/ann")
        assert (answer.status_code, answer.json()["reason"]) == (503, "NOT_RUNNING")

    asyncio.run(main())


def test_a_total_is_at_one_instance_and_moves_when_that_ends() -> None:
    """The others answer 421, then 503 while they restore it, then 200."""

    async def test(harness: AppHarness) -> None:
        for customer in CUSTOMERS:
            await harness.produce(PAYMENTS, customer, Payment(customer=customer, cents=100))
        await harness.caught_up()
        client = client_of(harness.app)

        async def codes() -> dict[str, int]:
            return {each: (await client.get(f"/totals/{each}")).status_code for each in CUSTOMERS}

        async with harness.another() as other:
            await harness.caught_up()
            here = await codes()
            there = client_of(other.app)
            for customer, code in here.items():
                answer = await there.get(f"/totals/{customer}")
                assert sorted((code, answer.status_code)) == [200, 421]
            away = next(customer for customer, code in here.items() if code == 421)
        seen = []
        while (code := (await codes())[away]) != 200:
            if code not in seen:
                seen.append(code)
            await harness.turns(1)
        assert seen == [421, 503]
        await harness.caught_up()
        assert set((await codes()).values()) == {200}
        assert (await client.get("/ready")).status_code == 200

    run_app(test, builder, topics=TOPICS)
