"""An authority that issues certificates, and a TLS listener in front of a broker that records who has come."""

from __future__ import annotations

import asyncio
import ssl
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tests.kafka.broker import require_openssl

# All that Python 3.13 wants to see (X509_V_FLAG_X509_STRICT): what openssl adds by itself depends on its version and on a file of the machine.
_AUTHORITY = """
[req]
distinguished_name = name
x509_extensions = authority
[name]
[authority]
basicConstraints = critical,CA:TRUE
keyUsage = critical,keyCertSign,cRLSign
subjectKeyIdentifier = hash
"""
_ISSUED = """
subjectAltName = IP:127.0.0.1,DNS:localhost
keyUsage = critical,digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Issued(NamedTuple):
    """A certificate with its key, as PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Issue certificates; their serial numbers are counted from 1."""

    def __init__(self, directory: Path) -> None:
        require_openssl()
        directory.mkdir()
        self._directory = directory
        self._issued = 0
        self.certificate = directory / "ca.pem"
        self._settings = directory / "openssl.cnf"
        self._settings.write_text(_AUTHORITY)
        self._openssl(*self._new_key(directory / "ca.key"), "-x509", "-out", str(self.certificate), "-subj", "/CN=authority")

    def issue(self) -> Issued:
        """Issue a certificate for this machine, or a client on it."""
        self._issued += 1
        key, request, names, certificate = (self._directory / f"{self._issued}.{end}" for end in ("key", "csr", "ext", "pem"))
        names.write_text(_ISSUED)
        self._openssl(*self._new_key(key), "-out", str(request), "-subj", f"/CN={self._issued}")
        signed = ["-CA", str(self.certificate), "-CAkey", str(self._directory / "ca.key"), "-set_serial", str(self._issued)]
        self._openssl("x509", "-req", "-in", str(request), *signed, "-extfile", str(names), "-out", str(certificate))
        return Issued(certificate.read_bytes(), key.read_bytes())

    def put(self, path: Path) -> Path:
        """Issue a certificate, and write it to a file together with its key."""
        issued = self.issue()
        path.write_bytes(issued.certificate + issued.key)
        return path

    def encrypt(self, key: bytes, path: Path, password: str) -> None:
        """Write a key to a file that has a password."""
        plain = self._directory / "plain.key"
        plain.write_bytes(key)
        self._openssl("pkcs8", "-topk8", "-in", str(plain), "-out", str(path), "-passout", f"pass:{password}")

    def listener(self) -> ssl.SSLContext:
        """Return the context of a server that takes clients of this authority alone."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.certificate))
        context.verify_mode = ssl.CERT_REQUIRED
        self.issue()
        context.load_cert_chain(self._directory / f"{self._issued}.pem", self._directory / f"{self._issued}.key")
        return context

    def _openssl(self, *words: str) -> None:
        done = subprocess.run(["openssl", *words], capture_output=True, check=False)  # noqa: S603, S607 - our own
        assert done.returncode == 0, done.stderr.decode()

    def _new_key(self, path: Path) -> list[str]:
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        return ["req", "-config", str(self._settings), *kind, "-keyout", str(path)]


class Listener:
    """Pass bytes between clients, who show a certificate, and the plaintext listener of a broker.

    `came` has the client id and the serial number of each connection. `valid` is the one serial number that is let in.
    """

    def __init__(self, broker_port: int) -> None:
        self.came: list[tuple[str, int]] = []
        self.valid: int | None = None
        self._broker_port = broker_port
        self._open = set[asyncio.StreamWriter]()

    async def start(self, port: int, context: ssl.SSLContext) -> asyncio.Server:
        return await asyncio.start_server(self._serve, "127.0.0.1", port, ssl=context)

    def cut(self) -> None:
        """Break all connections."""
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serial = int(writer.get_extra_info("peercert")["serialNumber"], 16)
        if self.valid not in (None, serial):
            writer.transport.abort()
            return
        self._open.add(writer)
        with suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readexactly(14)
            name = await reader.readexactly(struct.unpack_from(">h", head, 12)[0])
            self.came.append((name.decode(), serial))
            broker_reader, broker = await asyncio.open_connection("127.0.0.1", self._broker_port)
            broker.write(head + name)
            await asyncio.gather(pass_on(reader, broker), pass_on(broker_reader, writer))
        self._open.discard(writer)
        writer.transport.abort()


async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Copy bytes until one of the two sides is closed; then both are."""
    with suppress(OSError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.close()
