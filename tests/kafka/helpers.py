"""Helpers of tests on a real Kafka."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ks_actors._errors import LogTimeout
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._client import KafkaClient
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


def started_with(servers: str, options: KafkaOptions, api_timeout_ms: int) -> KafkaLog:
    return KafkaLog(servers, options=replace(options, api_timeout_ms=api_timeout_ms))


async def start_in_vain(make: Callable[[int], KafkaLog | KafkaClient], said: str, deadlines_ms: tuple[int, ...] = (500, 4_000, 30_000)) -> None:
    """Start clients with a deadline (ms) until one has this error: on a slow machine no attempt may end before a short one."""
    for api_timeout_ms in deadlines_ms:
        client = make(api_timeout_ms)
        with pytest.raises(LogTimeout) as caught:
            await client.start()
        await client.close()
        if re.search(said, str(caught.value)):
            return
    pytest.fail(str(caught.value))


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
