"""Each configuration on the page about logins makes the connection's options and its TLS context."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from ks_actors import StreamsConfig
from ks_actors.config._open_log import kafka_options
from ks_actors.log.kafka import KafkaOptions
from tests.ks_actors.log.kafka.client.certificates import Authority

PAGE = Path(__file__).parents[2] / "docs" / "login.md"
BLOCK = re.compile(r"^## (?P<heading>[^\n]+)$|^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
# The configurations of each section: mechanism, a CA of its own, a certificate of the client.
EXPECTED: dict[str, list[tuple[str | None, bool, bool]]] = {
    "Keys and certificates": [(None, True, True)],
    "Tokens": [("OAUTHBEARER", False, False)] * 2,
    "Kerberos": [("GSSAPI", False, False)],
    "Confluent Cloud": [("PLAIN", False, False), ("OAUTHBEARER", False, False)],
    "Amazon MSK": [("AWS_MSK_IAM", False, False)] * 2,
    "Azure Event Hubs": [("OAUTHBEARER", False, False), ("PLAIN", False, False)],
    "Google Managed Kafka": [("OAUTHBEARER", False, False)],
    "Aiven": [(None, True, True), ("SCRAM-SHA-256", True, False)],
    "Redpanda": [("SCRAM-SHA-256", False, False)],
    "Strimzi and StreamsHub on Kubernetes": [(None, True, True), ("SCRAM-SHA-512", True, False), ("OAUTHBEARER", True, False)],
}


def configs() -> dict[str, list[StreamsConfig]]:
    """Run the page, and return the configurations of each section."""
    found: dict[str, list[StreamsConfig]] = {}
    names: dict[str, Any] = {}
    heading = ""
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        heading = block["heading"] or heading
        before = names.get("config")
        exec(block["code"] or "", names)  # noqa: S102 - our own page
        if names.get("config") is not before:
            found.setdefault(heading, []).append(names["config"])
    return found


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("login") / "authority")


def test_the_page_has_a_section_for_each_login() -> None:
    """With configurations of these mechanisms, in order."""
    found = {heading: [each.sasl_mechanism for each in made] for heading, made in configs().items()}
    assert found == {heading: [mechanism for mechanism, *_ in expected] for heading, expected in EXPECTED.items()}


@pytest.mark.parametrize("heading", EXPECTED)
def test_the_configurations_of_a_login_make_its_connection(heading: str, authority: Authority) -> None:
    """All by TLS; the files and texts that the page names are real ones here."""
    issued = authority.issue()
    files = {"tls_ca_file": authority.certificate, "tls_cert_file": authority.put(authority.certificate.parent / "client.pem"), "tls_key_file": None}
    texts = {"tls_ca_pem": authority.certificate.read_text(), "tls_cert_pem": issued.certificate.decode(), "tls_key_pem": issued.key.decode()}
    for config, (mechanism, trusts, shows) in zip(configs()[heading], EXPECTED[heading], strict=True):
        made = KafkaOptions(**kafka_options(config))
        assert made.security_protocol == ("SSL" if mechanism is None else "SASL_SSL")
        assert made.takes_token == (mechanism in {"OAUTHBEARER", "AWS_MSK_IAM"})
        assert (made.tls_ca_file or made.tls_ca_pem) is not None if trusts else made.tls_ca_file is made.tls_ca_pem is None
        assert ((made.tls_cert_file or made.tls_cert_pem) is not None) == shows
        real: dict[str, Any] = {name: value for name, value in {**files, **texts}.items() if getattr(made, name) is not None}
        context = dataclasses.replace(made, **real).ssl_context()
        assert context is not None
        assert context.check_hostname
        assert (len(context.get_ca_certs()) == 1) or not trusts
