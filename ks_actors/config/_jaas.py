"""JAAS lines, which name the login of Kafka's Java clients."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

LOGINS: Final = ("PlainLoginModule", "ScramLoginModule")
_IAM: Final = "IAMLoginModule"
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_EXPECTED: Final = (
    f'is not a known login: expected {" or ".join(LOGINS)} required username="…" password="…";'
)
_ELSEWHERE: Final = {
    "OAuthBearerLoginModule": (
        "is a login by OAUTHBEARER: set sasl_oauthbearer_client_credentials_client_id and "
        "…_client_secret, sasl_oauthbearer_scope and sasl_oauthbearer_extensions in its place"
    ),
    "Krb5LoginModule": (
        "is a login by GSSAPI: run kinit in its place, or name the keytab by the environment "
        "variable KRB5_CLIENT_KTNAME"
    ),
}
# Java reads the line by its StreamTokenizer: both quotes, both kinds of comments.
_TOKEN: Final = re.compile(
    r"(?P<blank>[\x00-\x20]+|//[^\r\n]*|/\*.*?\*/)"
    r"|(?P<quoted>\"(?:[^\"\\\r\n]|\\.)*\"|'(?:[^'\\\r\n]|\\.)*')"
    r"|(?P<word>[^\x00-\x20\"'=;/]+)"
    r"|(?P<sign>[=;])",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class IamLogin(NamedTuple):
    """The identity for Amazon MSK: a profile, or a role to assume, else that of the process."""

    profile: str | None = None
    role_arn: str | None = None
    session_name: str | None = None


# Options of Amazon's login, in the order of the fields above.
_OF_IAM: Final = ("awsProfileName", "awsRoleArn", "awsRoleSessionName")


class _Token(NamedTuple):
    text: str
    sign: bool


def jaas(value: Any) -> tuple[str, str] | IamLogin:
    """Parse a JAAS line of Kafka's Java clients; return user name and password.

    Example: `…PlainLoginModule required username="alice" password="…";`. The line of Amazon's
    client names a profile or a role: `…IAMLoginModule required awsProfileName="orders";`. Values
    are in double or single quotes, with Java's escapes, or plain words. Raises ValueError, whose
    text has only names of options, never values.
    """
    if not isinstance(value, str):
        raise ValueError(_EXPECTED)  # noqa: TRY004 - one error type for bad values
    tokens = list(_tokens(value))
    if tokens and tokens[-1] == (";", True):
        tokens.pop()
    head, options = tokens[:2], [tokens[at : at + 3] for at in range(2, len(tokens), 3)]
    module = head[0].text.rpartition(".")[2] if head else ""
    if module in _ELSEWHERE:
        raise ValueError(_ELSEWHERE[module])
    if (
        [token.sign for token in head] != [False, False]
        or module not in (*LOGINS, _IAM)
        or head[1].text.lower() not in _FLAGS
        or not all(
            [token.sign for token in option] == [False, True, False] and option[1].text == "="
            for option in options
        )
    ):
        raise ValueError(_EXPECTED)
    found = {name.text: given.text for name, _, given in options}
    known = _OF_IAM if module == _IAM else ("username", "password")
    if others := sorted(found.keys() - {*known}):
        raise ValueError(
            f"has options besides {', '.join(known[:-1])} and {known[-1]}, which are not "
            f"supported: {', '.join(others)}"
        )
    if len(found) != len(options):
        raise ValueError("has the same option twice")
    if module == _IAM:
        return IamLogin(*map(found.get, _OF_IAM))
    if missing := [name for name in ("username", "password") if name not in found]:
        raise ValueError(f"must have a username and a password, and has no {missing[0]}")
    return found["username"], found["password"]


def _tokens(line: str) -> Iterator[_Token]:
    at = 0
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError(
                "has a quote without end, or a slash outside of quotes: put values in quotes"
            )
        at = match.end()
        if match.lastgroup == "quoted":
            yield _Token(_ESCAPE.sub(_escaped, match[0][1:-1]), sign=False)
        elif match.lastgroup != "blank":
            yield _Token(match[0], sign=match.lastgroup == "sign")


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _ESCAPES.get(escape, escape)
