"""Keys and certificates as settings: PEM texts, types of stores, and contradictions."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config._open_log import kafka_options, open_configured
from ks_actors.config._sources import from_file
from ks_actors.log.kafka import KafkaLog
from tests.ks_actors.log.kafka.client.certificates import Authority

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----\n"
BASE = {"application.id": "app", "bootstrap.servers": "a:1", "security.protocol": "SSL"}
CHAIN, TRUSTED = "ssl.keystore.certificate.chain", "ssl.truststore.certificates"


def test_pem_texts_reach_the_log_however_their_lines_end(tmp_path: Path) -> None:
    """As a file of properties, TOML or the environment has them: lines, blanks, or a backslash and an n."""
    authority = Authority(tmp_path / "authority")
    issued = authority.issue()
    texts = {
        TRUSTED: authority.certificate.read_text(),
        CHAIN: f"a comment\n{issued.certificate.decode()}",
        "ssl.keystore.key": issued.key.decode(),
    }
    file = tmp_path / "app.properties"
    file.write_text("".join(f"{name}={' '.join(text.split())}\n" for name, text in {**BASE, **texts}.items()))
    assert {each.name for each in from_file(file)} >= {"ssl_keystore_key"}
    escaped = {name: text.replace("\n", "\\n") for name, text in texts.items()}
    for made in (StreamsConfig.of({**BASE, **texts}), StreamsConfig.load(file), StreamsConfig.of({**BASE, **escaped})):
        options = kafka_options(made)
        assert options["tls_key_pem"] == issued.key.decode()
        assert options["tls_ca_pem"] == authority.certificate.read_text()
        log = open_configured(made)
        assert isinstance(log, KafkaLog)
        context = log._options.ssl_context()
        assert context is not None
        assert len(context.get_ca_certs()) == 1
        secret = issued.key.decode().splitlines()[1]
        assert secret not in f"{made!r} {log!r} {log._options!r}"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({CHAIN: CERTIFICATE}, "ssl_keystore_certificate_chain: needs ssl_keystore_key"),
        ({"ssl.keystore.key": KEY}, "ssl_keystore_key: needs ssl_keystore_certificate_chain"),
        ({TRUSTED: CERTIFICATE, "ssl.ca.location": "x"}, "ssl_truststore_location and ssl_truststore_certificates are both set"),
        ({TRUSTED: CERTIFICATE, "ssl.truststore.type": "PKCS12"}, "ssl_truststore_certificates: is PEM, but ssl_truststore_type is PKCS12"),
        ({"ssl.truststore.password": "hunter2"}, "ssl_truststore_password: needs ssl_truststore_location"),
        ({"ssl.keystore.type": "PEM"}, "ssl_keystore_type: needs ssl_keystore_location or ssl_keystore_certificate_chain"),
        ({TRUSTED: "/etc/ca.pem"}, "*** is not PEM: expected -----BEGIN CERTIFICATE-----, and no other kind; the name of a file belongs into"),
        ({CHAIN: CERTIFICATE + KEY}, "ssl_keystore_certificate_chain (mapping): *** is not PEM: expected -----BEGIN CERTIFICATE-----"),
        ({"ssl.keystore.key": CERTIFICATE}, "*** is not PEM: expected -----BEGIN PRIVATE KEY-----"),
        ({"ssl.keystore.key": "hunter2"}, "*** is not PEM"),
        ({"ssl.keystore.key": 5}, "*** is not text"),
    ],
)
def test_contradictions_among_keys_are_told(settings: dict[str, str], message: str) -> None:
    """With the remedy, and without the key."""
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**BASE, **settings})
    assert message in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_key_of_openssls_keeps_its_headers() -> None:
    """An old encrypted key has them, and curves have a block of their own, which says nothing more."""
    old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nMIIB\n-----END RSA PRIVATE KEY-----\n"
    made = StreamsConfig.of({**BASE, CHAIN: CERTIFICATE, "ssl.keystore.key": old})
    assert made.ssl_keystore_key == old
    curve = "-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n"
    made = StreamsConfig.of({**BASE, CHAIN: CERTIFICATE, "ssl.keystore.key": curve})
    assert made.ssl_keystore_key == curve[curve.index("-----BEGIN EC PRIVATE") :]
