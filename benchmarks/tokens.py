"""Measure an app whose tokens end every few seconds, at a real Kafka with logins by OAUTHBEARER.

An OpenID provider of this machine issues the tokens; the broker ends each session with its token
(KIP-368). A counting app runs under an even load; each count is read by a client without a login,
and its latency is the time since the record was sent. Exits with 1 if a record is lost, or late by
more than `--late-ms`. The last line of stdout is one JSON object. Needs Java 17 and Maven.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A script's directory comes first on the path, and has an `actors` of its own.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from ks_actors import App, Batch, StreamsConfig
from ks_actors.log import IsolationLevel, NewTopic, Outgoing, TopicPartition
from ks_actors.log.kafka import KafkaLog
from tests.chaos.app import count_topology
from tests.chaos.checks import count_of
from tests.kafka.broker import Broker
from tests.kafka.issuer import CLIENT, SECRET, Issuer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SOURCE, SINK, PARTITIONS, KEYS = "in", "out", 4, 100
TICK_S = 0.02
# The first records wait for the app's first assignment.
WARM_UP_S = 5.0
PATIENCE_S = 30.0


class Logins(logging.Handler):
    """Count logins, and keep warnings."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if message.startswith("logged in as"):
            self.count += 1
        elif record.levelno >= logging.WARNING:
            self.warnings.append(message)


def main() -> None:
    """Measure with the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="of load (default 120)")
    parser.add_argument("--rate", type=int, default=500, help="records per second (default 500)")
    parser.add_argument("--life-s", type=float, default=20.0, help="of a token (default 20)")
    parser.add_argument("--late-ms", type=int, default=1_000, help="the most that a record may take (default 1,000)")
    parser.add_argument("--guarantee", choices=("at_least_once", "exactly_once_v2"), default="exactly_once_v2")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokens-") as directory, Issuer(options.life_s) as issuer:
        settings = issuer.broker_settings() | {"connections.max.reauth.ms": str(int(options.life_s * 1000))}
        broker = Broker(Path(directory) / "broker", secure=True, settings=settings, quick=False)
        os.environ["JAVA_TOOL_OPTIONS"] = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/keys"
        broker.start()
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                figures = runner.run(_measure(broker, issuer, Path(directory), options))
        finally:
            broker.kill()
    print(json.dumps(figures), flush=True)
    if figures["lost"] or figures["max_ms"] > options.late_ms:
        sys.exit(1)


async def _measure(broker: Broker, issuer: Issuer, directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    logins = Logins()
    logger = logging.getLogger("ks_actors")
    logger.addHandler(logins)
    logging.getLogger("ks_actors.log.kafka.client").setLevel(logging.DEBUG)
    config = StreamsConfig(
        application_id="tokens",
        state_dir=directory / "state",
        bootstrap_servers=broker.address("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=f"{issuer.url}/token",
        sasl_oauthbearer_client_credentials_client_id=CLIENT,
        sasl_oauthbearer_client_credentials_client_secret=SECRET,
        processing_guarantee=options.guarantee,
        commit_interval_ms=100,
        statestore_cache_max_bytes=0,
    )
    async with KafkaLog(broker.bootstrap) as log:
        await log.create_topics([NewTopic(topic, PARTITIONS) for topic in (SOURCE, SINK)])
        sinks = [TopicPartition(SINK, number) for number in range(PARTITIONS)]
        latencies: list[float] = []
        finals: Counter[bytes] = Counter()
        fed: Counter[bytes] = Counter()
        started = time.time()
        async with App(count_topology(SOURCE, SINK), config):
            feeding = asyncio.create_task(_feed(log, options.rate, options.seconds + WARM_UP_S, fed))
            since_ms = (started + WARM_UP_S) * 1000
            # A record that is lost leaves the watch waiting: then the figures tell.
            with suppress(TimeoutError):
                async with asyncio.timeout(options.seconds + WARM_UP_S + PATIENCE_S):
                    await _watch(log, sinks, latencies, finals, since_ms, lambda: feeding.done() and finals == fed)
            await feeding
        renewed = logins.count
    latencies.sort()
    return {
        "guarantee": options.guarantee,
        "seconds": options.seconds,
        "records": sum(fed.values()),
        "lost": sum((fed - finals).values()),
        "measured": len(latencies),
        "p50_ms": latencies[len(latencies) // 2],
        "p99_ms": latencies[int(len(latencies) * 0.99)],
        "max_ms": latencies[-1],
        "tokens": len(issuer.forms),
        "logins": renewed,
        "warnings": logins.warnings,
    }


async def _feed(log: KafkaLog, rate: int, seconds: float, fed: Counter[bytes]) -> None:
    """Send records of all keys in turn, at an even rate, with the time of sending."""
    producer = await log.producer(client_id="feeder")
    begun, sent = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        keys: dict[int, list[bytes]] = {}
        while sent < passed * rate:
            number = sent % KEYS
            keys.setdefault(number % PARTITIONS, []).append(b"k%d" % number)
            sent += 1
        now_ms = int(time.time() * 1000)
        for each in keys.values():
            fed.update(each)
        await producer.send(
            [Outgoing(TopicPartition(SOURCE, number), Batch(list(each), [b"v"] * len(each), [now_ms] * len(each))) for number, each in keys.items()]
        )
        await asyncio.sleep(TICK_S)
    await producer.close()


async def _watch(
    log: KafkaLog, sinks: Sequence[TopicPartition], latencies: list[float], finals: Counter[bytes], since_ms: float, enough: Callable[[], bool]
) -> None:
    """Read committed counts as they come, until there are enough."""
    fetcher = log.fetcher(isolation=IsolationLevel.READ_COMMITTED, client_id="watch")
    fetcher.assign(dict.fromkeys(sinks, 0))
    while not enough():
        for fetched in await fetcher.fetch(max_wait_ms=1_000, max_records=10_000):
            now_ms = time.time() * 1000
            for key, value, stamp in zip(fetched.batch.keys, fetched.batch.values, fetched.batch.timestamps, strict=True):
                finals[key] = max(finals[key], count_of(value) or 0)
                if stamp >= since_ms:
                    latencies.append(round(now_ms - stamp, 1))


if __name__ == "__main__":
    main()
