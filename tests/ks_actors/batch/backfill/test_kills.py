"""kill -9 in the middle of a backfill: of its driver, and of its workers."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ks_actors import App, SnapshotRefused
from ks_actors.batch.spark._session import SparkSession
from ks_actors.log import IsolationLevel, TopicPartition
from ks_actors.snapshots import SnapshotReader, find_snapshots
from tests.ks_actors.batch.backfill.killed_history import UNTIL, begin, opened
from tests.ks_actors.batch.conftest import SETTINGS as SPARK
from tests.ks_actors.batch.driver import Done, Order, Place, config_of, filled_back, job
from tests.ks_actors.batch.histories import Rows, stores_in
from tests.ks_actors.batch.processes import Meeting, driver, ended, of_session

ON_SPARK = msgspec.to_builtins(SPARK)


def order_of(directory: Path, **options: Any) -> Order:
    return Order(what="backfill", log=f"embedded://{directory / 'log'}", directory=str(directory), until=UNTIL, **options)


def made(done: Done, directory: Path) -> tuple[dict[str, Rows], Any, Any]:
    """Return the output, and the stores and positions of the snapshot."""
    place = f"{directory}/snapshots"
    manifest = SnapshotReader.open(f"{place}/app/{done.snapshot}").manifest
    return done.rows, stores_in(job(), manifest, Path(place)), {task: content.positions for task, content in manifest.tasks.items()}


async def undisturbed(directory: Path) -> tuple[dict[str, Rows], Any, Any]:
    """Return the results of a process without faults."""
    order = order_of(directory)
    await begin(order)
    return made(await filled_back(order), directory)


async def everything_in(order: Order) -> dict[TopicPartition, int]:
    async with opened(order) as log:
        partitions = [TopicPartition(name, number) for name, topic in (await log.describe_topics()).items() for number in range(topic.partitions)]
        return dict(await log.end_offsets(partitions, IsolationLevel.READ_UNCOMMITTED))


async def killed_while(order: Order, directory: Path) -> None:
    """Run a backfill, and kill its driver when it stands still; return when all its processes are gone."""
    meeting = Meeting(Path(order.meet))
    async with driver(order, directory / "said") as process:
        await meeting.come(process)
        others = [pid for pid in of_session(process.pid) if pid != process.pid]
        assert len(others) > 2 or order.engine == "local"
        process.kill()
        assert await process.wait() == -signal.SIGKILL
        while others:
            await ended(others)
            others = of_session(process.pid)
    meeting.over()


async def nothing_has_happened(order: Order, before: dict[TopicPartition, int], directory: Path) -> None:
    """There is no snapshot, a partial one is refused, and the log is unchanged."""
    begun = [path for path in (directory / "snapshots").rglob("*") if path.is_file()]
    assert find_snapshots(f"{directory}/snapshots", order.application_id) == ([], [])
    with pytest.raises(SnapshotRefused, match="has no complete snapshot of application app"):
        await App(job(), config_of(order)).seed(f"{directory}/snapshots")
    for half in {path.relative_to(directory / "snapshots" / "app").parts[0] for path in begun}:
        with pytest.raises(SnapshotRefused, match="has no complete snapshot of application app"):
            await App(job(), config_of(order)).seed(f"{directory}/snapshots/app/{half}")
    assert await everything_in(order) == before


@pytest.mark.timeout(240)
@pytest.mark.parametrize("stop", ["first task", "behind the exchange", "state written"])
async def test_a_process_that_is_killed_leaves_no_snapshot_and_the_next_one_gives_the_same(stop: Place, tmp_path: Path) -> None:
    """At any point of its backfill: nothing has happened, and a second one gives the same results as one without a kill."""
    order = order_of(tmp_path, stop=stop, meet=str(tmp_path / "meet"))
    await begin(order)
    before = await everything_in(order)
    await killed_while(order, tmp_path)
    await nothing_has_happened(order, before, tmp_path)
    assert made(await filled_back(order_of(tmp_path)), tmp_path) == await undisturbed(tmp_path / "undisturbed")


async def test_a_driver_of_spark_that_is_killed_takes_spark_with_it(session: SparkSession, tmp_path: Path) -> None:
    """No process of Spark's is left, no snapshot, and nothing in the log; a second backfill gives the same."""
    assert session.is_open
    order = order_of(tmp_path, stop="first task", meet=str(tmp_path / "meet"), engine="spark", spark=ON_SPARK)
    await begin(order)
    before = await everything_in(order)
    await killed_while(order, tmp_path)
    await nothing_has_happened(order, before, tmp_path)
    again = await filled_back(order_of(tmp_path, engine="spark", spark=ON_SPARK))
    assert made(again, tmp_path) == await undisturbed(tmp_path / "undisturbed")


@pytest.mark.parametrize("stop", ["behind the exchange", "state written"])
async def test_a_worker_of_spark_that_is_killed_doubles_nothing(stop: Place, session: SparkSession, tmp_path: Path) -> None:
    """Behind the exchange, and when its state is in the snapshot already: the task is done again, and all of it is there once."""
    assert session.is_open
    died = tmp_path / "died"
    order = order_of(tmp_path, stop=stop, meet=str(died), engine="spark", spark=ON_SPARK)
    await begin(order)
    done = await filled_back(order)
    assert made(done, tmp_path) == await undisturbed(tmp_path / "undisturbed")
    assert died.exists()
    place = tmp_path / "snapshots" / "app" / done.snapshot
    manifest = SnapshotReader.open(str(place)).manifest
    files = {file.path for task in manifest.tasks.values() for store in task.stores.values() for file in store.files}
    # What the killed one had written is beside it: none writes into another one's file, even if it is believed to be dead and is not.
    assert len({path.relative_to(place).as_posix() for path in place.rglob("*.rows")} - files) == (stop == "state written")
