"""Logins by Kerberos at a real broker, with a key distribution center on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ks_actors import LogTimeout, NotAuthorized, StreamsConfig
from ks_actors.config._open_log import open_configured
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._connections import MAIN
from tests.kafka.broker import Broker, require_kafka, require_kerberos
from tests.kafka.kdc import Kdc, missing_kerberos
from tests.ks_actors.log.helpers import new_topic, values_of, write
from tests.waiting import soon

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.nightly, pytest.mark.heavy("a broker of its own")]


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    require_kerberos(missing_kerberos())
    with Kdc(tmp_path_factory.mktemp("kerberos") / "kdc") as kdc:
        yield kdc


@pytest.fixture(scope="module")
def broker(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    require_kafka()
    broker = Broker(
        tmp_path_factory.mktemp("kerberized") / "broker", secure=True, settings=kdc.broker_settings() | {"connections.max.reauth.ms": "3000"}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
        broker.start()
    yield broker
    broker.kill()


def log_in(broker: Broker, **options: Any) -> KafkaLog:
    options = {"sasl_kerberos_domain_name": "localhost", "api_timeout_ms": 10_000, **options}
    return KafkaLog(broker.address("SASL_PLAINTEXT"), options=KafkaOptions(sasl_mechanism="GSSAPI", **options))


async def test_an_app_logs_in_by_its_kerberos_ticket(kdc: Kdc, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keytab's tickets are fetched as needed; connections are renewed before the broker ends their sessions."""
    for name, value in kdc.variables().items():
        monkeypatch.setenv(name, value)
    settings = {
        "application.id": "app",
        "bootstrap.servers": broker.address("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.domain.name": "localhost",
    }
    log = open_configured(StreamsConfig.of(settings))
    assert isinstance(log, KafkaLog)
    async with log:
        (partition,) = await new_topic(log)
        producer = await log.producer(client_id="p")
        seen = set[Any]()
        written: list[bytes] = []
        while len(seen) < 3:
            written.append(b"%d" % len(written))
            await soon(write(producer, partition, written[-1]))
            await soon(log.describe_topics([partition.topic]))
            seen |= {found for (_, channel), found in log._client._connections._ready.items() if channel == MAIN}
        assert await values_of(log, partition) == written
        assert log._client.lost == 0


async def test_a_login_without_a_ticket_tells_how_to_get_one(kdc: Kdc, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once; so does one for a service that the realm does not have. A KDC that is away is waited for."""
    for name, value in kdc.variables(ticket=False).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotAuthorized, match=r"authentication failed: no Kerberos ticket for kafka@localhost: .*; run kinit, or name a keytab"):
        await soon(log_in(broker).start())
    for name, value in kdc.variables().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(NotAuthorized, match=r"no Kerberos ticket for other@localhost: .*; run kinit"):
        await soon(log_in(broker, sasl_kerberos_service_name="other").start())
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{kdc.directory}/cache-of-nobody")
    kdc.stop()
    with pytest.raises(LogTimeout, match=r"authentication failed: no Kerberos ticket for kafka@localhost: Cannot contact any KDC"):
        await log_in(broker, api_timeout_ms=3_000).start()
    kdc.start()
