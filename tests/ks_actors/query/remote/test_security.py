"""Refused callers of queries across instances: without token, TLS or a valid certificate, and with wrong requests."""

from __future__ import annotations

import asyncio
import logging
import pickle
import ssl
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import h11
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ks_actors import App, ConfigError, QueryFailed, StreamsConfig, UnknownStore
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.query import Client, Endpoint, FailureReason
from ks_actors.query.remote import _caller, _client, _server
from ks_actors.query.remote._messages import MOST_REQUEST_BYTES, Ask, Frames, Refused, encode
from ks_actors.serdes import LONG, STRING
from tests.ks_actors.query.remote.test_everywhere import TOKEN, instances

ASK = Ask("counts", "get", [0], b"k1", [], committed=False)


def certificate(directory: Path, *, days: int = 10) -> Path:
    """Write a certificate of this machine with its key, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "here")])
    now = datetime.now(UTC)
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign", "encipher_only", "decipher_only"), False
    )
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - timedelta(30), now + timedelta(days))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_cert_sign=True, **usage), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    path = directory / f"{days}.pem"
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(serialization.Encoding.PEM, *plain))
    return path


def address(app: App) -> str:
    return app._reach.address()


async def asked(at: str, head: dict[str, str], body: bytes = b"", *, method: str = "POST", path: str = "/query/v2") -> tuple[int, bytes]:
    """Return the status and body of an answer to a request as these bytes."""
    host, _, port = at.partition("://")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    http = h11.Connection(h11.CLIENT)
    headers = {"host": f"{host}:{port}", "content-length": str(len(body)), "content-type": "application/msgpack", **head}
    writer.write(http.send(h11.Request(method=method, target=path, headers=list(headers.items()))) or b"")
    with suppress(ConnectionError):
        writer.write(http.send(h11.Data(body)) or b"")
        await writer.drain()
    status, found = 0, b""
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(1 << 16))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            found += event.data
        else:
            writer.close()
            return status, found


async def test_tls_protects_queries_between_instances_and_of_clients(tmp_path: Path) -> None:
    """With one certificate that all trust, each instance and a client read all rows."""
    pem = certificate(tmp_path)
    async with instances(tmp_path, 2, query_ssl_certificate_location=pem, query_ssl_ca_location=pem) as apps:
        assert address(apps[0]).startswith("https://127.0.0.1:")
        expected = [(f"k{number}", 10) for number in range(40)]
        assert sorted(await apps[0].store("counts", everywhere=True).all()) == sorted(expected)
        async with Client([address(apps[0])], token=TOKEN, ssl=ssl.create_default_context(cafile=pem)) as client:
            assert sorted(await client.store("counts", STRING, LONG).all()) == sorted(expected)
        # By the system's authorities, of which this certificate is not.
        with pytest.raises(ConfigError, match=r"certificate of https://127.0.0.1:.* is not accepted"):
            await Client([address(apps[0])], token=TOKEN).__aenter__()
        plain = address(apps[0]).replace("https", "http")
        with pytest.raises(QueryFailed, match="does not answer") as caught:
            await Client([plain], token=TOKEN, timeout_ms=200).__aenter__()
        assert caught.value.reason is FailureReason.NOT_PRESENT


async def test_an_expired_certificate_is_refused_at_once(tmp_path: Path) -> None:
    """By clients and by other instances; the error says so."""
    pem = certificate(tmp_path, days=-1)
    async with instances(tmp_path, 2, query_ssl_certificate_location=pem, query_ssl_ca_location=pem) as apps:
        with pytest.raises(ConfigError, match="not accepted: certificate has expired"):
            await apps[0].store("counts", everywhere=True).all()
        with pytest.raises(ConfigError, match="not accepted: certificate has expired"):
            await Client([address(apps[0])], token=TOKEN, ssl=ssl.create_default_context(cafile=pem)).__aenter__()


async def test_a_wrong_token_is_refused_and_nobody_shows_one(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither the right nor the wrong one is in an error, a log or a repr, and no row is in the answer."""
    caplog.set_level(logging.DEBUG)
    wrong = "a guess of a stranger"
    async with instances(tmp_path, 1) as (app,):
        said = []
        for token in (wrong, None):
            with pytest.raises(ConfigError, match="the token is not that of the app's queries") as caught:
                await Client([address(app)], token=token).__aenter__()
            said.append(repr(caught.value))
        for head in ({}, {"authorization": f"Bearer {wrong}"}, {"authorization": TOKEN}):
            status, body = await asked(address(app), head, encode(ASK))
            assert status == 401
            assert list(Frames().feed(body)) == [Refused("ConfigError", "the token is not that of the app's queries")]
            assert (await asked(address(app), head, method="GET", path="/query/v2/endpoints"))[0] == 401
        async with Client([address(app)], token=TOKEN) as client:
            said += [repr(client), repr(client._caller), repr(app.config)]
    told = caplog.text + "".join(said)
    assert "wrong token, or none" in told
    assert TOKEN not in told
    assert wrong not in told


async def test_the_token_is_not_sent_where_others_could_read_it() -> None:
    """Without TLS it stays on this machine, unless it is allowed."""
    with pytest.raises(ConfigError, match="has no TLS: the token would be readable"):
        await Client(["http://192.0.2.1:7070"], token=TOKEN, timeout_ms=50).__aenter__()


async def test_an_instance_without_a_token_answers_only_requests_for_this_machine(tmp_path: Path) -> None:
    """A page in a browser on this machine may send requests for a name of its own (DNS rebinding)."""
    async with instances(tmp_path, 1, query_token=None) as (app,):
        assert (await asked(address(app), {}, encode(ASK)))[0] == 200
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "192.0.2.1:7070"):
            assert (await asked(address(app), {"host": host}, encode(ASK)))[0] == 401
        assert (await asked(address(app), {"content-type": "text/plain"}, encode(ASK)))[0] == 404


async def test_query_insecure_serves_other_machines_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They have names of their own for this machine, so the name does not count there."""
    async with instances(tmp_path, 1, query_token=None) as (app,):
        monkeypatch.setattr(Endpoint, "is_loopback", False)
        assert (await asked(address(app), {"host": "192.0.2.1:7070"}, encode(ASK)))[0] == 200


async def test_wrong_requests_are_refused(tmp_path: Path) -> None:
    """Data is never executed, nothing can be changed, and no request is larger than a mebibyte."""
    token = {"authorization": f"Bearer {TOKEN}"}
    async with instances(tmp_path, 1) as (app,):
        at = address(app)
        assert (await asked(at, token, pickle.dumps(ASK.store)))[0] == 400
        assert (await asked(at, token, b"\xc1"))[0] == 400
        assert (await asked(at, token, b"x" * (MOST_REQUEST_BYTES + 1)))[0] == 413
        for method, path in (("PUT", "/query/v2"), ("DELETE", "/query/v2"), ("POST", "/"), ("GET", "/query/v2"), ("POST", "/query/v2/endpoints")):
            assert (await asked(at, token, encode(ASK), method=method, path=path))[0] == 404

        async def refused(ask: Ask) -> Refused:
            status, body = await asked(at, token, encode(ask))
            (found,) = Frames().feed(body)
            assert status == 200
            assert isinstance(found, Refused)
            return found

        for name in ("put", "__init__", "store", "all", "fetch", "scan"):
            assert (await refused(Ask("counts", name, [0], b"k1", [], committed=False))).error == "ConfigError"
        assert (await refused(Ask("by-time", "get", [0], b"k1", [None], committed=False))).error == "ConfigError"
        assert (await refused(Ask("counts", "get", [], b"k1", [], committed=False))).error == "ConfigError"
        assert (await refused(Ask("by-time", "count", [0], None, [], committed=False))).error == "ConfigError"
        assert (await refused(Ask("none", "get", [0], b"k1", [], committed=False))).error == "UnknownStore"
        assert (await refused(Ask("counts", "count", [0, 0], None, [], committed=False))).error == "ConfigError"
        assert (await refused(Ask("counts", "get", [9], b"k1", [], committed=False))).reason == "DOES_NOT_EXIST"
        assert (await refused(Ask("counts", "get", [0], b"k1", [], committed=False, of=5))).reason == "NOT_PRESENT"


async def test_callers_that_say_nothing_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold no connection for longer than ten seconds, and one too many is told so."""
    monkeypatch.setattr(_server, "_REQUEST_SECONDS", 0.05)
    monkeypatch.setattr(_server, "_CONNECTIONS", 1)
    async with instances(tmp_path, 1) as (app,):
        host, _, port = address(app).partition("://")[2].rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert (await asked(address(app), {}))[0] == 503
        assert await reader.read() == b""
        writer.close()


async def test_a_client_waits_no_longer_than_its_timeout(tmp_path: Path) -> None:
    """Also for addresses that take a connection and say nothing."""
    done = asyncio.Event()

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await done.wait()
        writer.close()

    began = asyncio.get_running_loop().time()
    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(QueryFailed, match="no instance answers: the deadline of 50 ms is over"):
            await Client([f"http://127.0.0.1:{port}"], token=TOKEN, timeout_ms=50).__aenter__()
        done.set()
    assert asyncio.get_running_loop().time() - began < _client._ASK_SECONDS


async def test_an_instance_that_refuses_does_not_hide_another_one(tmp_path: Path) -> None:
    """One with an old token or certificate, for one."""
    async with (
        instances(tmp_path / "a", 1, query_token=TOKEN[1:]) as (other,),
        instances(tmp_path / "b", 1) as (app,),
        Client([address(other), address(app)], token=TOKEN) as client,
    ):
        client._turn = 0
        for _ in range(2):
            client._map = None
            assert await client._look() is None


async def test_idle_connections_are_closed_after_a_minute(tmp_path: Path) -> None:
    """Also those to instances that nobody asks again."""
    async with instances(tmp_path, 2) as apps, Client([address(app) for app in apps], token=TOKEN) as client:
        await client._caller.map(Endpoint.of(address(apps[0])))
        await client._caller.map(Endpoint.of(address(apps[1])))
        (old,) = client._caller._idle[Endpoint.of(address(apps[0]))]
        old.used_at -= 61
        client._caller._swept_at -= 61
        await client._caller.map(Endpoint.of(address(apps[1])))
        assert list(client._caller._idle) == [Endpoint.of(address(apps[1]))]
        assert old.writer.is_closing()


async def test_an_answer_that_is_none_of_this_app_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither another HTTP server nor something else at the address keeps a client waiting beyond its deadline."""
    monkeypatch.setattr(_caller, "_CONNECT_SECONDS", 0.1)
    for answer in (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", b"HTTP/1.1 302 Found\r\nlocation: http://x\r\n\r\n", b"SSH-2.0\r\n", b""):

        async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = answer) -> None:
            writer.write(said)
            writer.close()

        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(QueryFailed, match="no instance answers"):
                await Client([f"http://127.0.0.1:{port}"], token=TOKEN, timeout_ms=50).__aenter__()


def settings(**given: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", log="memory://", **given)


def test_no_instance_can_be_reached_from_other_machines_without_token_and_tls() -> None:
    """Unless it is said in so many words; without application_server nothing is advertised."""
    assert settings().application_server is None
    for host in ("127.0.0.1:7070", "localhost:7070", "[::1]:0"):
        assert settings(application_server=host).application_server == host
    for host in ("10.0.0.5:7070", "app.example:7070"):
        with pytest.raises(ConfigError, match="query_token and query_ssl_certificate_location are missing"):
            settings(application_server=host)
        with pytest.raises(ConfigError, match="query_ssl_certificate_location is missing"):
            settings(application_server=host, query_token=TOKEN)
        assert settings(application_server=host, query_insecure=True).query_insecure
        assert settings(application_server=host, query_token=f" {TOKEN}\n", query_ssl_certificate_location="a").query_token == TOKEN
    for wrong in ("here", "here:", ":1", "here:x", "here:70000", "http://here:1", "a b:1", "::1:1"):
        with pytest.raises(ConfigError, match="is not host:port"):
            settings(application_server=wrong)
    for everywhere in ("0.0.0.0:7070", "[::]:7070", "[::ffff:0.0.0.0]:7070"):
        with pytest.raises(ConfigError, match=r"application_server.* means all interfaces, and others cannot call it"):
            settings(application_server=everywhere, query_insecure=True)
    with pytest.raises(ConfigError, match="query_ssl_key_location: has no effect without application_server"):
        settings(query_ssl_key_location="here.pem")


async def test_files_that_are_no_certificate_fail_the_start(tmp_path: Path) -> None:
    """So does an address that is taken."""
    (tmp_path / "none.pem").write_text("nothing")
    async with EmbeddedLog():
        with pytest.raises(ConfigError, match="query_ssl_certificate_location"):
            async with instances(tmp_path, 1, query_ssl_certificate_location=tmp_path / "none.pem"):
                pass
        async with instances(tmp_path, 1) as (app,):
            taken = address(app).removeprefix("http://")
            with pytest.raises(ConfigError, match=f"application_server: {taken} cannot be listened at"):
                async with instances(tmp_path / "other", 1, application_server=taken):
                    pass


async def test_a_client_says_what_is_wrong_with_its_arguments(tmp_path: Path) -> None:
    """Addresses, and stores that the app lacks."""
    for addresses in ("http://127.0.0.1:1", [], ["here"], ["ftp://here:1"], ["http://user:secret@here:1"]):
        with pytest.raises(ConfigError, match="addresses") as caught:
            Client(addresses)
        assert "secret" not in str(caught.value)
    for token in ("sec\nret", "", "s\u00e9cret"):
        with pytest.raises(ConfigError, match="token is not a token") as caught:
            Client(["http://127.0.0.1:1"], token=token)
        assert token not in str(caught.value) or not token
    async with instances(tmp_path, 1) as (app,), Client([address(app)], token=TOKEN) as client:
        with pytest.raises(UnknownStore, match="no store 'none'"):
            client.store("none", STRING, LONG)
        with pytest.raises(QueryFailed, match="cannot be queried for a window"):
            await client.store("counts", STRING, LONG).fetch("k1", 0)
