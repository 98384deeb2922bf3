"""Members and whole apps behind TLS, SASL and rights."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.admin import CreateAclsRequest_v1  # type: ignore[import-untyped]

from ks_actors import InstanceState, NotAuthorized, ProductionFailed
from ks_actors.log import OffsetAndMetadata
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.wire._requests import Pinned
from tests.chaos.checks import AT_LEAST_ONCE, EXACTLY_ONCE
from tests.kafka.broker import PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, Broker, require_kafka
from tests.kafka.counting import Counting, counting, ended
from tests.ks_actors.log.helpers import group_name, join, new_topic, settle
from tests.waiting import soon, until

GUARANTEES = [EXACTLY_ONCE, AT_LEAST_ONCE]
WAYS = [("SSL", None), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512")]
TOPIC, GROUP, CLUSTER, TRANSACTION = 2, 3, 4, 5
ALL, READ, WRITE = 2, 3, 4
DENY, ALLOW = 2, 3
LITERAL, PREFIXED = 3, 4


@pytest.fixture(scope="module")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A secure Kafka of these tests alone: some of their rules are for any name, and would be in the way of others."""
    require_kafka()
    broker = Broker(tmp_path_factory.mktemp("secure") / "broker", secure=True)
    broker.start()
    yield broker
    broker.kill()


def settings(broker: Broker, protocol: str, mechanism: str | None, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    """Return the credentials of an app."""
    found = {
        "bootstrap_servers": broker.address(protocol),
        "security_protocol": protocol,
        "ssl_truststore_location": str(broker.certificate),
    }
    return found if mechanism is None else {**found, "sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}


async def rule(log: KafkaLog, permission: int, kind: int, name: str, operation: int = ALL, *, pattern: int = LITERAL) -> None:
    """Allow the stranger something, or deny it."""
    creation = (kind, name, pattern, f"User:{STRANGER}", "*", operation, permission)
    answer = await log._client.send_to_controller(Pinned(CreateAclsRequest_v1, [creation]), lambda _: ())
    ((code, message),) = [each[:2] for each in answer.creation_responses]
    assert code == 0, message


async def invite(here: Counting) -> None:
    """Allow the stranger all that an app needs."""
    for kind, name in (
        (TOPIC, here.source),
        (TOPIC, here.sink),
        (TOPIC, here.changelog),
        (GROUP, here.name),
        (TRANSACTION, "*"),
        (CLUSTER, "kafka-cluster"),
    ):
        await rule(here.log, ALLOW, kind, name)


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_members_share_partitions_behind_tls_and_passwords(secure_broker: Broker, protocol: str, mechanism: str | None) -> None:
    """Through joins, heartbeats, commits and leaves."""
    login: dict[str, Any] = {} if mechanism is None else {"sasl_mechanism": mechanism, "sasl_username": USER, "sasl_password": PASSWORD}
    options = KafkaOptions(tls=True, tls_ca_file=secure_broker.certificate, **login)
    async with KafkaLog(secure_broker.address(protocol), options=options) as log:
        partitions = await new_topic(log, 2)
        group = group_name()
        first, second = await join(log, group, partitions[0].topic), await join(log, group, partitions[0].topic)
        one, two = await settle(first, second)
        assert sorted(one.assignment.partitions + two.assignment.partitions) == partitions
        await first.commit(dict.fromkeys(one.assignment.partitions, OffsetAndMetadata(3)))
        await first.leave()
        (event,) = await settle(second)
        assert set(event.assignment.partitions) == set(partitions)
        assert await second.committed(one.assignment.partitions) == dict.fromkeys(one.assignment.partitions, OffsetAndMetadata(3))


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
async def test_apps_share_tasks_behind_tls_and_passwords(secure_broker: Broker, tmp_path: Path, protocol: str, mechanism: str | None) -> None:
    """Two members come to know each other, one leaves, the broker comes and goes: all is counted exactly once."""
    told = settings(secure_broker, protocol, mechanism)
    async with counting(secure_broker, EXACTLY_ONCE, tmp_path) as here, here.app("stays", own_log=True, **told) as stays:
        await here.feed()
        async with here.app("goes", own_log=True, **told) as goes:
            await here.through()
            await until(lambda: len(stays._metrics.tasks) == len(goes._metrics.tasks) == 1)
            await asyncio.to_thread(secure_broker.restart, kill=True)
            await here.through()
        await here.through()
        assert stays.state is InstanceState.RUNNING


@pytest.mark.parametrize("guarantee", GUARANTEES)
async def test_an_app_that_may_nothing_does_not_start(secure_broker: Broker, tmp_path: Path, guarantee: str) -> None:
    """It gets an error that names the forbidden part, as soon as it is found out."""
    told = settings(secure_broker, "SASL_SSL", "SCRAM-SHA-512", STRANGER, STRANGERS_PASSWORD)
    async with counting(secure_broker, guarantee, tmp_path) as here:
        app = here.app("app", own_log=True, **told)
        with pytest.raises(NotAuthorized, match=here.source):
            await soon(app.start())
        assert app.state is InstanceState.ERROR


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize(
    ("kind", "operation", "expected"), [("source", READ, NotAuthorized), ("sink", WRITE, ProductionFailed), ("changelog", WRITE, ProductionFailed)]
)
async def test_a_right_that_is_withdrawn_ends_the_app(
    secure_broker: Broker, tmp_path: Path, guarantee: str, kind: str, operation: int, expected: type[Exception]
) -> None:
    """With an error that names the topic; nothing unwritten is committed, and all is processed by an app that starts with the right."""
    told = settings(secure_broker, "SASL_SSL", "PLAIN", STRANGER, STRANGERS_PASSWORD)
    async with counting(secure_broker, guarantee, tmp_path) as here:
        await invite(here)
        app = here.app("app", own_log=True, **told)
        await soon(app.start())
        await here.through()
        topic = getattr(here, kind)
        ending = asyncio.create_task(ended(app))
        await rule(here.log, DENY, TOPIC, topic, operation)
        await here.feed()
        error = await ending
        assert isinstance(error, expected), repr(error)
        assert isinstance(error if expected is NotAuthorized else error.__cause__, NotAuthorized)
        assert topic in str(error)
        assert app.state is InstanceState.ERROR
        async with here.app("app"):
            await here.counted()
