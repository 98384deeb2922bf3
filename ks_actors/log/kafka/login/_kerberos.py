"""Logins by Kerberos (GSSAPI)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from ks_actors._errors import ConfigError, NotAuthorized
from ks_actors.log.kafka._aiokafka import SaslGSSAPIAuthenticator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# Codes of MIT's library as unsigned numbers, as in GSSAPI: no KDC answers, or its name is unknown.
_NO_ANSWER: Final = frozenset({-1765328228 & 0xFFFFFFFF, -1765328230 & 0xFFFFFFFF})


def check_kerberos() -> None:
    """Raise ConfigError if the package gssapi, or the library of Kerberos, is missing."""
    try:
        import gssapi  # noqa: F401, PLC0415 - optional  # pyright: ignore[reportMissingImports]
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"GSSAPI needs Kerberos's library and gssapi: pip install 'ks-actors[gssapi]' ({error})"
        ) from error


def kerberos_steps(principal: str) -> Callable[[bytes | None], Awaitable[bytes | None]]:
    """Return a function that gets a broker's challenge and returns the answer, None at the end.

    `principal` is `service@host`. Without a ticket for it the function raises NotAuthorized; when
    no KDC answers, OSError. It looks for tickets in a thread.
    """
    import gssapi.raw.misc as gss  # noqa: PLC0415 - extra  # pyright: ignore[reportMissingImports]

    authenticator = SaslGSSAPIAuthenticator(loop=asyncio.get_running_loop(), principal=principal)

    async def step(challenge: bytes | None) -> bytes | None:
        try:
            found = await authenticator.step(challenge)
        except gss.GSSError as error:
            # The specific text comes after the numbers and the general text of GSSAPI.
            reason = f"no Kerberos ticket for {principal}: {str(error).rpartition('): ')[2]}"
            if error.min_code in _NO_ANSWER:
                raise OSError(reason) from error
            raise NotAuthorized(
                f"{reason}; run kinit, or name a keytab by KRB5_CLIENT_KTNAME; the broker's name "
                "has to be that of its principal (sasl_kerberos_domain_name)"
            ) from error
        return None if found is None else found[0]

    return step
