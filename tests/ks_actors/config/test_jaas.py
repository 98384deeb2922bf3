"""JAAS lines are read as Java reads them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors.config._jaas import LOGINS, jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ('username="a" password="b"', ("a", "b")),
        ("username='a' password='b'", ("a", "b")),
        ("password=b username=a", ("a", "b")),
        ("username='a\"b' password=\"c'd\"", ('a"b', "c'd")),
        (r'username="a\"b\\" password="\t\101\60\x"', ('a"b\\', "\tA0x")),
        ('username = "a"\n\tpassword\n=\n"b"', ("a", "b")),
        ('/* who */ username="a" // and\n password="//b"', ("a", "//b")),
        ("username=\"\" password=''", ("", "")),
    ],
)
def test_values_are_quoted_or_words(options: str, expected: tuple[str, str]) -> None:
    """By either quote, with Java's escapes and comments; the last semicolon may be missing."""
    assert jaas(f"{PLAIN} required {options};") == expected
    assert jaas(f"  {PLAIN} REQUIRED {options}") == expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{PLAIN};", "is not a known login: expected PlainLoginModule or ScramLoginModule required"),
        (f"{PLAIN} needed username=hunter2 password=hunter2;", "is not a known login"),
        (f"{PLAIN} required username=hunter2 password;", "is not a known login"),
        (f"{PLAIN} required username=hunter2 = hunter2;", "is not a known login"),
        (f"{PLAIN} required username=hunter2; password=hunter2;", "is not a known login"),
        (f'{PLAIN} required username="hunter2 password=hunter2;', "has a quote without end, or a slash outside of quotes"),
        (f"{PLAIN} required username=hunter2 password=hunter/2;", "has a quote without end, or a slash outside of quotes"),
        (f"{PLAIN} required username=hunter2 password=hunter2 username=x;", "has the same option twice"),
        (f"{PLAIN} required username=hunter2;", "must have a username and a password, and has no password"),
        (f"{PLAIN} required password=hunter2;", "must have a username and a password, and has no username"),
        (f"{PLAIN} required username=hunter2 password=hunter2 tokenauth=true serviceName=x;", "are not supported: serviceName, tokenauth"),
    ],
)
def test_a_line_that_is_wrong_is_refused_without_its_content(line: str, message: str) -> None:
    """Names of options are told, values are not."""
    with pytest.raises(ValueError, match=message) as caught:
        jaas(line)
    assert "hunter2" not in str(caught.value)


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"))


@given(st.sampled_from(LOGINS), TEXT, TEXT, st.sampled_from("\"'"), st.sampled_from(["", " ", "\n\t"]))
def test_any_password_can_be_quoted(login: str, username: str, password: str, quote: str, blank: str) -> None:
    """By either quote, if quotes and backslashes in it are escaped."""

    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
        return f"{quote}{escaped}{quote}"

    line = f"x.{login} required{blank} username{blank}={blank}{quoted(username)} password={quoted(password)}{blank};"
    assert jaas(line) == (username, password)


@given(st.text())
def test_any_line_is_read_or_refused(line: str) -> None:
    """With an error that is told as one of a setting."""
    for text in (line, f"{PLAIN} required {line}"):
        with suppress(ValueError):
            assert len(jaas(text)) == 2
