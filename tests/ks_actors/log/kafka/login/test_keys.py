"""Keys and certificates in PEM and PKCS#12, as TLS handshakes with a real server see them."""

from __future__ import annotations

import builtins
import re
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ks_actors import ConfigError
from ks_actors.log.kafka import KafkaOptions
from tests.ks_actors.log.kafka.client.certificates import Authority, Issued

STORE, KEY = "store's own secret", "key's own secret"


class Stores:
    """A client's key and the certificate of its authority, in each form."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory / "authority")
        self.issued: Issued = self.authority.issue()
        (directory / "client.pem").write_bytes(self.issued.certificate)
        (directory / "client.key").write_bytes(self.issued.key)
        self.keys = self.pkcs12("keys.p12", "-in", "client.pem", "-inkey", "client.key", "-certfile", str(self.authority.certificate))
        self.trusted = self.pkcs12("trusted.p12", "-nokeys", "-in", str(self.authority.certificate))
        self.authority.encrypt(self.issued.key, directory / "encrypted.key", KEY)

    def pkcs12(self, name: str, *words: str) -> Path:
        command = ["openssl", "pkcs12", "-export", "-out", name, "-passout", f"pass:{STORE}", *words]
        subprocess.run(command, cwd=self.directory, check=True, capture_output=True)  # noqa: S603 - our own
        return self.directory / name

    def options(self, **changes: Any) -> KafkaOptions:
        return KafkaOptions(tls=True, **changes)

    def shown(self, context: ssl.SSLContext | None) -> str:
        """Return the common name of the certificate that a context shows to a server which it trusts."""
        assert context is not None
        ours, theirs = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(ours, theirs, server_hostname="localhost")
        server = self.authority.listener().wrap_bio(theirs, ours, server_side=True)
        for _ in range(3):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        found: Any = server.getpeercert()
        return str(dict(pair for row in found["subject"] for pair in row)["commonName"])


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def test_keys_come_in_all_forms(stores: Stores) -> None:
    """PEM files and texts, with an encrypted key or not, and PKCS#12; each with each."""
    encrypted = (stores.directory / "encrypted.key").read_text()
    trusts: list[dict[str, Any]] = [
        {"tls_ca_file": stores.authority.certificate},
        {"tls_ca_pem": stores.authority.certificate.read_text()},
        {"tls_ca_file": stores.trusted, "tls_ca_password": STORE, "tls_ca_type": "PKCS12"},
    ]
    certificate = stores.issued.certificate.decode()
    identities: list[dict[str, Any]] = [
        {"tls_cert_file": stores.directory / "client.pem", "tls_key_file": stores.directory / "encrypted.key", "tls_key_password": KEY},
        {"tls_cert_pem": certificate, "tls_key_pem": stores.issued.key.decode()},
        {"tls_cert_pem": certificate, "tls_key_pem": encrypted, "tls_key_password": KEY},
        {"tls_cert_file": stores.keys, "tls_cert_password": STORE},
    ]
    for number, identity in enumerate(identities):
        options = stores.options(**trusts[number % len(trusts)], **identity)
        assert stores.shown(options.ssl_context()) == "1"
        for secret in (STORE, KEY, encrypted.splitlines()[1], stores.issued.key.decode().splitlines()[1]):
            assert secret not in repr(options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tls_ca_file": "trusted.p12"}, "cannot be loaded: .*; check tls_ca_file (ssl_truststore_location), which is {0}/trusted.p12"),
        ({"tls_ca_file": "trusted.p12", "tls_ca_password": "x"}, "; check tls_ca_file"),
        ({"tls_ca_file": "client.pem", "tls_ca_password": STORE}, "it is PEM, which has no password"),
        ({"tls_ca_file": "client.pem", "tls_ca_type": "PKCS12"}, "it is PEM, and its type is set to PKCS12"),
        ({"tls_ca_pem": " "}, "there is no certificate in it; check tls_ca_pem (ssl_truststore_certificates)"),
        ({"tls_ca_pem": "x"}, "; check tls_ca_pem (ssl_truststore_certificates)"),
        ({"tls_cert_file": "trusted.p12", "tls_cert_password": STORE}, "there is no key with its certificate in it"),
        ({"tls_cert_file": "keys.p12", "tls_cert_password": "x"}, "; check tls_cert_file .*tls_cert_password (ssl_keystore_password)"),
        ({"tls_cert_file": "client.pem", "tls_cert_password": STORE}, "whose key alone has a password"),
        ({"tls_cert_file": "keys.p12", "tls_cert_password": STORE, "tls_key_password": "x"}, "which has one password"),
        ({"tls_cert_file": "keys.p12", "tls_cert_password": STORE, "tls_key_file": "client.key"}, "which has its key in it"),
        (
            {"tls_ca_file": "java.jks"},
            "JKS: convert it with keytool -importkeystore -srckeystore {0}/java.jks -destkeystore {0}/java.p12 -deststoretype PKCS12",
        ),
    ],
)
def test_stores_that_cannot_be_loaded_name_the_setting_and_the_remedy(stores: Stores, changes: dict[str, Any], message: str) -> None:
    """Without the password."""
    (stores.directory / "java.jks").write_bytes(bytes.fromhex("feedfeed00000002"))
    named = {name: stores.directory / value if name.endswith("_file") else value for name, value in changes.items()}
    pattern = re.escape(message).replace(r"\.\*", ".*").replace(r"\{0\}", re.escape(str(stores.directory)))
    with pytest.raises(ConfigError, match=pattern) as caught:
        stores.options(**named).ssl_context()
    assert STORE not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tls": False, "tls_ca_pem": "x"}, "tls_ca_pem set, but tls is off"),
        ({"tls": ssl.create_default_context(), "tls_ca_pem": "x"}, "tls is an SSLContext"),
        ({"tls_ca_pem": "x", "tls_ca_file": "x"}, "tls_ca_file and tls_ca_pem are both set"),
        ({"tls_cert_pem": "x", "tls_cert_file": "x"}, "tls_cert_file and tls_cert_pem are both set"),
        ({"tls_ca_pem": "x", "tls_ca_type": "PKCS12"}, "are PEM, and their type is PKCS12"),
        ({"tls_key_pem": "x"}, "tls_key_pem needs tls_cert_pem"),
        ({"tls_key_file": "x"}, "tls_key_file needs tls_cert_file"),
        ({"tls_cert_password": "x"}, "tls_cert_password needs tls_cert_file"),
        ({"tls_key_password": "x"}, "tls_key_password needs tls_cert_file or tls_cert_pem"),
    ],
)
def test_options_of_keys_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    """With their names."""
    with pytest.raises(ConfigError, match=message):
        KafkaOptions(**{"tls": True, **changes})


def test_a_missing_package_is_named_with_its_extra(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """PKCS#12 needs cryptography."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("cryptography"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"trusted\.p12 is PKCS#12, which needs cryptography: pip install 'ks-actors\[pkcs12\]'"):
        stores.options(tls_ca_file=stores.trusted, tls_ca_password=STORE).ssl_context()
