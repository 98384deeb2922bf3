"""TLS files that are renewed while a client runs."""

from __future__ import annotations

import logging
import ssl
import subprocess
from pathlib import Path

import pytest

from ks_actors import ConfigError
from ks_actors.log import OffsetAndMetadata
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.client._tls import TlsFiles
from tests.kafka.broker import Broker, free_ports, require_kafka
from tests.ks_actors.log.helpers import UNCOMMITTED, fetch_one, group_name, join, new_topic, settle, write
from tests.ks_actors.log.kafka.client.certificates import Authority, Issued, Listener
from tests.waiting import soon, until


class Clock:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Files:
    """The files of a client, and the TLS contexts that are made of them."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory / "authority")
        self.ca, self.certificate, self.key = (directory / name for name in ("ca.pem", "client.pem", "client.key"))
        self.ca.write_bytes(self.authority.certificate.read_bytes())
        self.put(self.authority.issue())
        self.clock = Clock()
        self.tls = TlsFiles(self.options(), self.clock)

    def options(self) -> KafkaOptions:
        return KafkaOptions(tls=True, tls_ca_file=self.ca, tls_cert_file=self.certificate, tls_key_file=self.key)

    def put(self, issued: Issued) -> None:
        self.certificate.write_bytes(issued.certificate)
        self.key.write_bytes(issued.key)

    async def context(self) -> ssl.SSLContext | None:
        """Return the context for a connection that is made a second later."""
        self.clock.now += 1.0
        return await self.tls.context()


@pytest.fixture
def files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Files:
    caplog.set_level(logging.INFO, "ks_actors.log.kafka")
    return Files(tmp_path)


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Return what was logged about files since the last call."""
    found = [(record.levelname, record.getMessage()) for record in caplog.records if " changed" in record.getMessage()]
    caplog.clear()
    return found


@pytest.mark.extended
@pytest.mark.heavy("a broker of its own")
async def test_all_clients_of_a_log_show_a_renewed_certificate_on_new_connections(
    files: Files, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The old certificate is no longer valid, and producer, fetcher, group member and the log itself go on with the new one."""
    require_kafka()
    (port,) = free_ports(1)
    broker = Broker(tmp_path / "broker", settings={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"})
    broker.start()
    listener = Listener(int(broker.bootstrap.split(":")[1]))
    server = await listener.start(port, files.authority.listener())
    try:
        async with KafkaLog(f"127.0.0.1:{port}", options=files.options(), client_id="log") as log:
            (partition,) = await new_topic(log)
            producer = await log.producer(client_id="writes")
            fetcher = log.fetcher(isolation=UNCOMMITTED, client_id="reads")
            fetcher.assign({partition: 0})
            member = await join(log, group_name(), partition.topic)
            await settle(member)
            await write(producer, partition, b"a")
            assert (await soon(fetch_one(fetcher))).batch.values == [b"a"]
            clients = {name for name, _ in listener.came}
            assert clients >= {"log", "writes", "reads", "client"}
            assert {serial for _, serial in listener.came} == {1}
            assert said(caplog) == []

            files.put(files.authority.issue())
            listener.valid = 3
            listener.came.clear()
            listener.cut()
            await soon(write(producer, partition, b"b"))
            assert (await soon(fetch_one(fetcher))).batch.values == [b"b"]
            await soon(member.commit({partition: OffsetAndMetadata(1)}))
            await soon(log.describe_topics())
            # The member's heartbeats come from another thread.
            await until(lambda: {name for name, _ in listener.came} >= {"log", "writes", "reads", "client"})
            assert {serial for _, serial in listener.came} == {3}
            assert said(caplog) == [("INFO", f"{files.certificate}, {files.key} changed: new connections use the new certificates")]
            await member.leave()
    finally:
        server.close()
        listener.cut()
        broker.kill()


async def test_files_that_did_not_change_are_loaded_once(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    """Each connection gets the same context."""
    context = await files.context()
    assert context is not None
    for _ in range(3):
        assert await files.context() is context
    assert said(caplog) == []


async def test_files_are_looked_at_once_a_second_at_most(files: Files) -> None:
    """A connection within the second gets the context that is there."""
    context = await files.context()
    files.put(files.authority.issue())
    files.clock.now += 0.9
    assert await files.tls.context() is context
    files.clock.now += 0.2
    assert await files.tls.context() is not context


@pytest.mark.parametrize("half", ["other key", "no key", "cut off", "empty authority"])
async def test_a_half_written_renewal_leaves_the_old_certificates_in_use(files: Files, caplog: pytest.LogCaptureFixture, half: str) -> None:
    """The client warns once for each change, names files and settings, and loads them when they are complete."""
    context = await files.context()
    renewed = files.authority.issue()
    changed = files.certificate
    if half == "other key":
        files.certificate.write_bytes(renewed.certificate)
    elif half == "no key":
        files.key.unlink()
        changed = files.key
    elif half == "cut off":
        files.certificate.write_bytes(renewed.certificate[:100])
    else:
        files.ca.write_bytes(b"")
        changed = files.ca
    for _ in range(3):
        assert await files.context() is context
    ((level, message),) = said(caplog)
    assert level == "WARNING"
    assert message.startswith(f"{changed} changed, but ")
    assert message.endswith("New connections go on with the certificates that were loaded before, and try the files again")
    if half == "no key":
        assert f"{files.key} cannot be found" in message
    else:
        assert ("ssl_truststore_location" if half == "empty authority" else "ssl_keystore_location") in message

    files.certificate.write_bytes(b"still not complete")
    for _ in range(3):
        assert await files.context() is context
    assert [level for level, _ in said(caplog)] == ["WARNING"]

    files.put(renewed)
    files.ca.write_bytes(files.authority.certificate.read_bytes())
    renewed_context = await files.context()
    assert renewed_context is not None
    assert renewed_context is not context
    ((level, message),) = said(caplog)
    assert level == "INFO"
    assert str(files.certificate) in message
    assert await files.context() is renewed_context


async def test_files_behind_a_link_are_renewed_with_it(tmp_path: Path, files: Files) -> None:
    """Kubernetes swaps a link to a directory, in which file times and sizes may be those of the old one."""
    secrets = tmp_path / "secrets"
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        issued = files.authority.issue()
        (tmp_path / name / "both.pem").write_bytes(issued.certificate + issued.key)
    secrets.symlink_to(tmp_path / "old")
    tls = TlsFiles(KafkaOptions(tls=True, tls_ca_file=files.ca, tls_cert_file=secrets / "both.pem"), files.clock)
    context = await tls.context()
    (tmp_path / "fresh").symlink_to(tmp_path / "new")
    (tmp_path / "fresh").rename(secrets)
    files.clock.now += 1.0
    assert await tls.context() is not context


async def test_a_pkcs12_store_is_renewed_as_pem_is(tmp_path: Path, files: Files) -> None:
    """A text beside it has no file to look at."""
    store = tmp_path / "client.p12"

    def put() -> None:
        files.put(files.authority.issue())
        command = ["openssl", "pkcs12", "-export", "-in", str(files.certificate), "-inkey", str(files.key), "-out", str(store), "-passout", "pass:x"]
        subprocess.run(command, check=True)  # noqa: S603 - our own

    put()
    text = files.ca.read_text()
    tls = TlsFiles(KafkaOptions(tls=True, tls_ca_pem=text, tls_cert_file=store, tls_cert_password="x"), files.clock)  # noqa: S106 - nobody's
    context = await tls.context()
    assert context is not None
    files.clock.now += 1.0
    assert await tls.context() is context
    put()
    files.clock.now += 1.0
    assert await tls.context() is not context


async def test_a_context_of_ones_own_stays(files: Files) -> None:
    """The client does not know its files."""
    context = ssl.create_default_context(cafile=str(files.ca))
    tls = TlsFiles(KafkaOptions(tls=context), files.clock)
    assert await tls.context() is context
    files.clock.now += 10.0
    files.ca.write_bytes(b"")
    assert await tls.context() is context


async def test_files_that_cannot_be_loaded_at_the_start_are_an_error(files: Files) -> None:
    """There is no older context to go on with; the next start tries them again."""
    key = files.key.read_bytes()
    files.key.unlink()
    for _ in range(2):
        with pytest.raises(ConfigError, match="the TLS keys and certificates cannot be loaded"):
            await files.context()
    files.key.write_bytes(key)
    assert await files.context() is not None
