"""Call a slow service for each record, many at a time, without losing the order or a record.

Shows: an `async def` in the middle of a stream, with a limit of concurrent calls, a timeout,
retries, and the order kept per key. An offset is committed only when its record and all before it
are done. So a crash loses nothing, though it may repeat calls.

Run: python examples/enrich_async.py
"""

from __future__ import annotations

import asyncio
import tempfile
import time

import msgspec

from ks_actors import App, Consumed, Produced, Retry, StreamsBuilder, StreamsConfig, Topology
from ks_actors.serdes import STRING, json

CLICKS, VISITS = "clicks", "visits"
LATENCY = 0.02
AT_ONCE = 40
CLICKS_IN_ALL = 400


class Visit(msgspec.Struct, frozen=True):
    page: str
    country: str


class Service:
    """A fake geolocation service: slow, and sometimes failing."""

    def __init__(self, *, fails_each: int = 50) -> None:
        self.calls = 0
        self.failures = 0
        self.at_once = 0
        self.most_at_once = 0
        self._fails_each = fails_each

    async def country_of(self, visitor: str) -> str:
        self.calls += 1
        call = self.calls
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await asyncio.sleep(LATENCY * (1 + call % 3) / 2)
        finally:
            self.at_once -= 1
        if call % self._fails_each == 0:
            self.failures += 1
            raise ConnectionError("the service is out of order")
        return "NO" if int(visitor.removeprefix("visitor-")) % 2 else "IT"


def topology(service: Service) -> Topology:
    async def enrich(visitor: str, page: str) -> Visit:
        return Visit(page, await service.country_of(visitor))

    builder = StreamsBuilder()
    (
        builder.stream(CLICKS, Consumed(STRING, STRING))
        .map_values(
            enrich,
            max_in_flight=AT_ONCE,
            order="key",  # the visits of one visitor keep their order, those of others overtake each other
            timeout_ms=5_000,
            retry=Retry(attempts=5, backoff_ms=10, on=(ConnectionError, TimeoutError)),
        )
        .to(VISITS, Produced(STRING, json(Visit)))
    )
    return builder.build()


async def run(service: Service) -> int:
    """Enrich all clicks; return the number of visits."""
    with tempfile.TemporaryDirectory() as directory:
        config = StreamsConfig(application_id="enrich", log="memory://", state_dir=directory, commit_interval_ms=1_000)
        async with App(topology(service), config, topics={CLICKS: 2, VISITS: 1}) as app:
            await app.send_many(CLICKS, ((f"visitor-{number % 100}", f"page-{number // 100}") for number in range(CLICKS_IN_ALL)))
            await app.wait_until_caught_up()
            return len([record async for record in app.records(VISITS, until="end")])


def main() -> None:
    service = Service()
    began = time.perf_counter()
    visits = asyncio.run(run(service))
    seconds = time.perf_counter() - began
    print(f"{visits} visits from {service.calls} calls, {service.failures} of them failed, at most {service.most_at_once} at once")
    print(f"{seconds:.1f} s; one after the other they would have taken {service.calls * LATENCY:.1f} s")


if __name__ == "__main__":
    main()
