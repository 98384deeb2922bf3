"""Stores as DataFrames: a changelog, a snapshot and a running app give the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import In
from pyspark.sql.types import StructType

from ks_actors import App, ConfigError, QueryFailed, SnapshotRefused, StreamsConfig, UnknownStore
from ks_actors.batch.source import _data_source as data_source
from ks_actors.batch.source._source_options import read_options
from ks_actors.log import NewTopic
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.query import StoreEndpoint
from tests.ks_actors.batch.histories import fill
from tests.ks_actors.query.test_serve import RECORDS, TOPICS, counting

WINDOWS = {"by-time": "window", "sessions": "session"}
SERDES = {"key_serde": "ks_actors.serdes.STRING", "value_serde": "ks_actors.serdes.LONG"}


def with_app(directory: Path, look: Callable[[StoreEndpoint, str, str], Any]) -> Any:
    """Return the result of `look`, in a thread, about an app that has counted: its store server, its log, and a snapshot."""

    async def main() -> Any:
        async with EmbeddedLog(directory / "log") as log:
            await log.create_topics([*(NewTopic(name, count) for name, count in TOPICS.items()), NewTopic("names", 1)])
            await fill(log, TOPICS, RECORDS)
            config = StreamsConfig(application_id="app", state_dir=directory / "state", snapshot_uri=str(directory / "snapshots"))
            async with App(counting("rocksdb"), config, log=log) as app:
                await app.wait_until_caught_up()
                await app.snapshot()
                endpoint = await app.serve_stores()
                return await asyncio.to_thread(look, endpoint, f"embedded://{directory / 'log'}", str(directory / "snapshots"))

    return asyncio.run(main())


def frames(spark: Any, where: tuple[StoreEndpoint, str, str], **options: str) -> list[Any]:
    """Return a store from all three places."""
    endpoint, log, snapshots = where
    places = [{"log": log}, {"snapshot": snapshots}, {"live": endpoint.address, "token": endpoint.token}]
    return [spark.read.format("ks_actors").options(application_id="app", **place, **options).load() for place in places]


def test_a_store_is_the_same_from_its_changelog_a_snapshot_and_the_app(spark: Any, tmp_path: Path) -> None:
    """Row for row, with windows and sessions taken apart; partitions and keys that are not wanted are not read."""

    def look(*where: Any) -> None:
        for found in frames(spark, where, store="counts", columns="partition,key,value,timestamp", **SERDES):
            rows = {row.key: (row.value, row.partition, row.timestamp.timestamp()) for row in found.collect()}
            assert {key: value for key, (value, *_) in rows.items()} == {f"k{number}": 60 for number in range(50)}
            assert {partition for _, partition, _ in rows.values()} == {0, 1}
            assert rows["k49"][2] == RECORDS[-1][3] / 1000
            some = found.where("partition = 1 and key in ('k7', 'k8', 'none') and value > 1")
            assert some.rdd.getNumPartitions() == 1
            assert sorted(row.key for row in some.collect()) == sorted(key for key in ("k7", "k8") if rows[key][1] == 1)
        for store, kind in WINDOWS.items():
            wanted = "key,window_start,value" + (",window_end" if kind == "session" else "")
            several = frames(spark, where, store=store, store_kind=kind, columns=wanted, **SERDES)
            first, *others = [{tuple(row) for row in found.collect()} for found in several]
            assert len(first) == {"by-time": 1_500, "sessions": 3_000}[store]
            assert others == [first, first]
            of_one = several[2].where("key = 'k7'")
            assert {tuple(row) for row in of_one.collect()} == {row for row in first if row[0] == "k7"}
            start = next(row for row in first if row[0] == "k7")[1]
            assert start.microsecond % 10_000 == 0

    with_app(tmp_path, look)


def test_missing_names_are_reported_before_anything_is_read(tmp_path: Path) -> None:
    """By the driver, when it asks which partitions there are."""

    def look(endpoint: StoreEndpoint, _: str, snapshots: str) -> None:
        live = {"live": endpoint.address, "token": endpoint.token}
        for options, kind, said in (
            ({**live, "store": "prices"}, UnknownStore, "has no store 'prices'"),
            ({**live, "store": "by-time"}, ConfigError, "is of kind window, not key_value"),
            ({**live, "token": "guessed", "store": "counts"}, ConfigError, "this is not the token"),
            ({"live": "127.0.0.1:1", "token": "t", "store": "counts"}, QueryFailed, "no answer"),
            ({**live, "store": "versions"}, ConfigError, "store versions is versioned: read it from its changelog"),
            ({"snapshot": snapshots, "application_id": "app", "store": "prices"}, SnapshotRefused, "has no store prices; it has by-time, counts"),
            ({"snapshot": snapshots, "store": "counts"}, ConfigError, "application_id: is required"),
            (
                {"snapshot": snapshots, "application_id": "another", "store": "counts"},
                SnapshotRefused,
                "has no complete snapshot of application another",
            ),
        ):
            reader = data_source.KsActorsSource(options).reader(StructType().add("key", "binary"))
            with pytest.raises(kind, match=said):
                reader.partitions()
        with pytest.raises(ConfigError, match="a store cannot be read as a stream: read"):
            data_source.KsActorsSource({**live, "store": "counts"}).streamReader(StructType().add("key", "binary"))

    with_app(tmp_path, look)


def test_more_keys_than_an_app_takes_are_looked_for_in_all_rows(tmp_path: Path) -> None:
    """A request is bounded, a query is not."""

    def look(endpoint: StoreEndpoint, *_: str) -> None:
        options = {"live": endpoint.address, "token": endpoint.token, "store": "counts", "key_serde": SERDES["key_serde"]}
        reader = data_source.KsActorsSource(options).reader(StructType().add("key", "string"))
        assert list(reader.pushFilters([In(("key",), ("k7", *(f"none-{number}" for number in range(100_000))))])) == []
        found = [row["key"] for one in reader.partitions() for batch in reader.read(one) for row in batch.to_pylist()]
        assert found == ["k7"]

    with_app(tmp_path, look)


def test_secrets_are_not_printed() -> None:
    """Neither the token of an app nor the password of a Kafka, by themselves or within all options."""
    live = read_options({**LIVE, "token": "secret", "store": "s"})
    kafka = read_options({"log": "kafka://host:1", "log_options": '{"sasl_password": "secret"}', "topic": "t"})
    assert "secret" not in f"{live!r} {live.place!r} {kafka!r} {kafka.address!r}"
    assert repr(live.place).startswith("StorePlace(store='s', application_id=None")
    assert repr(kafka.address) == "LogAddress(url='kafka://host:1', options=['sasl_password'])"


LIVE = {"live": "127.0.0.1:4711", "token": "t"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"snapshot": "/s", "topic": "t"}, "topic: is read from a log, not from snapshot"),
        ({"snapshot": "/s", "log": "embedded:///x", "store": "s"}, "log, snapshot: give only one of them"),
        ({"live": "127.0.0.1:4711", "store": "s"}, "token: is required"),
        ({"snapshot": "/s", "store": "s", "token": "t"}, "token: is for live stores"),
        ({**LIVE, "store": "s", "starting_offsets": "{}"}, "starting_offsets: is for topics"),
        ({**LIVE, "store": "s", "isolation": "none"}, "isolation: 'none' does not exist"),
        ({**LIVE, "store": "s", "stale": "maybe"}, "stale: 'maybe' is neither true nor false"),
        ({**LIVE, "store": "s", "store_kind": "list"}, "store_kind: 'list' does not exist"),
        ({"log": "embedded:///x", "topic": "t", "store_kind": "window"}, "store_kind: is for stores"),
        ({**LIVE, "store": "s", "columns": "key,window_start"}, "'window_start' does not exist"),
        ({**LIVE, "store": "s", "live": " ,"}, "live: names no app"),
        ({**LIVE, "store": "s", "store_kind": "versioned"}, "a versioned store is read from its changelog, by log, not from live"),
        ({"log": "embedded:///x", "topic": "t", "store_kind": "versioned"}, "store_kind: is for stores"),
    ],
)
def test_options_that_do_not_go_together_are_told(options: dict[str, str], said: str) -> None:
    """Before anything is read."""
    with pytest.raises(ConfigError, match=said):
        read_options(options)
