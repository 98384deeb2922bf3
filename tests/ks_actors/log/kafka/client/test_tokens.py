"""Tokens of a login: how long one is used, and what happens when the next one does not come."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest

from ks_actors._errors import ConfigError, NotAuthorized
from ks_actors.log.kafka import KafkaOptions, Token
from ks_actors.log.kafka.client._tokens import NoToken, Tokens


class Source:
    """A clock, and a function that returns tokens of 100 s until it is to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.asked = 1000.0, 0
        self.error: Exception | None = None
        monkeypatch.setattr("ks_actors.log.kafka.client._tokens.time", SimpleNamespace(time=lambda: self.now))
        self.tokens = Tokens(KafkaOptions(sasl_mechanism="OAUTHBEARER", sasl_token_provider=self))

    def __call__(self) -> Token:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Token(f"token {self.asked}", expires_at=self.now + 100)

    def at(self, now: float) -> str:
        """Return the token at a time."""
        self.now = now
        return asyncio.run(self.tokens.current()).value


def test_a_token_is_fetched_again_after_most_of_its_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections share it until 80 % have passed."""
    source = Source(monkeypatch)
    assert [source.at(now) for now in (1000, 1079, 1081, 1160, 1162)] == ["token 1", "token 1", "token 2", "token 2", "token 3"]


def test_the_last_token_is_used_to_its_end_while_its_source_fails(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It is asked again after five seconds, not at each connection; behind the end the failure is an error."""
    caplog.set_level(logging.WARNING, "ks_actors")
    source = Source(monkeypatch)
    source.at(1000)
    source.error = OSError("503 busy")
    assert [source.at(now) for now in (1081, 1083, 1085, 1087, 1099)] == ["token 1"] * 5
    assert source.asked == 4
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["503 busy"] * 3
    with pytest.raises(NoToken, match="gave no token: 503 busy"):
        source.at(1101)
    source.error = None
    assert source.at(1102) == "token 6"


@pytest.mark.parametrize(("error", "kind"), [(NotAuthorized("refused"), NotAuthorized), (TypeError("a bug"), NoToken)])
def test_a_first_token_that_does_not_come_is_an_error(error: Exception, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal ends the login; anything else may pass."""
    source = Source(monkeypatch)
    source.error = error
    with pytest.raises(kind, match=str(error)):
        source.at(1000)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "OAUTHBEARER needs sasl_oauthbearer_token_endpoint_url or a function"),
        ({"sasl_username": "a", "sasl_token_provider": str}, "are for PLAIN and SCRAM"),
        ({"sasl_oauthbearer_token_endpoint_url": "https://i/t"}, "client_id and its secret are for a token endpoint"),
        ({"sasl_oauthbearer_token_endpoint_url": "http://i/t"}, "in the clear: use https"),
        ({"sasl_mechanism": "PLAIN", "sasl_username": "a", "sasl_password": "b", "sasl_token_provider": str}, "settings of tokens need"),
    ],
)
def test_contradictory_options_are_refused(options: dict[str, object], told: str) -> None:
    """By the names of the options."""
    with pytest.raises(ConfigError, match=told):
        KafkaOptions(**{"sasl_mechanism": "OAUTHBEARER", **options})  # type: ignore[arg-type]
