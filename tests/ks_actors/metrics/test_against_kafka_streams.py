"""Names, levels and tags are those of Kafka Streams 4.4.0, as it has printed them for the same topology: see kafka_streams_names.py."""

from __future__ import annotations

from pathlib import Path

from ks_actors.metrics import Metric
from ks_actors.metrics.families import ABSENT, catalogue, store
from ks_actors.testing import AppHarness, run_app
from tests.ks_actors.metrics.topology import topology

Line = tuple[str, str, tuple[tuple[str, str], ...]]

# All stores of a task are in one database: its figures have one name.
OF_DATABASES = {family.name for part in (store.DATABASE_PROPERTIES, store.DATABASE_COUNTS) for one in part.values() for family in one.families}
# Those of tasks that are being restored, or of a thread that one of each group has.
SELDOM = {"restore-rate", "restore-total", "restore-remaining-records-total", "update-rate", "update-total"}
# Windows that are emitted when they close are not cached: nothing is forwarded before.
NOT_CACHED = ("stream-record-cache-metrics", "emitted")


def line(group: str, name: str, tags: dict[str, str]) -> Line:
    """Return a metric without the names of threads and processes, and of a database's stores."""
    shown = {tag: "*" if tag in {"thread-id", "process-id"} else value for tag, value in tags.items()}
    if name in OF_DATABASES:
        shown = {("state-id" if tag.endswith("-state-id") else tag): ("*" if tag.endswith("-state-id") else value) for tag, value in shown.items()}
    return group, name, tuple(sorted(shown.items()))


def theirs() -> dict[Line, str]:
    """Return the lines of Kafka Streams, each with its level."""
    found = {}
    text = (Path(__file__).parent / "kafka_streams_4_4_0.txt").read_text(encoding="utf-8")
    for group, name, level, tags in (row.split("\t") for row in text.splitlines()):
        found[line(group, name, dict(one.split("=", 1) for one in tags.strip("{}").split(", ")))] = level
    return found


def ours() -> set[Line]:
    async def run(harness: AppHarness) -> list[Metric]:
        for number in range(100):
            await harness.produce("in", f"key{number % 5}", f"value{number}", timestamp=number * 1_000)
            await harness.produce("table", f"key{number % 5}", f"value{number % 3}", timestamp=number * 1_000)
        await harness.caught_up()
        harness.app.metrics()
        await harness.kit.clock.advance(30)
        return list(harness.app.metrics())

    topics = {"in": 1, "table": 1, "out": 1, "final": 1}
    found = run_app(run, topology(), topics=topics, client_id="client", metrics_recording_level="TRACE", statestore_cache_max_bytes=1_000_000)
    return {line(metric.group, metric.name, dict(metric.tags)) for metric in found if metric.group.startswith("stream-")}


def test_each_metric_of_kafka_streams_is_here_or_has_a_reason() -> None:
    """With the same tags, for each task, node, topic, cache and store; but for what is named above."""
    missing = theirs().keys() - ours()
    named = {one for one in missing if one[:2] in ABSENT or one[1] in SELDOM or (one[0] == NOT_CACHED[0] and NOT_CACHED[1] in dict(one[2]).values())}
    assert missing - named == set()


def test_no_metric_by_a_name_of_kafka_streams_is_ours_alone() -> None:
    """Each is one of Kafka Streams', for the same things; of stores there may be more."""
    found = ours() - theirs().keys()
    assert {one for one in found if one[0] != "stream-state-metrics"} == set()
    of_stores = {"uncommitted-bytes", "num-keys", "num-open-iterators", "commit-rate", "commit-latency-avg", "commit-latency-max"}
    assert {name for _, name, _ in found} <= of_stores


def test_levels_are_those_of_kafka_streams() -> None:
    """A gauge for which Kafka Streams names no level has the configured one there, and INFO here."""
    levels = {(group, name): level for (group, name, _), level in theirs().items()}
    differ = {
        (family.group, family.name): (family.level.name, level)
        for family in catalogue()
        if (level := levels.get((family.group, family.name), family.level.name)) != family.level.name
    }
    assert set(differ.values()) <= {("INFO", "TRACE")}


def test_reasons_are_about_metrics_that_are_not_here() -> None:
    """The table gives reasons only for metrics of Kafka Streams: of its list, or of other topologies and protocols."""
    names = {(family.group, family.name) for family in catalogue()}
    assert ABSENT.keys() & names == set()
    elsewhere = {(group, name) for group, name in ABSENT if name.startswith(("tasks-", "idempotent-update-skip-"))}
    assert ABSENT.keys() - {(group, name) for group, name, _ in theirs()} == elsewhere
