"""Keys and certificates for TLS: PEM files and texts, and PKCS#12 stores."""

from __future__ import annotations

import os
import ssl
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ks_actors._errors import ConfigError
from ks_actors.log.kafka.login._names import (
    CA_FILE,
    CA_PEM,
    CERT_FILE,
    CERT_PASSWORD,
    CERT_PEM,
    KEY_FILE,
    KEY_PASSWORD,
    KEY_PEM,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

StoreType: TypeAlias = Literal["PEM", "PKCS12"]
# The first bytes of Java's own stores (JKS, JCEKS), and the first byte of all DER.
_JAVA = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER = b"\x30"


def load_trusted(
    file: str | Path | None, pem: str | None, password: str | None, kind: StoreType | None
) -> ssl.SSLContext:
    """Return a context that trusts the certificates of a file or a text, else the system's.

    Raises ConfigError, which names the setting.
    """
    with _named(CA_PEM if file is None else f"{CA_FILE}, which is {file}"):
        return _trusted(file, pem, password, kind)


def _trusted(
    file: str | Path | None, pem: str | None, password: str | None, kind: StoreType | None
) -> ssl.SSLContext:
    if pem is not None:
        if not pem.strip():
            # Without certificates the context would trust the system's.
            raise ValueError("there is no certificate in it")
        return ssl.create_default_context(cadata=pem)
    if file is None:
        return ssl.create_default_context()
    if _kind_of(file, kind) == "PEM":
        if password is not None:
            raise ValueError("it is PEM, which has no password")
        return ssl.create_default_context(cafile=str(file))
    _, certificate, others = _open_pkcs12(file, password)
    from cryptography.hazmat.primitives.serialization import Encoding  # noqa: PLC0415 - optional

    found = [each for each in (certificate, *others) if each is not None]
    if not found:
        raise ValueError("there is no certificate in it")
    return ssl.create_default_context(
        cadata=b"".join(each.public_bytes(Encoding.DER) for each in found)
    )


def load_identity(
    context: ssl.SSLContext,
    file: str | Path | None,
    pem: str | None,
    password: str | None,
    kind: StoreType | None,
    key: tuple[str | Path | None, str | None, str | None],
) -> None:
    """Load the client's certificate, from a file or a text, into a context.

    `key` is the key's file, text and password, if the key is not together with the certificate.
    Raises ConfigError, which names the settings.
    """
    if file is None:
        where = f"{CERT_PEM}, {KEY_PEM} and {KEY_PASSWORD}"
    elif password is not None:
        where = f"{CERT_FILE}, which is {file}, and {CERT_PASSWORD}"
    else:
        where = (
            f"{CERT_FILE}, which is {file}, {KEY_FILE}, which is {key[0] or 'in it'}, and "
            f"{KEY_PASSWORD}"
        )
    with _named(where):
        _identify(context, file, pem, password, kind, key)


def _identify(
    context: ssl.SSLContext,
    file: str | Path | None,
    pem: str | None,
    password: str | None,
    kind: StoreType | None,
    key: tuple[str | Path | None, str | None, str | None],
) -> None:
    key_file, key_pem, key_password = key
    # Pass a password in any case: otherwise OpenSSL asks for one on the terminal.
    key_password = key_password or ""
    if file is None:
        with _as_file(f"{pem}\n{key_pem or ''}\n".encode()) as name:
            context.load_cert_chain(name, None, key_password)
    elif _kind_of(file, kind) == "PEM":
        if password is not None:
            raise ValueError("it is PEM, whose key alone has a password: ssl_key_password")
        context.load_cert_chain(file, key_file, key_password)
    elif key_file is not None:
        raise ValueError("it is PKCS#12, which has its key in it: set no other file for that")
    elif key_password not in {"", password}:
        raise ValueError("it is PKCS#12, which has one password: ssl_keystore_password")
    else:
        with _as_file(_pem_of(*_open_pkcs12(file, password))) as name:
            context.load_cert_chain(name, None, "")


@contextmanager
def _named(settings: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the TLS keys and certificates cannot be loaded: {error}; check {settings}"
        ) from error


def _kind_of(file: str | Path, kind: StoreType | None) -> StoreType:
    """Return the type of a store by its first bytes. Raises ValueError for unsupported types."""
    with Path(file).open("rb") as opened:
        head = opened.read(4)
    if head in _JAVA:
        raise ValueError(
            f"it is a store of Java's own type, JKS: convert it with keytool -importkeystore "
            f"-srckeystore {file} -destkeystore {Path(file).with_suffix('.p12')} "
            "-deststoretype PKCS12, and name the new file"
        )
    found: StoreType = "PKCS12" if head.startswith(_DER) else "PEM"
    if kind not in {None, found}:
        raise ValueError(f"it is {found}, and its type is set to {kind}")
    return found


def _open_pkcs12(file: str | Path, password: str | None) -> tuple[Any, Any, list[Any]]:
    """Return the key, its certificate and the other certificates of a store."""
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{file} is PKCS#12, which needs cryptography: pip install 'ks-actors[pkcs12]'"
        ) from error
    secret = None if password is None else password.encode()
    return pkcs12.load_key_and_certificates(Path(file).read_bytes(), secret)


def _pem_of(key: Any, certificate: Any, others: list[Any]) -> bytes:
    """Return a key and its certificates as PEM."""
    if key is None or certificate is None:
        raise ValueError("there is no key with its certificate in it")
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - optional
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    return b"".join(
        (
            *(each.public_bytes(Encoding.PEM) for each in (certificate, *others)),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        )
    )


@contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """Yield, during the block, the name of a file with this content: OpenSSL requires a file."""
    if hasattr(os, "memfd_create"):
        # Use memory: a key that was given as a text should not get to a disk.
        number = os.memfd_create("tls")
        with os.fdopen(number, "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{number}"
        return
    # Only this user can read such a file.
    number, name = tempfile.mkstemp()
    try:
        with os.fdopen(number, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()
