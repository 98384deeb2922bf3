"""The files of the cases, and how a case runs with our own driver."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ks_actors.log import Outgoing
from ks_actors.records._batch import Batch
from ks_actors.records._topic_partition import TopicPartition
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver
from ks_actors.topology import SinkNode, Topology
from tests.differential.topologies import REBUILT

Case: TypeAlias = Mapping[str, Any]
Between: TypeAlias = Callable[[TopologyTestDriver, int], None]

HERE = Path(__file__).parent / "cases"
SEED_1 = HERE / "seed-1"
CACHED = HERE / "cached-1"
WITH_HEADERS = HERE / "headers-1"
CACHED_WITH_HEADERS = HERE / "headers-cached-1"
CACHED_SESSIONS = HERE / "cached-sessions"
FOUND = HERE / "found.jsonl"
DESCRIPTIONS = HERE / "describe.txt"


class Ran(NamedTuple):
    """The results of a case: rows as the oracle writes them, and the dropped records."""

    rows: list[dict[str, Any]]
    dropped: int


class Mismatch(NamedTuple):
    """The first step at which a case goes another way."""

    case: str
    params: Mapping[str, Any]
    step: int | None
    input: Mapping[str, Any] | None
    expected: Any
    got: Any

    def __str__(self) -> str:
        where = "at the end" if self.step is None else f"at step {self.step}, {json.dumps(self.input)}"
        return f"{self.case} {json.dumps(dict(self.params))}\n  {where}\n    Kafka Streams: {self.expected}\n    ks-actors:     {self.got}"


def read_cases(directory: Path, topology: str) -> list[Case]:
    with lzma.open(directory / f"{topology}.jsonl.xz", "rt") as lines:
        return [json.loads(line) for line in lines]


def config_of(case: Case) -> dict[str, Any]:
    store = case["params"].get("store", "in_memory")
    cache = case["params"].get("cache", 0)
    return {
        "application_id": "oracle",
        "default_dsl_store": store,
        "default_key_serde": STRING,
        "default_value_serde": STRING,
        "statestore_cache_max_bytes": cache,
        "kafka_streams_faults": True,
        "dsl_store_format": case["params"].get("format", "DEFAULT"),
    }


def _written(driver: TopologyTestDriver) -> set[str] | None:
    """Return the topics of a topology's sinks: some parameters leave some out. None if a function chooses."""
    topics = [node.topic for node in driver._topics.topology.nodes.values() if isinstance(node, SinkNode)]
    return None if any(map(callable, topics)) else {str(topic) for topic in topics}


def run(case: Case, between: Between | None = None) -> Ran:
    """Pipe a case's steps one by one and collect the output after each, topic by topic; `between` is called before each."""
    rebuilt = REBUILT[case["topology"]]
    rows: list[dict[str, Any]] = []
    with TopologyTestDriver(rebuilt.build(case["params"]), config=config_of(case), initial_wall_clock_ms=0) as driver:
        inputs: dict[str, Any] = {}
        written = _written(driver)
        outputs = [(topic, driver.create_output_topic(topic, STRING, STRING)) for topic in rebuilt.outputs if written is None or topic in written]
        for number, step in enumerate(case["steps"]):
            if between is not None:
                between(driver, number)
            if "advance_wall_ms" in step:
                driver.advance_wall_clock_time(step["advance_wall_ms"])
            else:
                topic = step["topic"]
                if topic not in inputs:
                    inputs[topic] = driver.create_input_topic(topic, STRING, STRING)
                headers = tuple((name, value.encode()) for name, value in step.get("headers", ()))
                inputs[topic].pipe_input(step["key"], step["value"], timestamp_ms=step["timestamp"], headers=headers)
            for topic, output in outputs:
                for record in output.read_records_to_list():
                    row: dict[str, Any] = {"after_step": number, "key": record.key, "value": record.value, "timestamp": record.timestamp}
                    if record.headers:
                        row["headers"] = [[name, None if value is None else value.decode()] for name, value in record.headers]
                    rows.append(row if len(rebuilt.outputs) == 1 else {**row, "topic": topic})
        return Ran(rows, int(driver.metrics()["dropped-records-total"]))


def run_whole(case: Case, *, one_by_one: bool, faults: bool = True) -> dict[str, list[tuple[Any, ...]]]:
    """Give the task all of a case's records at once and return the output per topic.

    `one_by_one` takes no batches; without `faults` those of Kafka Streams are not there.
    """
    rebuilt = REBUILT[case["topology"]]
    config = {**config_of(case), "kafka_streams_faults": faults}
    return run_steps(rebuilt.build(case["params"]), rebuilt.outputs, case["steps"], config, one_by_one=one_by_one)


def run_steps(
    topology: Topology, topics: Sequence[str], steps: Sequence[Mapping[str, Any]], config: dict[str, Any], *, one_by_one: bool
) -> dict[str, list[tuple[Any, ...]]]:
    """Do the same with any topology, and return the output of `topics`; rows that caches hold back come at the end."""
    with TopologyTestDriver(topology, config=config) as driver:
        task, globals_ = driver._task, driver._globals
        assert task is not None
        for topic in {step["topic"] for step in steps}:
            batch = batch_of([step for step in steps if step["topic"] == topic])
            partition = TopicPartition(topic, 0)
            reader = task if partition in task.group.queues else globals_
            assert reader is not None
            reader.add(partition, batch, len(batch), len(batch))
        ends: dict[TopicPartition, int] = {}
        outputs: dict[str, list[tuple[Any, ...]]] = {topic: [] for topic in topics}

        def collect(written: Sequence[Outgoing]) -> None:
            for partition, batch in ((each.partition, each.batch) for each in written):
                if partition in task.group.queues:
                    first = ends.get(partition, 0)
                    end = ends[partition] = first + len(batch)
                    fed = Batch(batch.keys, batch.values, batch.timestamps, batch.headers, range(first, end))
                    task.add(partition, fed, end, end)
                else:
                    headers = batch.headers or [()] * len(batch)
                    rows = zip(batch.keys, batch.values, batch.timestamps, headers, strict=True)
                    outputs[partition.topic].extend((*row, *header) for *row, header in rows)

        for each in (globals_, task):
            while each is not None and (each.process_one() if one_by_one else each.process(1.0)):
                collect(each.take_output())
        while task.can_drain:
            task.drain(1.0)
            collect(task.take_output())
        return outputs


def batch_of(steps: Sequence[Mapping[str, Any]]) -> Batch:
    """Return steps as the records of one fetch."""
    keys, values = ([None if step[column] is None else step[column].encode() for step in steps] for column in ("key", "value"))
    headers = [tuple((name, value.encode()) for name, value in step.get("headers", ())) for step in steps]
    return Batch(keys, values, [step["timestamp"] for step in steps], headers if any(headers) else None, range(len(steps)))


def forgets_a_delete(case: Case) -> bool:
    """Return whether a row is updated late after a delete at the timestamp of the value that it deletes.

    Kafka Streams forgets such a delete if there was no older value: the update is valid up to the next version, also if that has come meanwhile.
    That is a difference on purpose.
    """
    if not case["topology"].startswith("versioned_"):
        return False
    rows: dict[tuple[str, str], dict[int, bool]] = {}
    forgotten: dict[tuple[str, str], int] = {}
    stream_times: dict[str, int] = {}
    params = case["params"]
    for step in case["steps"]:
        if "timestamp" not in step or step["key"] is None:
            continue
        row, time, is_value = (step["topic"], step["key"]), step["timestamp"], step["value"] is not None
        stream_time = stream_times[step["topic"]] = max(time, stream_times.get(step["topic"], -1))
        if time < stream_time - params.get(f"history_{step['topic']}", params.get("history", stream_time)):
            # Older than the history: no version.
            continue
        versions = rows.setdefault(row, {})
        last = max(versions, default=-1)
        if time < forgotten.get(row, -1):
            return True
        before = max((each for each in versions if each < time), default=-1)
        if time == last and versions[last] and not is_value and not versions.get(before, False):
            forgotten[row] = time
        versions[time] = is_value
    return False


def by_step(rows: list[dict[str, Any]]) -> dict[int, list[tuple[Any, ...]]]:
    steps: dict[int, list[tuple[Any, ...]]] = {}
    for row in rows:
        topic = (row["topic"],) if "topic" in row else ()
        steps.setdefault(row["after_step"], []).append((*topic, row["key"], row["value"], row["timestamp"], *row.get("headers", ())))
    return steps


def compare(case: Case, between: Between | None = None) -> Mismatch | None:
    """Run a case and return its first difference from Kafka Streams; None without any."""
    try:
        ran = run(case, between)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a difference, and the case's name must be told
        return Mismatch(case["id"], case["params"], None, None, "no error", repr(error))
    expected, got = by_step(case["expected"]), by_step(ran.rows)
    for number, step in enumerate(case["steps"]):
        if expected.get(number) != got.get(number):
            return Mismatch(case["id"], case["params"], number, step, expected.get(number, []), got.get(number, []))
    if ran.dropped != case["dropped"]:
        return Mismatch(case["id"], case["params"], None, None, f"{case['dropped']} dropped", f"{ran.dropped} dropped")
    return None


def descriptions() -> Iterator[tuple[str, dict[str, bool], list[str], str]]:
    """Yield Kafka Streams' description of each graph: its id, its stores (is it persistent?), its nodes in order, Topology.describe()."""
    for part in DESCRIPTIONS.read_text().split("===== ")[1:]:
        graph, stores, order, text = part.split("\n", 3)
        yield graph, json.loads(stores.removeprefix("stores: ")), json.loads(order.removeprefix("order: ")), text.removesuffix("\n")
