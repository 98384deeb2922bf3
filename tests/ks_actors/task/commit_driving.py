"""Put records through a topology, with commits where one says, and look at all that comes of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple

from ks_actors.config._exception_handlers import log_and_continue
from ks_actors.records._batch import Batch
from ks_actors.records._topic_partition import TopicPartition
from ks_actors.testing import TopologyTestDriver
from tests.ks_actors.task.changing_topologies import CACHED, TOPOLOGIES, build

InFlightBatch = tuple[str, list[tuple[str, int, int]], bool]
"""A topic, keys, numbers and times of records, and whether a commit follows."""


class Case(NamedTuple):
    """A topology, its settings and its input; commits may fall anywhere, and the outcome is to be the same."""

    topology: str
    value: str
    store: str
    hoards: bool
    cache_bytes: int
    pieces: list[InFlightBatch]

    @classmethod
    def random(cls, random: Random) -> Case:
        """Return any case."""
        topics = ("in", "in", "other")
        now, pieces = 10, []
        for _ in range(random.randint(3, 8)):
            rows = []
            for _ in range(random.randint(1, 4)):
                now += random.choice((0, 1, 1, 3, 8))
                rows.append((random.choice("ab"), random.choice((1, 2, 3, 7, 8)), max(0, now - random.choice((0, 0, 0, 4, 12)))))
            pieces.append((random.choice(topics), rows, random.random() < 0.5))
        topology, value, store = (random.choice(some) for some in (list(TOPOLOGIES), ("dict", "struct", "dataclass"), ("in_memory", "rocksdb")))
        return cls(topology, value, store, random.random() < 0.5, random.choice((0, 0, 10_000)) if topology in CACHED else 0, pieces)


class Outcome(NamedTuple):
    """The output (with a cache only the last of each row), the rows of changelogs and stores, and the number of dropped records."""

    written: list[Any] | dict[Any, Any]
    changelogs: dict[str, dict[Any, Any]]
    stores: dict[str, list[Any]]
    dropped: int


def outcome(case: Case, *, each: bool, in_batches: bool = False) -> Outcome:
    """Return the results of a case, with a commit behind `each` record or at the case's own places; records go in one by one, or in batches."""
    topology = build(case.topology, case.value, case.store, hoards=case.hoards, caching=case.cache_bytes > 0)
    config = {"processing_exception_handler": log_and_continue, "statestore_cache_max_bytes": case.cache_bytes}
    with TopologyTestDriver(topology, config) as driver:
        known = driver._topics.source_topics
        pieces = [piece for piece in case.pieces if piece[0] in known or piece[0] in topology.global_topics]
        for topic, rows, commits in pieces:
            for part in [rows] if in_batches else [[row] for row in rows]:
                _add(driver, topic, part)
                _work(driver)
                if each:
                    driver._run(driver._complete())
            if commits:
                driver._run(driver._complete())
        driver._run(driver._complete())
        return _seen(driver, cached=case.cache_bytes > 0)


def _add(driver: TopologyTestDriver, topic: str, rows: Sequence[tuple[str, int, int]]) -> None:
    partition = TopicPartition(topic, 0)
    first = driver._ends.get(topic, 0)
    end = driver._ends[topic] = first + len(rows)
    values = [json.dumps({"n": number}).encode() for _, number, _ in rows]
    batch = Batch([key.encode() for key, _, _ in rows], values, [time for _, _, time in rows], None, range(first, end))
    tasks = [task for task in (driver._globals, driver._task) if task is not None and partition in task.group.queues]
    tasks[0].add(partition, batch, end, end)


def _work(driver: TopologyTestDriver) -> None:
    """Process all present records with their consequences, and do not commit."""
    busy = True
    while busy:
        busy = False
        for task in (driver._globals, driver._task):
            if task is not None:
                busy = task.process(60.0) > 0 or busy
                driver._route(task.take_output())


def _seen(driver: TopologyTestDriver, *, cached: bool) -> Outcome:
    out = list(driver._written._records.get("out", ()))
    changelogs = {}
    for topic, records in driver._written._records.items():
        if topic.endswith("-changelog"):
            rows = {}
            for key, value, time, _ in records:
                rows[key] = (value, time)
            if left := {key: row for key, row in rows.items() if row[0] is not None}:
                changelogs[topic] = left
    contents = {}
    for stores in driver._open:
        for name in stores.names:
            store = stores.store(name)
            if hasattr(store, "put_version"):
                contents[name] = [(key, store.get(key)) for key in "ab"]
            elif hasattr(store, "fetch_range") and not hasattr(store, "fetch_all"):
                contents[name] = list(store.fetch_range(None, None))
            else:
                contents[name] = list(store.all())
    assert driver._task is not None
    return Outcome(_last(out) if cached else out, changelogs, contents, 0 if cached else driver._task.dropped)


def differences(case: Case) -> list[str]:
    """Return the differences, in words: nothing, that is."""
    wanted = outcome(case, each=True)
    ways = {"with the commits of the case": outcome(case, each=False)}
    if not case.hoards:  # a function that changes what it has returned before changes what a batch has not handed on yet
        ways["in batches"] = outcome(case, each=False, in_batches=True)
    return [
        f"{case}: {part} differ {how}: {getattr(found, part)!r}; with a commit behind each record: {getattr(wanted, part)!r}"
        for how, found in ways.items()
        for part in Outcome._fields
        if getattr(found, part) != getattr(wanted, part)
    ]


def _last(records: Iterable[Any]) -> dict[Any, Any]:
    found = {}
    for key, value, time, _ in records:
        found[key] = (value, time)
    return {key: row for key, row in found.items() if row[0] is not None}
