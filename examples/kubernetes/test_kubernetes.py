"""The files here agree with each other, with the program, and with the options of ks-actors.

Run: python -m pytest test_kubernetes.py
"""

import json
import os
import re
import signal
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml  # type: ignore[import-untyped]
from totals import PARTITIONS, PAYMENTS, TOTALS, app, topology

from ks_actors import StreamsConfig
from ks_actors.metrics.exporters import prometheus_text
from ks_actors.testing import AppHarness, TopologyTestDriver, run_app

HERE = Path(__file__).parent
FILES = ("totals.yaml", "scaling.yaml", "monitoring.yaml")
PARTS: list[Any] = [*chain.from_iterable(yaml.safe_load_all((HERE / name).read_text()) for name in FILES)]
KINDS: dict[str, Any] = {part["kind"]: part for part in PARTS}
INSTANCES = KINDS["StatefulSet"]["spec"]
POD = INSTANCES["template"]["spec"]
(CONTAINER,) = POD["containers"]
ENVIRONMENT: dict[str, str] = {each["name"]: each.get("value", "totals-0") for each in CONTAINER["env"]}
DOCKERFILE = (HERE / "Dockerfile").read_text()
MIB = 1024 * 1024


def config() -> StreamsConfig:
    """Return the settings in the container. A variable that names none is an error."""
    return StreamsConfig.load(environ=ENVIRONMENT, application_id=app_id())


def app_id() -> str:
    return KINDS["ScaledObject"]["spec"]["triggers"][0]["metadata"]["consumerGroup"]  # type: ignore[no-any-return]


def test_the_program_adds_up_payments() -> None:
    """The topology itself, without any of this."""
    with TopologyTestDriver(topology()) as driver:
        payments, totals = driver.create_input_topic(PAYMENTS), driver.create_output_topic(TOTALS)
        payments.pipe_key_value_list([("ann", 450), ("bob", 1200), ("ann", 3900)])
        assert totals.read_key_values_to_map() == {"ann": 4350, "bob": 1200}


def test_the_container_runs_and_answers_its_probes(tmp_path: Path) -> None:
    """By the image's command and the pod's variables, but without Kafka, and at a free port of this machine."""
    found = re.search(r"^ENTRYPOINT (\[.*\])$", DOCKERFILE, re.MULTILINE)
    assert found is not None
    name, *options = json.loads(found[1])
    (port,) = CONTAINER["ports"]
    assert (name, f"0.0.0.0:{port['containerPort']}" in options) == ("ks-actors", True)
    command = [sys.executable, "-m", "ks_actors", *(each.replace("0.0.0.0:9464", "0") for each in options)]
    given = {name: value for name, value in ENVIRONMENT.items() if name != "KS_ACTORS_BOOTSTRAP_SERVERS"}
    place = {"KS_ACTORS_LOG": "memory://", "KS_ACTORS_STATE_DIR": str(tmp_path)}
    with subprocess.Popen(  # noqa: S603 - the program of this folder
        command, cwd=HERE, env={**os.environ, **given, **place}, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "is running with exactly_once_v2" in line:
                break
        address = next(found[1] for line in lines if (found := re.search(r"probes are at (\S+)/health", line)))
        for probe in ("livenessProbe", "readinessProbe"):
            asked = CONTAINER[probe]["httpGet"]
            assert asked["port"] == port["name"]
            assert httpx.get(address + asked["path"]).status_code == 200, probe
        (scraped,) = KINDS["PodMonitor"]["spec"]["podMetricsEndpoints"]
        assert scraped["port"] == port["name"]
        assert "ks_actors_input_lag_seconds" in httpx.get(address + scraped["path"]).text
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
        assert process.wait() == 0


def test_the_settings_fit_the_pod() -> None:
    """The pod waits for a close, and has the memory of the buffers and 384 MiB more."""
    settings = config()
    assert POD["terminationGracePeriodSeconds"] * 1000 > settings.close_timeout_ms
    assert settings.client_id == "totals-0"
    buffers = settings.statestore_memory_max_bytes + settings.input_buffer_max_bytes + settings.statestore_uncommitted_max_bytes
    memory = CONTAINER["resources"]["limits"]["memory"]
    assert (memory, CONTAINER["resources"]["requests"]["memory"]) == ("1Gi", memory)
    assert buffers + 384 * MIB <= 1024 * MIB
    (volume,) = CONTAINER["volumeMounts"]
    assert f"ENV KS_ACTORS_STATE_DIR={volume['mountPath']}\n" in DOCKERFILE
    assert f"USER {POD['securityContext']['runAsUser']}\n" in DOCKERFILE
    assert [each["metadata"]["name"] for each in INSTANCES["volumeClaimTemplates"]] == [volume["name"]]


def test_scaling_is_about_the_programs_own_group_and_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many instances as partitions at most, and enough for standbys."""
    scaling = KINDS["ScaledObject"]["spec"]
    assert scaling["scaleTargetRef"]["name"] == KINDS["StatefulSet"]["metadata"]["name"]
    assert "replicas" not in INSTANCES
    assert scaling["maxReplicaCount"] == PARTITIONS
    assert scaling["minReplicaCount"] > config().num_standby_replicas
    asked = scaling["triggers"][0]["metadata"]
    assert (asked["topic"], asked["bootstrapServers"]) == (PAYMENTS.name, ENVIRONMENT["KS_ACTORS_BOOTSTRAP_SERVERS"])
    assert asked["offsetResetPolicy"] == str(config().auto_offset_reset)
    assert all(isinstance(value, str) for value in asked.values())
    monkeypatch.setenv("KS_ACTORS_LOG", "memory://")
    assert app().config.application_id == asked["consumerGroup"]


def test_labels_lead_to_the_pods() -> None:
    """Service, budget and monitor select what the StatefulSet makes, and more may not be away than standbys stand in for."""
    labels = INSTANCES["template"]["metadata"]["labels"]
    assert INSTANCES["selector"]["matchLabels"] == labels == KINDS["Service"]["spec"]["selector"]
    for kind in ("PodDisruptionBudget", "PodMonitor"):
        assert KINDS[kind]["spec"]["selector"]["matchLabels"] == labels
    assert INSTANCES["serviceName"] == KINDS["Service"]["metadata"]["name"]
    assert KINDS["PodDisruptionBudget"]["spec"]["maxUnavailable"] <= config().num_standby_replicas


def test_alerts_are_about_metrics_that_the_app_has() -> None:
    """A misspelt metric would never alert."""

    async def names(harness: AppHarness) -> set[str]:
        return set(re.findall(r"^# TYPE (\S+)", prometheus_text(harness.app).decode(), re.MULTILINE))

    (group,) = KINDS["PrometheusRule"]["spec"]["groups"]
    wanted = {name for rule in group["rules"] for name in re.findall(r"\b(?:ks_actors|kafka)_\w+", rule["expr"])}
    assert len(wanted) == len(group["rules"])
    assert wanted <= run_app(names, topology(), topics={PAYMENTS: 1, TOTALS: 1})
