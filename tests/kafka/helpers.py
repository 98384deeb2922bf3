"""Helpers of tests on a real Kafka."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ks_actors.log.kafka import KafkaLog, KafkaOptions
from tests.kafka.broker import Broker
from tests.waiting import until


async def until_configured(log: KafkaLog, topic: str, name: str, value: str) -> None:
    """Wait until the broker has heard of a config from the controller."""

    async def heard() -> bool:
        return (await log.describe_topics([topic]))[topic].configs[name] == value

    await until(heard)


async def connect(broker: Broker, options: KafkaOptions | None = None) -> KafkaLog:
    log = KafkaLog(broker.bootstrap, options=options)
    await log.start()
    return log


@asynccontextmanager
async def module_process(module: str, *words: str, log: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a module in a process of its own, which writes to `log`; at the end there is none."""
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, *words, stdout=said, stderr=said)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
