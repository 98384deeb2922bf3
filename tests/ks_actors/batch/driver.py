"""A process that runs a backfill, or hands a snapshot over, and is killed meanwhile.

`python -m tests.ks_actors.batch.driver <order as JSON>`. The topology stands still at a point of
its way, in whichever process that is, when it is told where to meet; a hand-over kills itself at a
point of its way.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, Literal

import msgspec

from ks_actors import App, Batch, Consumed, Grouped, JoinWindows, Materialized, Produced, StreamsBuilder, StreamsConfig, TimeWindows, Topology, serdes
from ks_actors.batch import SparkSettings
from ks_actors.batch.backfill import _task_run
from ks_actors.log.embedded._producer import EmbeddedTransactionalProducer
from ks_actors.log.kafka.transactions._transactional_producer import KafkaTransactionalProducer
from ks_actors.runtime.snapshots import _bootstrap
from ks_actors.state import Ingest

APPLICATION = "app"
TEXT = Consumed(serdes.STRING, serdes.STRING)
TOPICS = {"lines": 3, "loud": 3, "by-key": 3, "by-word": 2, "pairs": 3}
MEET = "stand still here"
Rows = list[tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]]
Place = Literal["", "first task", "behind the exchange", "state written"]
Point = Literal["", "begun", "handing over", "handed over", "committed", "placing", "placed"]
HAND_OVER_POINTS: tuple[Point, ...] = ("begun", "handing over", "handed over", "committed", "placing", "placed")


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the process."""

    what: Literal["backfill", "seed"]
    log: str
    directory: str
    application_id: str = APPLICATION
    prefix: str = ""
    until: int | None = None
    engine: Literal["local", "spark"] = "local"
    spark: dict[str, Any] = {}
    stop: Place = ""
    meet: str = ""
    point: Point = ""


class Done(msgspec.Struct, frozen=True):
    """The result of a backfill."""

    rows: dict[str, Rows]
    snapshot: str


def stand_still(meet: str) -> None:
    """Tell the waiting reader, and never go on; without a reader, die as a killed process does."""
    if Path(meet).is_fifo():
        Path(meet).write_text("here")
        threading.Event().wait()
    try:
        Path(meet).touch(exist_ok=False)
    except FileExistsError:
        return  # a process has died of it before
    os.kill(os.getpid(), signal.SIGKILL)


def still_when(stop: Place, meet: str, place: Place, value: Any) -> Any:
    """Let a value through, unless this is where to stop."""
    if stop == place:
        stand_still(meet)
    elif stop == "state written" and place == "behind the exchange":
        _stand_still_when_written(meet)
    return value


def _stand_still_when_written(meet: str) -> None:
    module: Any = _task_run
    original = module.write_disk

    def written(*args: Any) -> Any:
        module.write_disk = original  # processes of Spark's do other work after this
        found = original(*args)
        stand_still(meet)
        return found

    module.write_disk = written


def job(prefix: str = "", stop: Place = "", meet: str = "") -> Topology:
    """Return a topology with stores of all kinds, with results that do not depend on the order of records in its repartition topic."""

    def named(topic: str) -> str:
        return prefix + topic

    first, later = partial(still_when, stop, meet, "first task"), partial(still_when, stop, meet, "behind the exchange")
    builder = StreamsBuilder()
    lines = builder.stream(named("lines"), TEXT).map_values(lambda value: first(value) if value.startswith(MEET) else value)
    lines.map_values(str.upper).to(named("loud"), Produced(serdes.STRING, serdes.STRING))
    lines.join(lines, lambda one, two: f"{one}/{two}", JoinWindows.of_time_difference_with_no_grace(20)).to(
        named("pairs"), Produced(serdes.STRING, serdes.STRING)
    )
    by_key = (
        lines.group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(50))
        .count(Materialized("by-key", value=serdes.LONG, store_type="in_memory"))
    )
    by_key.to_stream().map(lambda key, value: (key.key, f"{key.window.start}: {value}")).to(named("by-key"), Produced(serdes.STRING, serdes.STRING))
    words = lines.flat_map_values(str.split).group_by(lambda _, word: word, Grouped(serdes.STRING, serdes.STRING, "word"))
    counts = words.count(Materialized("by-word", serdes.STRING, serdes.LONG)).to_stream()
    counts.map(lambda word, number: (word, later(number) if word == "here" else number)).to(named("by-word"), Produced(serdes.STRING, serdes.LONG))
    return builder.build()


def config_of(order: Order) -> StreamsConfig:
    """Return the settings of the app."""
    return StreamsConfig.of(
        {
            "application_id": order.application_id,
            "log": order.log,
            "default_key_serde": serdes.STRING,
            "default_value_serde": serdes.STRING,
            "state_dir": Path(order.directory) / "state",
            "snapshot_uri": f"{order.directory}/snapshots",
            "processing_guarantee": "exactly_once_v2",
            "commit_interval_ms": 5_000,
            "default_dsl_store": "rocksdb",
            "snapshot_interval_ms": 0,
            "session_timeout_ms": 6_000,
            "transaction_timeout_ms": 10_000,
            # Records are of 1970: a broker would delete those of windows from changelogs as soon as it looks.
            "windowstore_changelog_additional_retention_ms": 1 << 62,
        }
    )


async def filled_back(order: Order) -> Done:
    """Run the backfill, and return all that came of it."""
    app = App(job(order.prefix, order.stop, order.meet), config_of(order))
    spark = SparkSettings(**order.spark) if order.engine == "spark" else None
    with await app.backfill(until=order.until, engine=order.engine, spark=spark, directory=Path(order.directory)) as done:
        assert done.snapshot is not None
        rows = {f"{where.topic.removeprefix(order.prefix)}-{where.partition}": rows_of(done.read(where)) for where in done.partitions}
        return Done(rows, done.snapshot.name)


def rows_of(batches: Any) -> Rows:
    found: Rows = []
    batch: Batch
    for batch in batches:
        found += zip(batch.keys, batch.values, batch.timestamps, batch.headers or [()] * len(batch), strict=True)
    return found


async def seed(order: Order) -> bool:
    """Hand over the present records; return whether there were any."""
    app = App(job(order.prefix), config_of(order))
    return await app.seed(f"{order.directory}/snapshots", if_seeded="skip") is not None


def die_at(point: Point) -> None:
    """Have the hand-over kill this process when it gets to that point."""
    if point == "begun":
        _die(_bootstrap.Bootstrap, "_join", after=True)
    elif point == "handing over":
        _die(_bootstrap._Transfer, "_load_store", at=3)
    elif point in {"handed over", "committed"}:
        for kind in (EmbeddedTransactionalProducer, KafkaTransactionalProducer):
            _die(kind, "commit", after=point == "committed")
    elif point == "placing":
        _die_in_thread(Ingest, "finish", at=2)
    elif point == "placed":
        _die(_bootstrap._Transfer, "finish", after=True)


def _die(cls: type, name: str, *, at: int = 1, after: bool = False) -> None:
    original, calls = getattr(cls, name), 0

    @wraps(original)
    async def wrapped(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await original(*args)
        if calls == at and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(cls, name, wrapped)


def _die_in_thread(cls: type, name: str, *, at: int) -> None:
    original: Callable[..., Any] = getattr(cls, name)
    calls = 0

    @wraps(original)
    def wrapped(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return original(*args)

    setattr(cls, name, wrapped)


def main(text: str) -> None:
    """Carry out the order, and write the result beside the log."""
    order = msgspec.json.decode(text, type=Order)
    if order.what == "backfill":
        done = asyncio.run(filled_back(order))
        (Path(order.directory) / "done").write_bytes(msgspec.msgpack.encode(done))
    else:
        die_at(order.point)
        print(asyncio.run(seed(order)), flush=True)  # noqa: T201 - whoever has started it reads it


if __name__ == "__main__":
    main(sys.argv[1])
