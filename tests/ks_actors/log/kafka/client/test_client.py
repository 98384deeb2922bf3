"""The way to a cluster: found, lost, refused."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import socket
import ssl
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StreamsConfig
from ks_actors._errors import ConfigError, LogClosed, LogError, LogTimeout, NotAuthorized, UnknownTopicOrPartition
from ks_actors.batch._reading import LogReader, address_of
from ks_actors.config._open_log import opened
from ks_actors.log import NewTopic, TopicPartition
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client import TRANSACTION
from ks_actors.log.kafka.client._client import KafkaClient
from ks_actors.log.kafka.client._connections import Unavailable
from ks_actors.log.kafka.client._login import _warn_of_the_clear
from ks_actors.log.kafka.login._failures import certificate_remedy, tls_remedy
from ks_actors.log.kafka.wire import MetadataRequest
from ks_actors.log.kafka.wire._error_codes import error_of, name_of
from ks_actors.log.kafka.wire._requests import Pinned, init_producer_id
from tests.kafka.broker import PASSWORD, STRANGER, STRANGERS_PASSWORD, USER, Broker, free_ports
from tests.kafka.helpers import connect, start_in_vain, started_with
from tests.kafka.tampering import Tampering
from tests.ks_actors.log.helpers import UNCOMMITTED, group_name, new_topic, values_of, write
from tests.ks_actors.log.kafka.client.certificates import Authority
from tests.waiting import soon, until

QUICK = KafkaOptions(api_timeout_ms=500, connect_timeout_ms=200, request_timeout_ms=300)


def plain_client(broker: Broker, options: KafkaOptions | None = None) -> KafkaClient:
    return KafkaClient(broker.bootstrap, options or KafkaOptions(), client_id="test")


async def test_a_cluster_that_is_not_there_is_waited_for_until_the_deadline() -> None:
    """LogTimeout names the addresses and their errors at the deadline."""
    (port,) = free_ports(1)
    await start_in_vain(
        partial(started_with, f"127.0.0.1:{port}", QUICK),
        rf"bootstrap server at 127.0.0.1:{port} cannot be reached",
    )
    log = KafkaLog(f"127.0.0.1:{port}", options=QUICK)
    for _ in range(2):
        with pytest.raises(LogTimeout):
            await log.start()
    await log.close()


async def test_a_server_that_says_nothing_is_given_up() -> None:
    """A socket that takes connections and never answers holds nobody for ever."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        await start_in_vain(
            lambda api_timeout_ms: KafkaClient(
                f"127.0.0.1:{server.getsockname()[1]}", replace(QUICK, api_timeout_ms=api_timeout_ms), client_id="test"
            ),
            r"bootstrap server at 127\.0\.0\.1:\d+ .*version handshake failed: it did not end within 200 ms",
        )


@pytest.mark.parametrize("way", ["log", "configured log", "reader"])
async def test_a_start_that_fails_leaves_nothing_behind(way: str, caplog: pytest.LogCaptureFixture) -> None:
    """The connections that it was about to open are closed: no task goes on, and asyncio has nothing to complain of."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        config = StreamsConfig(application_id="a", bootstrap_servers=address, default_api_timeout_ms=500, socket_connection_setup_timeout_ms=60_000)

        def read() -> None:
            with LogReader(address_of(config)):
                pytest.fail("it has started")

        async def start() -> None:
            async with KafkaLog(address, options=QUICK) if way == "log" else opened(config):
                pytest.fail("it has started")

        before = asyncio.all_tasks()
        with pytest.raises(LogTimeout):
            await (asyncio.to_thread(read) if way == "reader" else start())
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def anonymous(protocol: int) -> ssl.SSLContext:
    """Return a client that talks TLS without certificates."""
    context = ssl.SSLContext(protocol)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH:@SECLEVEL=0")
    if protocol == ssl.PROTOCOL_TLS_CLIENT:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def test_a_server_that_does_not_say_goodbye_is_left_all_the_same() -> None:
    """A waiting caller gets an error when a client is closed while it connects, and no socket is left, even if the other side keeps TLS open."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen(server: socket.socket) -> bytes:
        accepted = anonymous(ssl.PROTOCOL_TLS_SERVER).wrap_socket(server.accept()[0], server_side=True)
        accepted.recv(1)
        loop.call_soon_threadsafe(asked.set)
        with socket.socket(fileno=accepted.detach()) as raw:
            raw.settimeout(10)
            try:
                while found := raw.recv(1000):
                    last = found
            except ConnectionResetError:
                found = b""
            assert last
            return found

    with socket.create_server(("127.0.0.1", 0)) as server:
        listening = asyncio.create_task(asyncio.to_thread(listen, server))
        client = KafkaClient(f"127.0.0.1:{server.getsockname()[1]}", KafkaOptions(tls=anonymous(ssl.PROTOCOL_TLS_CLIENT)), client_id="test")
        starting = asyncio.create_task(client.start())
        await soon(asked.wait())
        await client.close()
        with pytest.raises(LogClosed):
            await soon(starting)
        assert await listening == b""


async def test_one_server_that_answers_is_enough(kafka_broker: Broker) -> None:
    """The others of the list may be gone."""
    (port,) = free_ports(1)
    async with KafkaLog(f"127.0.0.1:{port},{kafka_broker.bootstrap}") as log:
        assert "nowhere" not in await log.describe_topics()


async def test_nothing_goes_on_after_close(kafka_broker: Broker) -> None:
    """Calls raise LogClosed, also those that wait; closing twice is closing once; a log is started only once."""
    log = await connect(kafka_broker)
    with pytest.raises(LogError, match="started only once"):
        await log.start()
    await log.close()
    await log.close()
    with pytest.raises(LogClosed):
        await log.describe_topics()
    with pytest.raises(LogError, match="closed"):
        await log.start()
    client = plain_client(kafka_broker)
    await client.start()
    waiting = asyncio.ensure_future(client.retry("to wait", lambda: client.send(77, MetadataRequest([]))))
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(LogClosed):
        await soon(waiting)


async def test_looking_for_a_topic_does_not_create_it(kafka_broker: Broker) -> None:
    """Neither asking for its leader nor for its offsets."""
    client = plain_client(kafka_broker)
    await client.start()
    with pytest.raises(UnknownTopicOrPartition, match="never-0 does not exist"):
        await client.retry("to find it", lambda: client.find_leader(TopicPartition("never", 0)))
    assert await client.metadata(["never"]) == {}
    assert client.known("never") is None
    await client.close()


async def test_a_topic_that_nobody_could_be_asked_for_is_not_missing(kafka_broker: Broker) -> None:
    """As long as no broker has answered it may be there."""
    client = plain_client(kafka_broker)
    await client.start()
    strange = TopicPartition(f"topic-{group_name()}", 0)
    assert isinstance(client.why_no_leader(strange), Unavailable)
    await client.look_for([strange.topic])
    assert isinstance(client.why_no_leader(strange), UnknownTopicOrPartition)
    await client.close()


async def test_a_broker_that_restarts_is_waited_for(own_broker: Broker) -> None:
    """Calls that begin while it is away end well; so do those that use connections from before."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    producer = await log.producer(client_id="p")
    await write(producer, partition, b"a")
    own_broker.kill()
    calls = asyncio.gather(log.describe_topics(), write(producer, partition, b"b"), log.producer(client_id="q"))
    await asyncio.to_thread(own_broker.start)
    described, behind, other = await soon(calls)
    assert partition.topic in described
    assert behind == 2
    assert await write(other, partition, b"c") == 3
    assert await values_of(log, partition) == [b"a", b"b", b"c"]
    await log.close()


async def test_a_broker_that_stands_still_holds_nobody_for_ever(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """LogTimeout at the deadline of the call; when it goes on, so do calls."""
    log = await connect(own_broker)
    (partition,) = await new_topic(log)
    own_broker.pause()
    with monkeypatch.context() as patch:
        patch.setattr(log._client, "options", QUICK)
        with pytest.raises(LogTimeout, match=r"within 500 ms"):
            await soon(log.describe_topics())
    own_broker.resume()
    assert partition.topic in await soon(log.describe_topics())
    await log.close()


async def test_coordinators_are_found_and_found_again(own_broker: Broker) -> None:
    """The client finds them after a restart too; each producer id has a newer epoch than the one before."""
    client = plain_client(own_broker)
    await client.start()

    async def begin() -> Any:
        return await client.send_to_coordinator(TRANSACTION, "tx", init_producer_id("tx", 1000), lambda answer: [answer.error_code])

    first = await begin()
    waiting = asyncio.ensure_future(begin())
    await asyncio.to_thread(lambda: own_broker.restart(kill=True))
    second = await soon(waiting)
    third = await begin()
    assert first.producer_id == third.producer_id
    assert first.producer_epoch < second.producer_epoch < third.producer_epoch
    await client.close()


async def test_several_lookups_of_leaders_share_one_request(kafka_broker: Broker) -> None:
    """Each gets the topics that it asked for, too; a closed client serves nobody."""
    log = await connect(kafka_broker)
    partitions = [(await new_topic(log))[0] for _ in range(3)]
    client = plain_client(kafka_broker)
    await client.start()
    assert len(set(await asyncio.gather(*map(client.find_leader, partitions)))) == 1
    waiting = asyncio.ensure_future(client.refresh())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(LogClosed):
        await soon(waiting)
    await log.close()


async def test_a_leader_is_found_though_others_are_being_looked_up(kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request that is under way has not asked for this topic: another one does."""
    log = await connect(kafka_broker)
    (partition,) = await new_topic(log)
    client = plain_client(kafka_broker)
    await client.start()
    asked = Tampering(monkeypatch).asked
    under_way = asyncio.ensure_future(client.refresh())
    await until(lambda: asked)
    assert await client.find_leader(partition) == 1
    await under_way
    await client.close()
    await log.close()


async def test_a_broker_that_is_not_of_the_cluster_cannot_be_asked(kafka_broker: Broker) -> None:
    """That is worth another try: it may come back."""
    client = plain_client(kafka_broker)
    await client.start()
    with pytest.raises(Unavailable, match="broker 77"):
        await client.send(77, MetadataRequest([]))
    await client.close()


# --- TLS, SASL, rights ----------------------------------------------------------------------------------------------------


def login(broker: Broker, protocol: str, **changes: Any) -> KafkaLog:
    settings: dict[str, Any] = {"api_timeout_ms": 15_000}
    if "SSL" in protocol.split("_"):
        settings |= {"tls": True, "tls_ca_file": broker.certificate}
    if "SASL" in protocol:
        settings |= {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER, "sasl_password": PASSWORD}
    return KafkaLog(broker.address(protocol), options=KafkaOptions(**{**settings, **changes}))


@pytest.mark.everyday
@pytest.mark.parametrize(
    ("protocol", "changes"),
    [
        ("SASL_SSL", {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("SASL_SSL", {"sasl_mechanism": "PLAIN"}),
        ("SASL_PLAINTEXT", {"sasl_mechanism": "PLAIN"}),
        ("SASL_PLAINTEXT", {"sasl_mechanism": "SCRAM-SHA-256"}),
        ("SSL", {}),
    ],
)
async def test_records_go_through_secured_listeners(
    secure_broker: Broker, protocol: str, changes: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """By TLS, by user and password, and by both; no secret gets into the log or a repr, and a password in the clear is warned of once."""
    caplog.set_level(logging.DEBUG)
    _warn_of_the_clear.cache_clear()
    log = login(secure_broker, protocol, **changes)
    async with log:
        (partition,) = await new_topic(log)
        await write(await log.producer(client_id="p"), partition, b"a")
        transactional = await log.transactional_producer(group_name(), client_id="t", timeout_ms=10_000)
        await write(transactional, partition, b"b")
        await transactional.abort()
        assert await values_of(log, partition) == [b"a"]
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(log._options)
    warned = [record for record in caplog.records if "in the clear" in record.getMessage()]
    assert len(warned) == ((protocol, changes["sasl_mechanism"]) == ("SASL_PLAINTEXT", "PLAIN") if changes else 0)
    assert caplog.text


@pytest.mark.everyday
@pytest.mark.parametrize(
    ("protocol", "changes", "said"),
    [
        ("SASL_SSL", {"sasl_password": "wrong"}, "refuses to authenticate 'alice' by SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", {"sasl_mechanism": "PLAIN", "sasl_username": "nobody"}, "refuses to authenticate 'nobody' by PLAIN"),
        ("SSL", {"tls_ca_file": None}, "not trusted"),
    ],
)
async def test_a_refused_login_is_an_error_at_once(secure_broker: Broker, protocol: str, changes: dict[str, Any], said: str) -> None:
    """NotAuthorized, and no waiting for the deadline: it would not get better."""
    log = login(secure_broker, protocol, **changes)
    with pytest.raises(NotAuthorized, match=said):
        await soon(log.start())
    await log.close()


@pytest.mark.everyday
async def test_the_wrong_protocol_is_told(secure_broker: Broker) -> None:
    """By deadline, as a broker that starts may look the same."""
    wrong = KafkaLog(secure_broker.bootstrap, options=KafkaOptions(tls=True, tls_ca_file=secure_broker.certificate, api_timeout_ms=4_000))
    with pytest.raises(LogTimeout, match=r"TLS|SSL"):
        await wrong.start()
    await wrong.close()


@pytest.mark.everyday
async def test_forbidden_actions_are_named(secure_broker: Broker) -> None:
    """NotAuthorized names the topic or the transactional id, and nothing hangs."""
    owner = login(secure_broker, "SASL_SSL")
    stranger = login(secure_broker, "SASL_SSL", sasl_username=STRANGER, sasl_password=STRANGERS_PASSWORD)
    async with owner, stranger:
        (partition,) = await new_topic(owner)
        attempts: list[Callable[[], Any]] = [
            lambda: stranger.end_offsets([partition], UNCOMMITTED),
            lambda: stranger.producer(client_id="p"),
            lambda: stranger.delete_topics([partition.topic]),
            lambda: stranger.create_topics([NewTopic("not-mine", 1)]),
            lambda: stranger.transactional_producer("not-mine", client_id="t", timeout_ms=1000),
        ]
        for attempt in attempts:
            with pytest.raises(NotAuthorized):
                await soon(attempt())
        assert await stranger.describe_topics() == {}


# --- without a broker -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sasl_mechanism": "PLAIN"}, "belong together"),
        ({"sasl_password": "x"}, "belong together"),
        ({"sasl_mechanism": "GSSAPI", "sasl_username": "a", "sasl_password": "b"}, "GSSAPI takes the Kerberos ticket"),
        ({"sasl_mechanism": "NTLM", "sasl_username": "a", "sasl_password": "b"}, "NTLM"),
        ({"compression": "rar"}, "rar"),
        ({"tls_ca_file": "x"}, "tls=True"),
        ({"max_in_flight": 6}, "1 to 5"),
        ({"request_timeout_ms": 0}, "positive"),
        ({"reconnect_backoff_ms": -1}, "reconnect_backoff_ms is -1: give 0 or more"),
        ({"linger_ms": -1}, "linger_ms is -1: give 0 or more"),
    ],
)
def test_options_that_contradict_themselves_are_refused(settings: dict[str, Any], said: str) -> None:
    """ConfigError says which."""
    with pytest.raises(ConfigError, match=said):
        KafkaOptions(**settings)


def test_a_context_of_ones_own_leaves_no_room_for_files(tmp_path: Path) -> None:
    """Options for files are refused beside a context, and so are files that cannot be read."""
    context = ssl.create_default_context()
    assert KafkaOptions(tls=context).ssl_context() is context
    with pytest.raises(ConfigError, match="SSLContext"):
        KafkaOptions(tls=context, tls_ca_file="x")
    with pytest.raises(ConfigError, match="TLS keys"):
        KafkaOptions(tls=True, tls_ca_file=tmp_path / "nothing").ssl_context()
    assert KafkaOptions().ssl_context() is None


def test_errors_have_the_answer_of_kafka() -> None:
    """The code and its name, the failed action, and the remedy."""
    error = error_of(29, "failed to read topic a", "no ACL")
    assert isinstance(error, NotAuthorized)
    assert str(error) == (
        "failed to read topic a: Kafka answered TOPIC_AUTHORIZATION_FAILED (29): no ACL; grant this principal the right to the topic "
        "(ACLs: Describe, Read, Write, Create)"
    )
    assert name_of(-1) == "UNKNOWN_SERVER_ERROR"
    assert name_of(120) == "TRANSACTION_ABORTABLE"
    assert name_of(999) == "error 999"
    assert type(error_of(999, "x")) is LogError


def test_a_broker_that_is_too_old_is_told() -> None:
    """A broker that is too old is told by the request that it does not have."""
    request = init_producer_id("a", 1)
    assert isinstance(request, Pinned)
    with pytest.raises(LogError, match="needs InitProducerIdRequest_v4, and the broker has only versions 0 to 1"):
        request.prepare({22: (0, 1), 65: (0, 0)})
    with pytest.raises(LogError, match="does not have it"):
        request.prepare({65: (0, 0)})
    with pytest.raises(LogError, match=r"exactly-once needs Kafka 3\.0 or newer, .*: set processing_guarantee to at_least_once"):
        request.prepare({22: (0, 4)})
    assert isinstance(init_producer_id(None, 1).prepare({22: (0, 4)}).API_KEY, int)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (9, "renewed"),
        (10, "renewed"),
        (62, r"tls_check_hostname (ssl_endpoint_identification_algorithm)"),
        (64, r"tls_check_hostname (ssl_endpoint_identification_algorithm)"),
        (20, "set tls_ca_file (ssl_truststore_location)"),
    ],
)
def test_an_error_about_a_certificate_names_the_remedy(code: int, remedy: str) -> None:
    """Another authority does not help against a certificate that has expired, or is for another name."""
    assert remedy in certificate_remedy(code)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_a_refused_client_certificate_is_told_by_both_names_of_its_setting(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """Most users set Kafka's names, and some the fields of KafkaOptions."""
    authority, stranger = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    context = authority.listener()
    context.maximum_version = version
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
    for certificate in (None, stranger.put(tmp_path / "client.pem")):
        options = KafkaOptions(tls=True, tls_ca_file=authority.certificate, tls_cert_file=certificate)
        await start_in_vain(
            partial(started_with, f"127.0.0.1:{server.sockets[0].getsockname()[1]}", options),
            r"(TLS|version) handshake failed: .*; .*the broker may want a client certificate: check tls_cert_file \(ssl_keystore_location\)",
        )
    server.close()


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("SSLV3_ALERT_BAD_CERTIFICATE", "check tls_cert_file (ssl_keystore_location)"),
        ("TLSV1_ALERT_UNKNOWN_CA", "check tls_cert_file (ssl_keystore_location)"),
        ("WRONG_VERSION_NUMBER", "use the port of its TLS listener, or check tls (security_protocol)"),
    ],
)
def test_an_error_of_tls_names_the_remedy(reason: str, remedy: str) -> None:
    """With TLS 1.2 a broker tells that it refuses the client's certificate; the remedy is not another protocol."""
    error = ssl.SSLError(1, reason)
    error.reason = reason
    assert remedy in tls_remedy(error)


def test_files_that_cannot_be_loaded_are_told_by_both_names_of_their_settings(tmp_path: Path) -> None:
    """With the files, of which OpenSSL says nothing; a key whose password is missing asks no terminal for it."""
    authority = Authority(tmp_path / "ours")
    certificate, key = authority.issue()
    (tmp_path / "client.pem").write_bytes(certificate)
    authority.encrypt(key, tmp_path / "client.key", "hunter2")
    files: dict[str, Any] = {"tls_cert_file": tmp_path / "client.pem", "tls_key_file": tmp_path / "client.key"}
    settings = (
        f"tls_cert_file (ssl_keystore_location), which is {tmp_path}/client.pem, tls_key_file (ssl_key_location), "
        f"which is {tmp_path}/client.key, and tls_key_password (ssl_key_password)"
    )
    with pytest.raises(ConfigError, match=f"cannot be loaded: .*; check {re.escape(settings)}"):
        KafkaOptions(tls=True, tls_ca_file=authority.certificate, **files).ssl_context()
    password: dict[str, Any] = {"tls_key_password": "hunter2"}
    assert KafkaOptions(tls=True, tls_ca_file=authority.certificate, **files, **password).ssl_context() is not None
    with pytest.raises(ConfigError, match=re.escape(f"check tls_ca_file (ssl_truststore_location), which is {tmp_path}/none")):
        KafkaOptions(tls=True, tls_ca_file=tmp_path / "none").ssl_context()
