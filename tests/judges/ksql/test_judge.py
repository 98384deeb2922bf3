"""The judge, by plans of our own; ksql's are judged where their folder is there."""

from __future__ import annotations

import copy
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.judges.ksql.cases import Case, read_cases
from tests.judges.ksql.judge import judge

JSON = {"keyFormat": {"format": "KAFKA"}, "valueFormat": {"format": "JSON"}}


def source(topic: str, schema: str, kind: str = "streamSourceV1") -> dict[str, Any]:
    return {"@type": kind, "topicName": topic, "formats": JSON, "sourceSchema": schema}


def create(kind: str, topic: str, schema: str, query: dict[str, Any] | None = None, window: dict[str, Any] | None = None) -> dict[str, Any]:
    command = {"@type": f"create{kind}V1", "topicName": topic, "schema": schema, "formats": JSON, "windowInfo": window}
    return {"ddlCommand": command, "queryPlan": None if query is None else {"physicalPlan": query}}


def sink(kind: str, topic: str, above: dict[str, Any]) -> dict[str, Any]:
    return {"@type": f"{kind}SinkV1", "topicName": topic, "formats": JSON, "source": above}


def case(plan: list[dict[str, Any]], inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]) -> Case:
    return Case("ours", {"plan": plan}, {"version": "8.0.0", "testCase": {"inputs": inputs, "outputs": outputs}})


SALES = "`SHOP` STRING KEY, `SUM` INTEGER"
SHOPS = "`SHOP` STRING KEY, `TOWN` STRING"


def counted() -> Case:
    """Return a case that counts the sales of windows of ten ms, without those of nothing."""
    filtered = {"@type": "streamFilterV1", "source": source("sales", SALES), "filterExpression": "(`SUM` > 0)"}
    grouped = {"@type": "streamGroupByKeyV1", "source": filtered}
    window = {"windowType": "TUMBLING", "size": {"value": 10, "timeUnit": "MILLISECONDS"}, "gracePeriod": None, "emitStrategy": None}
    counts = {
        "@type": "streamWindowedAggregateV1",
        "source": grouped,
        "nonAggregateColumns": ["SHOP"],
        "aggregationFunctions": ["COUNT(`SUM`)", "MAX(`SUM`)"],
        "windowExpression": window,
    }
    chosen = ["KSQL_AGG_VARIABLE_0 AS N", "KSQL_AGG_VARIABLE_1 AS MOST"]
    selected = {"@type": "tableSelectV1", "source": counts, "keyColumnNames": ["SHOP"], "selectExpressions": chosen}
    told = create(
        "Table", "counts", "`SHOP` STRING KEY, `N` BIGINT, `MOST` INTEGER", sink("table", "counts", selected), {"type": "TUMBLING", "size": 0.01}
    )
    inputs: list[dict[str, Any]] = [
        {"topic": "sales", "key": "a", "value": {"SUM": amount}, "timestamp": at} for amount, at in ((5, 1), (0, 2), (7, 4), (3, 12), ("odd", 13))
    ]
    outputs: list[dict[str, Any]] = [
        {"topic": "counts", "key": "a", "value": {"N": n, "MOST": most}, "timestamp": at, "window": {"start": start, "end": start + 10}}
        for n, most, at, start in ((1, 5, 1, 0), (2, 7, 4, 0), (1, 3, 12, 10))
    ]
    return case([create("Stream", "sales", SALES), told], inputs, outputs)


def joined() -> Case:
    """Return a case that joins sales with their shops, and writes on to a second query."""
    left = {
        "@type": "streamSelectV1",
        "source": source("sales", SALES),
        "keyColumnNames": ["L_SHOP"],
        "selectExpressions": ["`SUM` AS L_SUM", "SHOP AS L_SHOP"],
    }
    right = {
        "@type": "tableSelectV1",
        "source": source("shops", SHOPS, "tableSourceV2"),
        "keyColumnNames": ["R_SHOP"],
        "selectExpressions": ["TOWN AS R_TOWN", "SHOP AS R_SHOP"],
    }
    join = {"@type": "streamTableJoinV1", "joinType": "LEFT", "leftSource": left, "rightSource": right, "keyColName": "L_SHOP"}
    first = {"@type": "streamSelectV1", "source": join, "keyColumnNames": ["SHOP"], "selectExpressions": ["L_SUM AS SUM", "R_TOWN AS TOWN"]}
    rekeyed = {
        "@type": "streamSelectKeyV2",
        "source": source("joined", "`SHOP` STRING KEY, `SUM` INTEGER, `TOWN` STRING"),
        "keyExpression": ["UCASE(TOWN)"],
    }
    second = {"@type": "streamSelectV1", "source": rekeyed, "keyColumnNames": ["KSQL_COL_0"], "selectExpressions": ["`SUM` AS SUM"]}
    plan = [
        create("Stream", "sales", SALES),
        create("Table", "shops", SHOPS),
        create("Stream", "joined", "`SHOP` STRING KEY, `SUM` INTEGER, `TOWN` STRING", sink("stream", "joined", first)),
        create("Stream", "towns", "`KSQL_COL_0` STRING KEY, `SUM` INTEGER", sink("stream", "towns", second)),
    ]
    inputs: list[dict[str, Any]] = [
        {"topic": "shops", "key": "a", "value": {"TOWN": "Ulm"}, "timestamp": 0},
        {"topic": "sales", "key": "a", "value": {"SUM": 5}, "timestamp": 3},
        {"topic": "sales", "key": "b", "value": {"SUM": 6}, "timestamp": 4},
    ]
    outputs: list[dict[str, Any]] = [
        {"topic": "joined", "key": "a", "value": {"SUM": 5, "TOWN": "Ulm"}, "timestamp": 3},
        {"topic": "joined", "key": "b", "value": {"SUM": 6, "TOWN": None}, "timestamp": 4},
        {"topic": "towns", "key": "ULM", "value": {"SUM": 5}, "timestamp": 3},
        {"topic": "towns", "key": None, "value": {"SUM": 6}, "timestamp": 4},
    ]
    return case(plan, inputs, outputs)


@pytest.mark.parametrize("make", [counted, joined])
def test_a_case_passes_whose_records_are_the_expected_ones(make: Any) -> None:
    """A case passes when each topic has the expected keys, values, times and windows, in their order."""
    assert judge(make()) == ("passed", "")


@pytest.mark.parametrize("make", [counted, joined])
@pytest.mark.parametrize("change", [{"key": "z"}, {"value": None}, {"timestamp": 99}])
def test_a_case_fails_that_expects_another_record(make: Any, change: dict[str, Any]) -> None:
    """A case fails when the key, the value or the time of an expected record differs."""
    changed = copy.deepcopy(make())
    changed.spec["testCase"]["outputs"][-1].update(change)
    assert judge(changed).outcome == "failed"


def test_a_case_fails_that_expects_more_or_fewer_records() -> None:
    """A case fails when a record is missing, or there is one too many."""
    fewer, more = copy.deepcopy(counted()), copy.deepcopy(counted())
    fewer.spec["testCase"]["outputs"].pop()
    more.spec["testCase"]["outputs"] *= 2
    assert [judge(fewer).outcome, judge(more).outcome] == ["failed", "failed"]


def test_a_case_with_an_unknown_step_is_left_out_and_says_so() -> None:
    """A step that the translator does not know leaves the case out, with its name."""
    unknown = copy.deepcopy(counted())
    unknown.plan["plan"][1]["queryPlan"]["physicalPlan"]["source"]["@type"] = "tableTurnV1"
    assert judge(unknown) == ("left out", "step tableTurnV1")


def test_a_folder_gives_the_newest_version_of_each_case(tmp_path: Path) -> None:
    """Of a folder of plans, as ksql's repository has it, only the newest version of each case is read."""
    for name in ("6.0.0_1600000000000", "7.4.0_1680000000000", "10.0.0_1700000000000"):
        place = tmp_path / "counts" / name
        place.mkdir(parents=True)
        (place / "plan.json").write_text(json.dumps(counted().plan))
        (place / "spec.json").write_text(json.dumps({**counted().spec, "version": name.split("_")[0]}))
    assert [(found.name, found.version, judge(found).outcome) for found in read_cases(tmp_path)] == [("counts", (10, 0, 0), "passed")]


@pytest.mark.skipif("KSQL_CASES" not in os.environ, reason="KSQL'S PLANS WERE NOT JUDGED: name them with KSQL_CASES; docs/judges.md says why")
def test_ksqls_plans_give_what_kafka_streams_gave() -> None:
    """Each of ksql's compiled plans that the translator knows gives the records that Kafka Streams gave."""
    outcomes: Counter[str] = Counter()
    failed = []
    for each in read_cases(Path(os.environ["KSQL_CASES"])):
        outcome, detail = judge(each)
        outcomes[outcome] += 1
        if outcome == "failed":
            failed.append(f"{each.name}: {detail}")
    assert not failed
    assert outcomes["passed"] >= 480
