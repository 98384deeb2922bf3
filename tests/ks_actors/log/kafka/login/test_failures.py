"""Handshakes that fail at small servers: the client's error names the step, the reason and the remedy."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
import ssl
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from ks_actors import LogTimeout, NotAuthorized
from ks_actors.log.kafka import KafkaLog, KafkaOptions
from ks_actors.log.kafka.login import Step, why_failed
from tests.ks_actors.log.kafka.client.certificates import Authority
from tests.waiting import soon


def expired(authority: Authority) -> tuple[bytes, bytes]:
    """Return a certificate of an authority that ended yesterday, and its key."""
    issued = authority.issue()
    now, day = dt.datetime.now(dt.UTC), dt.timedelta(days=1)
    signer = load_pem_private_key((authority.certificate.parent / "ca.key").read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    old = x509.load_pem_x509_certificate(issued.certificate)
    builder = x509.CertificateBuilder(old.issuer, old.subject, old.public_key(), old.serial_number, now - 2 * day, now - day, list(old.extensions))
    return builder.sign(signer, hashes.SHA256()).public_bytes(Encoding.PEM), issued.key


async def served(context: ssl.SSLContext | None, answer: bytes = b"", host: str = "127.0.0.1") -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(answer)
        writer.close()

    return await asyncio.start_server(serve, host, 0, ssl=context)


async def error_at(server: asyncio.Server, host: str = "127.0.0.1", **options: Any) -> tuple[type[Exception], str]:
    """Return the error of a start, without the address."""
    async with server:
        address = f"{host}:{server.sockets[0].getsockname()[1]}"
        log = KafkaLog(address, options=KafkaOptions(api_timeout_ms=500, **options))
        with pytest.raises((LogTimeout, NotAuthorized)) as caught:
            await soon(log.start())
        await log.close()
    match = re.search(rf"bootstrap server at {address} cannot be reached: (.*)", str(caught.value))
    assert match, caught.value
    return caught.type, match[1]


@pytest.mark.parametrize("fault", ["unknown", "expired", "name"])
async def test_a_certificate_that_is_not_trusted_tells_why(tmp_path: Path, fault: str) -> None:
    """Its authority, its dates or its names; at once, as it will not get better."""
    authority = Authority(tmp_path / "ours")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    file = authority.put(tmp_path / "server.pem")
    if fault == "expired":
        file.write_bytes(b"".join(expired(authority)))
    context.load_cert_chain(file)
    trusted = Authority(tmp_path / "theirs") if fault == "unknown" else authority
    host = "127.0.0.2" if fault == "name" else "127.0.0.1"
    server = await served(context, host=host)
    kind, told = await error_at(server, host, tls=True, tls_ca_file=trusted.certificate)
    assert kind is NotAuthorized
    assert told.startswith("TLS handshake failed: the certificate is not trusted: ")
    assert {
        "unknown": "unable to get local issuer certificate; set tls_ca_file (ssl_truststore_location) to the certificates of its authority",
        "expired": "certificate has expired; it has to be renewed, or a clock is wrong",
        "name": "not valid for '127.0.0.2'; use a name or an address that is in it, or turn tls_check_hostname (ssl_endpoint_identification",
    }[fault] in told


async def test_tls_at_a_port_without_tls_is_told() -> None:
    """Such a listener closes the connection, or answers in its own protocol."""
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        kind, told = await error_at(await served(None, answer), tls=True)
        assert kind is LogTimeout
        assert told.startswith("TLS handshake failed: ")
        assert "its listener may be without TLS: use the port of its TLS listener, or check tls (security_protocol)" in told


async def test_plain_text_at_a_port_with_tls_is_told() -> None:
    """It answers with an alert, or with nothing."""
    kind, told = await error_at(await served(None, b"\x15\x03\x03\x00\x02\x02\x46"))
    assert kind is LogTimeout
    assert "version handshake failed: " in told
    assert "its listener has TLS: set security_protocol to SSL or SASL_SSL" in told
    kind, told = await error_at(await served(None))
    assert "its listener may have TLS, or not be Kafka's: check security_protocol" in told


@pytest.mark.parametrize("step", [Step.RESOLVE, Step.CONNECT])
def test_an_address_that_the_cluster_gave_has_its_own_remedy(step: Step) -> None:
    """Not the user's bootstrap_servers are wrong then."""
    error = OSError(113, "no route")
    assert "advertised.listeners of the broker has that" in why_failed(step, error, tls=False, known=True)
    assert "advertised" not in why_failed(step, error, tls=False, known=False)
