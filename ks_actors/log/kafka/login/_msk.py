"""Tokens for Amazon MSK by IAM."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, Self, final

from ks_actors._errors import ConfigError
from ks_actors.log.kafka.login._token import Token

if TYPE_CHECKING:
    from types import ModuleType

_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


@final
class MskTokens:
    """A TokenProvider for Amazon MSK with IAM: AWS's own signer makes the tokens.

    The credentials come from this process's environment, as for all AWS tools, from the given
    profile, or from the role that is assumed. Needs the extra `msk`; otherwise raises ConfigError.
    """

    def __init__(
        self,
        region: str,
        *,
        profile: str | None = None,
        role_arn: str | None = None,
        session_name: str | None = None,
    ) -> None:
        if profile is not None and role_arn is not None:
            raise ConfigError("MskTokens takes a profile or a role_arn, one of the two")
        if session_name is not None and role_arn is None:
            raise ConfigError("MskTokens takes a session_name with a role_arn only")
        self.region: str = region
        self._profile: str | None = profile
        self._role: tuple[str, ...] = tuple(each for each in (role_arn, session_name) if each)
        _signer()

    @classmethod
    def for_servers(cls, servers: str, **options: Any) -> Self:
        """Return tokens for the region in the servers' names, else the region in `AWS_REGION`.

        Raises ConfigError if there is neither.
        """
        found = _REGION.search(servers)
        region = found[1] if found else os.environ.get("AWS_REGION")
        if region is None:
            raise ConfigError(
                f"{servers} does not tell the region of MSK: set AWS_REGION in the environment"
            )
        return cls(region, **options)

    def __repr__(self) -> str:
        return f"<MskTokens for {self.region}>"

    def __call__(self) -> Token:
        """Return a token that is valid for 15 minutes. Raises the errors of AWS's signer."""
        signer = _signer()
        try:
            if self._profile is not None:
                signed = signer.generate_auth_token_from_profile(self.region, self._profile)
            elif self._role:
                signed = signer.generate_auth_token_from_role_arn(self.region, *self._role)
            else:
                signed = signer.generate_auth_token(self.region)
        except AttributeError as error:
            # Without credentials the signer would fail on None.
            raise OSError(
                "AWS's signer found no credentials: attach a role to this process, or set "
                "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            ) from error
        value, expires_ms = signed
        return Token(value, expires_at=expires_ms / 1000)


def _signer() -> ModuleType:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise ConfigError(f"MSK by IAM needs {error.name}: pip install 'ks-actors[msk]'") from error
    found: ModuleType = MSKAuthTokenProvider
    return found
