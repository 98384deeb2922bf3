"""Logins at Amazon MSK by IAM: AWS's own signer, with credentials of this test."""

from __future__ import annotations

import sys
import time
from base64 import urlsafe_b64decode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ks_actors import ConfigError, StreamsConfig
from ks_actors.config._open_log import open_configured
from ks_actors.log.kafka import KafkaLog, KafkaOptions, MskTokens
from ks_actors.log.kafka.client._tokens import NoToken, Tokens
from tests.waiting import soon

SERVER = "b-1.orders.abcdef.c2.kafka.eu-west-1.amazonaws.com:9098"
# As Amazon's manual has them for Java.
JAVA = {
    "application.id": "orders",
    "bootstrap.servers": SERVER,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "KEY-OF-PROCESS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    (tmp_path / "credentials").write_text("[orders]\naws_access_key_id = KEY-OF-PROFILE\naws_secret_access_key = hunter3\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))


def options(**changes: Any) -> KafkaOptions:
    log = open_configured(StreamsConfig.of({**JAVA, **changes}))
    assert isinstance(log, KafkaLog)
    return log._options


def signed(token: str) -> dict[str, str]:
    """Return the fields of the signed request that a token is."""
    url = urlsplit(urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return {"host": url.netloc, **{name: values[0] for name, values in parse_qs(url.query).items()}}


@pytest.mark.parametrize(("line", "key"), [("", "KEY-OF-PROCESS"), (' awsProfileName="orders"', "KEY-OF-PROFILE")])
async def test_a_java_apps_settings_for_msk_make_signed_tokens(line: str, key: str) -> None:
    """The region is that of the servers; the token is for connections, lives 15 minutes, and is never shown."""
    made = options(**{"sasl.jaas.config": f"{JAVA['sasl.jaas.config'][:-1]}{line};"})
    assert (made.security_protocol, made.sasl_mechanism) == ("SASL_SSL", "OAUTHBEARER")
    tokens = Tokens(made)
    token = await soon(tokens.current())
    found = signed(token.value)
    assert found["host"] == "kafka.eu-west-1.amazonaws.com"
    assert found["Action"] == "kafka-cluster:Connect"
    assert found["X-Amz-Credential"].startswith(f"{key}/")
    assert token.expires_at is not None
    assert 880 < token.expires_at - time.time() <= 900
    assert tokens.name == "the token from the token provider <MskTokens for eu-west-1>"
    assert token.value not in repr((token, made))
    assert await tokens.current() is token


async def test_without_credentials_the_error_says_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signer itself fails at None."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(NoToken, match="MskTokens for eu-west-1> gave no token: AWS's signer found no credentials: attach a role"):
        await soon(Tokens(options()).current())


def test_the_region_comes_from_names_or_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Private names of brokers do not tell it."""
    assert MskTokens.for_servers("boot-x.c3.kafka-serverless.us-east-2.amazonaws.com:9098").region == "us-east-2"
    with pytest.raises(ConfigError, match=r"kafka\.internal:9098 does not tell the region of MSK: set AWS_REGION"):
        options(**{"bootstrap.servers": "kafka.internal:9098"})
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert repr(options(**{"bootstrap.servers": "kafka.internal:9098"}).sasl_token_provider) == "<MskTokens for eu-north-1>"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"security.protocol": "SASL_PLAINTEXT"}, "security_protocol: AWS_MSK_IAM needs SASL_SSL"),
        ({"sasl.username": "a"}, "sasl_username: does not belong to sasl_mechanism AWS_MSK_IAM"),
        ({"sasl.oauthbearer.scope": "a"}, "sasl_oauthbearer_scope: does not belong to sasl_mechanism AWS_MSK_IAM"),
        ({"sasl.mechanism": "PLAIN"}, "sasl_jaas_config: is a login by another mechanism than PLAIN"),
        (
            {"sasl.jaas.config": 'a.PlainLoginModule required username="a" password="b";'},
            "sasl_jaas_config: is a login by another mechanism than AWS_MSK_IAM",
        ),
        (
            {"sasl.jaas.config": "a.IAMLoginModule required awsDebugCreds=true;"},
            "has options besides awsProfileName, awsRoleArn and awsRoleSessionName, which are not supported: awsDebugCreds",
        ),
    ],
)
def test_contradictions_of_a_login_at_msk_are_told(changes: dict[str, str], message: str) -> None:
    """With the settings' names."""
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.of({**JAVA, **changes})
    assert message in str(caught.value)


@pytest.mark.parametrize("settings", [{"profile": "a", "role_arn": "b"}, {"session_name": "a"}])
def test_an_identity_for_msk_is_one(settings: dict[str, str]) -> None:
    """A profile or a role."""
    with pytest.raises(ConfigError, match="MskTokens takes a"):
        MskTokens("eu-west-1", **settings)


def test_a_missing_signer_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before there is a connection."""
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    with pytest.raises(ConfigError, match=r"needs aws_msk_iam_sasl_signer: pip install 'ks-actors\[msk\]'"):
        options()
