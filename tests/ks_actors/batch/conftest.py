"""One Spark session for the whole run, and logs to read."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors.batch import SparkSettings
from ks_actors.batch.spark._session import SparkSession
from ks_actors.log import NewTopic, Outgoing, TopicPartition
from ks_actors.log.embedded import EmbeddedLog
from tests.ks_actors.batch.processes import below, ended

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from ks_actors import Batch

SETTINGS = SparkSettings(
    master="local[2,2]",
    driver_memory="1g",
    conf={
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
)


def is_sparks(command: str) -> bool:
    return "spark" in command


# In CI what needs Java fails where there is none.
needs_java = pytest.mark.skipif(shutil.which("java") is None and not os.environ.get("CI"), reason="no java on this machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that need Spark where there is no Java, and say so; give Spark the time to start.

    They are `heavy`, and `extended` but for those that are marked `everyday`.
    """
    for item in items:
        if {"spark", "session"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.spark)
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.timeout(400))
            item.add_marker(needs_java)
            item.add_marker(pytest.mark.heavy("processes of Spark"))
            if item.get_closest_marker("everyday") is None:
                item.add_marker(pytest.mark.extended)


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    made = SparkSession(SETTINGS)
    try:
        assert made.spark is not None
        yield made
    finally:
        started = [pid for pid, command in below(os.getpid()).items() if is_sparks(command)]
        made.close()
        asyncio.run(ended(started))  # also those whose parent has ended before them


@pytest.fixture(scope="session", autouse=True)
def nothing_of_spark_is_left() -> Iterator[None]:
    """At the end of the run there is no process of Spark's: none of a session, none of a cluster."""
    yield
    left = {pid: command for pid, command in below(os.getpid()).items() if is_sparks(command)}
    assert left == {}, "processes of Spark are left at the end of the run"


@pytest.fixture
def spark(session: SparkSession) -> Any:
    return session.spark


@pytest.fixture
def filled(tmp_path: Path) -> Callable[[Mapping[str, int], Mapping[tuple[str, int], Batch]], str]:
    """Return a function that fills a new log in a directory, with topics and their records by partition, and returns its URL."""

    def fill(topics: Mapping[str, int], records: Mapping[tuple[str, int], Batch]) -> str:
        async def main() -> None:
            async with EmbeddedLog(tmp_path / "log") as log:
                await log.create_topics([NewTopic(name, count) for name, count in topics.items()])
                producer = await log.producer(client_id="test")
                await producer.send([Outgoing(TopicPartition(*where), batch) for where, batch in records.items()])
                await producer.close()

        asyncio.run(main())
        return f"embedded://{tmp_path / 'log'}"

    return fill
