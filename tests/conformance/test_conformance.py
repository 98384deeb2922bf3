"""Small topologies of Kafka Streams' own tests, with the output that it gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ks_actors.dsl import StreamsBuilder
from ks_actors.serdes import STRING
from ks_actors.testing import TopologyTestDriver
from tests.conformance.topologies import OUT_OF_REACH, REBUILT

CASES = {path.stem: json.loads(path.read_text()) for path in sorted((Path(__file__).parent / "cases").glob("*.json"))}

INSTEAD = {
    # Kafka Streams reads the store only back to its retention, by default size and grace, and so loses windows that a jump in time closes.
    "09c_window_emit_final": "09d_window_emit_final_long_retention",
}
"""Differences on purpose: in the first case we give what Kafka Streams gives in the second, whose input is the same."""


def run(case: dict[str, Any]) -> tuple[list[dict[str, Any]], int]:
    rebuilt = REBUILT[case["name"]]
    builder = StreamsBuilder()
    rebuilt.build(builder)
    rows = []
    with TopologyTestDriver(builder.build(), {"kafka_streams_faults": True}) as driver:
        topics = {step["topic"] for step in case["steps"]}
        inputs = {topic: driver.create_input_topic(topic, rebuilt.key, STRING) for topic in topics}
        outputs = {topic: driver.create_output_topic(topic, rebuilt.key, rebuilt.result) for topic in rebuilt.outputs}
        for number, step in enumerate(case["steps"]):
            inputs[step["topic"]].pipe_input(step["key"], step["value"], timestamp_ms=step["timestamp"])
            for topic, output in outputs.items():
                for record in output.read_records_to_list():
                    row = {"after_step": number, "key": record.key, "value": record.value, "timestamp": record.timestamp}
                    rows.append({**row, "topic": topic} if len(outputs) > 1 else row)
        return rows, int(driver.metrics()["dropped-records-total"])


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.xfail(strict=True, reason=OUT_OF_REACH[name], raises=KeyError)] if name in OUT_OF_REACH else [])
        for name in CASES
    ],
)
def test_a_case_gives_the_results_of_kafka_streams(name: str) -> None:
    """Record by record and step by step, and the number of dropped ones; unsupported cases fail, and it is noticed when one no longer does."""
    rows, dropped = run(CASES[name])
    expected = CASES[INSTEAD.get(name, name)]
    assert rows == expected["expected"]
    assert dropped == expected["dropped_records_total"]


@pytest.mark.parametrize("name", INSTEAD)
def test_a_difference_on_purpose_is_one(name: str) -> None:
    """The inputs are equal, the outputs are not, and ours are not the first."""
    assert CASES[name]["steps"] == CASES[INSTEAD[name]]["steps"]
    assert CASES[name]["expected"] != CASES[INSTEAD[name]]["expected"]
    assert run(CASES[name])[0] != CASES[name]["expected"]


def test_every_case_is_rebuilt_or_has_its_reason() -> None:
    """Each case is in exactly one of the two tables."""
    assert set(CASES) == set(REBUILT) | set(OUT_OF_REACH)
    assert not set(REBUILT) & set(OUT_OF_REACH)
    assert all(case["name"] == name for name, case in CASES.items())
