"""Log in on a new connection (SASL)."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from ks_actors.lifecycle import component_log
from ks_actors.log.kafka._aiokafka import (
    SaslAuthenticateRequest,
    SaslHandShakeRequest,
    ScramAuthenticator,
    UnsupportedSaslMechanismError,
    for_code,
)
from ks_actors.log.kafka.login import kerberos_steps

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ks_actors.log.kafka.client._options import KafkaOptions
    from ks_actors.log.kafka.client._tokens import Tokens
    from ks_actors.log.kafka.login import Token

_log = component_log(__name__)


async def choose_mechanism(
    send: Callable[[Any], asyncio.Future[Any]], options: KafkaOptions
) -> None:
    """Ask for the options' mechanism; `send` sends a request on the connection.

    Raises UnsupportedSaslMechanismError, and the broker's other errors.
    """
    mechanism = options.sasl_mechanism
    assert mechanism is not None
    answer = await send(SaslHandShakeRequest(mechanism))
    if mechanism in answer.enabled_mechanisms:
        _raise_for(answer.error_code)
    elif answer.enabled_mechanisms:
        raise UnsupportedSaslMechanismError(
            f"it does not take {mechanism}, but {', '.join(answer.enabled_mechanisms)}"
        )
    else:
        raise UnsupportedSaslMechanismError(
            f"its listener takes no login: use the port of one that does, or set security_protocol "
            f"to {'SSL' if options.tls else 'PLAINTEXT'}"
        )


async def log_in(
    send: Callable[[Any], asyncio.Future[Any]],
    options: KafkaOptions,
    tokens: Tokens | None,
    host: str,
) -> None:
    """Log in by the chosen mechanism. `tokens` are for OAUTHBEARER, `host` for GSSAPI.

    Raises the broker's error, such as SaslAuthenticationFailed; NotAuthorized without a Kerberos
    ticket, and OSError if the key distribution center does not answer.
    """
    mechanism = options.sasl_mechanism
    if mechanism == "PLAIN" and not options.tls:
        _warn_of_the_clear()
    if tokens is not None:
        steps = _token_steps(await tokens.current())
    elif mechanism == "GSSAPI":
        domain = options.sasl_kerberos_domain_name or host
        steps = kerberos_steps(f"{options.sasl_kerberos_service_name}@{domain}")
    else:
        steps = _steps(options)
    challenge: bytes | None = None
    while (step := await steps(challenge)) is not None:
        answer = await send(SaslAuthenticateRequest(step))
        _raise_for(answer.error_code, answer.error_message)
        challenge = answer.sasl_auth_bytes
    _log.debug("logged in as %s by %s", options.sasl_username or "itself", mechanism)


def _steps(options: KafkaOptions) -> Callable[[bytes | None], Awaitable[bytes | None]]:
    """Return a function that gets a broker's challenge and returns the answer, None at the end."""
    name, password = options.sasl_username or "", options.sasl_password or ""
    if options.sasl_mechanism == "PLAIN":
        # RFC 4616: the user acts for itself, so the two names are the same.
        return _one_step(f"{name}\0{name}\0{password}".encode())
    scram = ScramAuthenticator(
        loop=asyncio.get_running_loop(),
        sasl_plain_username=name,
        sasl_plain_password=password,
        sasl_mechanism=options.sasl_mechanism,
    )

    async def step(challenge: bytes | None) -> bytes | None:
        found = await scram.step(challenge)
        return None if found is None else found[0]

    return step


def _token_steps(token: Token) -> Callable[[bytes | None], Awaitable[bytes | None]]:
    """Send a token (RFC 7628). If it is refused, a challenge has the reason; the error follows."""
    pairs = {"auth": f"Bearer {token.value}", **token.extensions}
    message = "n,,\1" + "".join(f"{name}={value}\1" for name, value in pairs.items()) + "\1"

    async def step(challenge: bytes | None) -> bytes | None:
        if challenge is None:
            return message.encode()
        return b"\1" if challenge else None

    return step


def _one_step(message: bytes) -> Callable[[bytes | None], Awaitable[bytes | None]]:
    async def step(challenge: bytes | None) -> bytes | None:
        return message if challenge is None else None

    return step


def _raise_for(code: int, message: str | None = None) -> None:
    if code:
        raise for_code(code)(*([message] if message else []))


@cache
def _warn_of_the_clear() -> None:
    """Warn once in this process."""
    _log.warning(
        "the password goes over the network in the clear, as sasl_mechanism is PLAIN without TLS: "
        "use security_protocol SASL_SSL, or SCRAM-SHA-512"
    )
