"""A login that fails tells its step, in `ks-actors check` and in the error of a start."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.protocol.admin import DeleteAclsRequest_v1  # type: ignore[import-untyped]
from click.testing import CliRunner

from ks_actors import App, LogTimeout, NotAuthorized, StreamsConfig
from ks_actors.cli._main import ks_actors
from ks_actors.log import NewTopic
from ks_actors.log.kafka.wire._requests import Pinned
from tests.kafka.broker import PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, Broker, free_ports
from tests.kafka.helpers import connect
from tests.kafka.test_secured_apps import ALLOW, GROUP, PREFIXED, READ, TOPIC, rule
from tests.ks_actors.cli.jobs import shop
from tests.ks_actors.log.helpers import group_name
from tests.waiting import soon

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.log.kafka import KafkaLog

SHOP = "tests.ks_actors.cli.jobs:shop"
LOGIN = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER, "sasl_password": PASSWORD}


def settings(directory: Path, **changes: Any) -> dict[str, Any]:
    return {
        "application_id": f"shop-{group_name()}",
        "state_dir": str(directory / "state"),
        "default_key_serde": "ks_actors.serdes.STRING",
        "default_value_serde": "ks_actors.serdes.STRING",
        **changes,
    }


def checked(told: dict[str, Any], *arguments: str) -> list[dict[str, str]]:
    """Return the failures of the check."""
    result = CliRunner().invoke(ks_actors, ["check", SHOP, "--json", *arguments, *(f"-c{name}={value}" for name, value in told.items())])
    assert result.exit_code == 1, result.output
    return [row for row in json.loads(result.output) if row["result"] == "failed"]


@pytest.mark.parametrize(
    ("listener", "protocol", "changes", "reason"),
    [
        ("nohost.invalid:9092", "PLAINTEXT", {}, "name resolution failed: "),
        ("127.0.0.1:{free}", "PLAINTEXT", {}, "TCP connect failed: Connection refused; check that a broker listens there"),
        ("PLAINTEXT", "SSL", {}, "TLS handshake failed: the broker closed the connection; its listener may be without TLS"),
        ("SASL_SSL", "SASL_PLAINTEXT", LOGIN, "version handshake failed: .*: its listener has TLS: set security_protocol to SSL or SASL_SSL"),
        ("SASL_SSL", "SSL", {}, "first request failed: .* was closed; its listener may want a login: check security_protocol"),
    ],
)
async def test_a_broker_that_cannot_be_talked_with_is_told_by_the_step_that_failed(
    secure_broker: Broker, tmp_path: Path, listener: str, protocol: str, changes: dict[str, str], reason: str
) -> None:
    """Both retry, as a broker that starts may look the same, and keep the reason."""
    address = listener.format(free=free_ports(1)[0]) if ":" in listener else secure_broker.address(listener)
    trust = {"ssl_truststore_location": str(secure_broker.certificate)} if protocol.endswith("SSL") else {}
    told = settings(tmp_path, bootstrap_servers=address, security_protocol=protocol, **trust, **changes)
    expected = re.compile(rf"LogTimeout: failed to find Kafka .*bootstrap server at {address} cannot be reached: {reason}")
    for timeout_ms in (1_000, 4_000, 16_000):  # a busy machine needs more time for the step that fails
        (failed,) = await asyncio.to_thread(checked, told, f"--timeout-ms={timeout_ms}")
        with pytest.raises(LogTimeout) as caught:
            await soon(App(shop(), StreamsConfig(**told, default_api_timeout_ms=timeout_ms * 9 // 10, task_timeout_ms=1)).start())
        details = [failed["detail"], f"LogTimeout: {caught.value}"]
        if all(map(expected.match, details)):
            break
    assert all(map(expected.match, details)), details
    assert details[0] == details[1]


@pytest.mark.parametrize(
    ("listener", "protocol", "changes", "reason"),
    [
        (
            "SSL",
            "SSL",
            {"ssl_truststore_location": None},
            "TLS handshake failed: the certificate is not trusted: self-signed certificate; set tls_ca",
        ),
        ("SASL_SSL", "SASL_SSL", {**LOGIN, "sasl_password": "wrong"}, "authentication failed: it refuses to authenticate 'alice' by SCRAM-SHA-256: "),
        (
            "SASL_PLAINTEXT",
            "SASL_PLAINTEXT",
            {"sasl_mechanism": "OAUTHBEARER", "sasl_login_callback_handler": "tests.kafka.test_login_steps.no_token"},
            "SASL handshake failed: it does not take OAUTHBEARER, but (PLAIN|SCRAM)",
        ),
        (
            "PLAINTEXT",
            "SASL_PLAINTEXT",
            LOGIN,
            "SASL handshake failed: its listener takes no login: use the port of one that does, or set security_p",
        ),
    ],
)
async def test_a_refusal_is_told_at_once_by_its_step(
    secure_broker: Broker, tmp_path: Path, listener: str, protocol: str, changes: dict[str, Any], reason: str
) -> None:
    """A retry would not help."""
    address = secure_broker.address(listener)
    trust = {"ssl_truststore_location": str(secure_broker.certificate)} if protocol.endswith("SSL") else {}
    told = {**settings(tmp_path, bootstrap_servers=address, security_protocol=protocol), **trust, **changes}
    told = {name: value for name, value in told.items() if value is not None}
    (failed,) = await asyncio.to_thread(checked, told)
    assert failed["check"] == "broker"
    with pytest.raises(NotAuthorized, match=f"^bootstrap server at {address} cannot be reached: {reason}") as caught:
        await soon(App(shop(), StreamsConfig(**told)).start())
    assert failed["detail"] == f"NotAuthorized: {caught.value}"
    assert "wrong" not in failed["detail"]


async def withdraw(log: KafkaLog) -> None:
    """Withdraw all rules about the stranger, whom tests share with their broker."""
    every = 1
    request = Pinned(DeleteAclsRequest_v1, [(every, None, every, f"User:{STRANGER}", None, every, every)])
    await log._client.send_to_controller(request, lambda _: ())


def no_token() -> str:
    return "nobody's"


async def test_a_missing_right_is_told_with_its_resource(secure_broker: Broker, tmp_path: Path) -> None:
    """Topics of the app, internal ones, the group, and transactional ids: rights are granted one after the other."""
    told = settings(
        tmp_path,
        bootstrap_servers=secure_broker.address("SASL_PLAINTEXT"),
        security_protocol="SASL_PLAINTEXT",
        processing_guarantee="exactly_once_v2",
        **{**LOGIN, "sasl_username": STRANGER, "sasl_password": STRANGERS_PASSWORD},
    )
    name = told["application_id"]
    log = await connect(secure_broker)
    await withdraw(log)
    await log.create_topics([NewTopic(topic, 1) for topic in ("orders", "totals") if topic not in await log.describe_topics()])
    ends = time.monotonic() + 60

    async def is_told(check: str, reason: str) -> None:
        """Wait until brokers have heard of the last rule."""
        while (failed := (await asyncio.to_thread(checked, told))[-1])["check"] != check or not re.search(reason, failed["detail"]):
            assert time.monotonic() < ends, failed

    try:
        forbidden = "Kafka answered {} .*; grant this principal the right to the {} "
        await is_told("topics", f"failed to look up topic orders: {forbidden.format('TOPIC_AUTHORIZATION_FAILED', 'topic')}")
        for topic in ("orders", "totals"):
            await rule(log, ALLOW, TOPIC, topic)
        await is_told("topics", f"topic {name}-counts-changelog: {forbidden.format('TOPIC_AUTHORIZATION_FAILED', 'topic')}")
        await rule(log, ALLOW, TOPIC, name, pattern=PREFIXED)
        await is_told("group", f"group {name}: {forbidden.format('GROUP_AUTHORIZATION_FAILED', 'group')}")
        await rule(log, ALLOW, GROUP, name, READ)
        await is_told("permissions", f"not permitted: WRITE on transactional ids {name}-\\*$")
    finally:
        await withdraw(log)
        await log.close()
