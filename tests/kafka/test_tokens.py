"""Logins by OAUTHBEARER at a real broker, with tokens of an OpenID provider on this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from ks_actors import NotAuthorized, StreamsConfig
from ks_actors.config._open_log import open_configured
from ks_actors.log.kafka import KafkaLog, KafkaOptions, Token
from tests.kafka.broker import Broker, require_kafka
from tests.kafka.issuer import CLIENT, SECRET, Issuer
from tests.ks_actors.log.helpers import group_name, new_topic, values_of, write
from tests.waiting import soon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.extended, pytest.mark.heavy("a broker of its own")]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with Issuer() as issuer:
        yield issuer


@pytest.fixture(scope="module")
def broker(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    require_kafka()
    broker = Broker(
        tmp_path_factory.mktemp("tokens") / "broker", secure=True, settings=issuer.broker_settings() | {"connections.max.reauth.ms": "3600000"}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.url}/keys")
        broker.start()
    yield broker
    broker.kill()


@pytest.fixture(autouse=True)
def well(issuer: Issuer) -> None:
    issuer.life_s, issuer.broken = 3600.0, []
    issuer.forms.clear()


def log_in(broker: Broker, **options: Any) -> KafkaLog:
    return KafkaLog(broker.address("SASL_PLAINTEXT"), options=KafkaOptions(sasl_mechanism="OAUTHBEARER", **options))


def credentials(issuer: Issuer, **changes: Any) -> dict[str, Any]:
    return {
        "sasl_oauthbearer_token_endpoint_url": f"{issuer.url}/token",
        "sasl_oauthbearer_client_id": CLIENT,
        "sasl_oauthbearer_client_secret": SECRET,
        **changes,
    }


async def use(log: KafkaLog) -> None:
    """Write in a transaction, join a group, read."""
    async with log:
        (partition,) = await new_topic(log)
        transactional = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
        await write(transactional, partition, b"a")
        await transactional.abort()
        await write(await log.producer(client_id="p"), partition, b"b")
        assert await values_of(log, partition) == [b"b"]


async def test_a_client_logs_in_by_its_credentials(issuer: Issuer, broker: Broker) -> None:
    """All its connections share a token; the scope is asked for."""
    await use(log_in(broker, **credentials(issuer, sasl_oauthbearer_scope="kafka")))
    assert issuer.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]


async def test_tokens_come_from_files_and_functions(issuer: Issuer, broker: Broker, tmp_path: Path) -> None:
    """A file is read again for the next token; a function may be async, and send extensions."""
    (tmp_path / "token").write_text(f"{issuer.token()}\n", encoding="utf-8")
    await use(log_in(broker, sasl_oauthbearer_token_endpoint_url=f"file://{tmp_path}/token"))

    async def later() -> Token:
        await asyncio.sleep(0)
        return Token(issuer.token(), extensions={"logicalCluster": "lkc"})

    for provider in (issuer.token, later):
        await use(log_in(broker, sasl_token_provider=provider))


async def test_a_refusal_names_the_step_that_failed(issuer: Issuer, broker: Broker) -> None:
    """The token endpoint, or the broker; neither error has the secret or the token."""
    with pytest.raises(NotAuthorized, match=r"token endpoint http.* refuses the client: 401 .*invalid_client.*check sasl") as caught:
        await soon(log_in(broker, **credentials(issuer, sasl_oauthbearer_client_secret="wrong one")).start())  # noqa: S106 - nobody's
    assert "wrong one" not in str(caught.value)
    token = issuer.token(life_s=-100.0)
    with pytest.raises(NotAuthorized, match=r"refuses to authenticate the token from the token provider .* by OAUTHBEARER: .*check") as caught:
        await soon(log_in(broker, sasl_token_provider=lambda: token).start())
    assert token not in str(caught.value)


async def test_tokens_are_renewed_while_records_go_on(issuer: Issuer, broker: Broker) -> None:
    """A token lives for five seconds here: its end, and a failing endpoint meanwhile, lose no record and break no connection."""
    issuer.life_s, issuer.broken = 5.0, []
    async with log_in(broker, **credentials(issuer)) as log:
        (partition,) = await new_topic(log)
        producer = await log.producer(client_id="p")
        written: list[bytes] = []
        issuer.broken = [503]
        while len(issuer.forms) < 4:
            written.append(b"%d" % len(written))
            await soon(write(producer, partition, written[-1]))
        assert log._client.lost == 0
        assert await values_of(log, partition) == written


async def test_an_app_logs_in_by_kafkas_settings(issuer: Issuer, broker: Broker) -> None:
    """As Java's clients name them."""
    clients = "sasl.oauthbearer.client.credentials.client"
    settings = {
        "application.id": "app",
        "bootstrap.servers": broker.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": f"{issuer.url}/token",
        f"{clients}.id": CLIENT,
        f"{clients}.secret": SECRET,
    }
    log = open_configured(StreamsConfig.of(settings))
    assert isinstance(log, KafkaLog)
    await use(log)
