"""Sources of settings: mappings, the environment, TOML and .properties files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors._errors import ConfigError
from ks_actors.config._names import canonical
from ks_actors.kernel import SWITCHES
from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = Later("tomllib")

TABLES = ("ks-actors", "ks_actors")
# Settings whose values are mappings.
_MAPPINGS = ("topic_configs", "sasl_oauthbearer_extensions", "client_tags")
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
BLANKS = " \t\f"
LINE_END = re.compile(r"\r\n|\r|\n")
PAIR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


class Given(NamedTuple):
    """A setting as given: its canonical name, value, and origin with the name used there."""

    name: str
    value: Any
    origin: str
    literal: bool = False
    """Whether a placeholder in the value is meant as text: in the environment and in keywords."""

    def __repr__(self) -> str:
        # The value may be a secret, and tracebacks of some tools show locals.
        return f"<{self.name} of {self.origin}>"


def from_mapping(settings: Mapping[str, Any], origin: str) -> tuple[Given, ...]:
    """Return settings by name, `commit.interval.ms` or `commit_interval_ms`.

    Nested mappings are parts of a name: TOML reads dots so. Raises ConfigError for names that are
    not texts, and for two spellings of one name, as neither overrides the other.
    """
    # The origin of a file is its name, which has a suffix.
    literal = origin == "keyword"
    found: dict[str, tuple[str, Given]] = {}
    for name, value in _flat(settings):
        if not isinstance(name, str):
            raise ConfigError(f"{name!r} ({origin}): is not the name of a setting: names are texts")
        given = Given(canonical(name), value, origin, literal)
        other, _ = found.setdefault(given.name, (name, given))
        if other != name:
            raise ConfigError(
                f"{name} ({origin}): is another spelling of {other}, which is set, too: set one of "
                "them"
            )
    return tuple(given for _, given in found.values())


def from_environment(environ: Mapping[str, str], prefix: str) -> tuple[Given, ...]:
    """Return settings from variables such as KS_ACTORS_COMMIT_INTERVAL_MS.

    `prefix` ends with an underscore. Skips the kernel's switches, and the variables that Kubernetes
    makes for a service whose name begins with `ks-actors` (`enableServiceLinks`).
    """
    of_services = _of_services(environ, prefix.removesuffix("_"))
    names = sorted(
        name
        for name in environ
        if name.startswith(prefix) and name not in SWITCHES and not of_services(name)
    )
    return tuple(
        Given(name.removeprefix(prefix).lower(), environ[name], f"environment {name}", literal=True)
        for name in names
    )


def _of_services(environ: Mapping[str, str], prefix: str) -> Callable[[str], bool]:
    """Return a check whether Kubernetes makes a variable of this name for a service."""
    host = "_SERVICE_HOST"
    services = [
        re.escape(name.removesuffix(host))
        for name in environ
        if name.startswith(prefix) and name.endswith(host)
    ]
    if not services:
        return lambda _: False
    ends = r"_SERVICE_HOST|_SERVICE_PORT(_\w+)?|_PORT(_\d+_[A-Z]+(_PROTO|_PORT|_ADDR)?)?"
    names = re.compile(rf"({'|'.join(services)})({ends})")
    return lambda name: names.fullmatch(name) is not None


def from_file(path: Path) -> tuple[Given, ...]:
    """Return settings from a `.toml` or `.properties` file.

    TOML: its table `ks-actors` if there is one, else the whole file. Raises ConfigError for any
    other file, and for a file that cannot be read.
    """
    if path.suffix not in {".toml", ".properties"}:
        raise ConfigError(f"{path}: settings come from .toml and .properties files")
    try:
        # Editors on Windows put a byte order mark in front.
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix == ".properties":
            return tuple(
                Given(canonical(name), value, path.name) for name, value in parse_properties(text)
            )
        content = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    table = next((content[name] for name in TABLES if isinstance(content.get(name), dict)), content)
    return from_mapping(table, path.name)


def _flat(settings: Any, within: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values; nested mappings, but for values that are mappings, are names."""
    if not isinstance(settings, Mapping):
        raise ConfigError(
            f"settings are a {type(settings).__name__}: give a mapping of names to values"
        )
    for name, value in settings.items():
        if not isinstance(name, str):
            yield name, value
            continue
        # The names of topic configs have dots of their own, which TOML reads as tables.
        if isinstance(value, dict) and canonical(within + name) in _MAPPINGS:
            yield name, dict(_flat(value))
        elif isinstance(value, dict):
            parts = _flat(value, f"{within}{name}.")
            yield from ((f"{name}.{part}", inner) for part, inner in parts)
        else:
            yield name, value


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield the pairs of a Java properties file, as java.util.Properties reads them.

    `#` and `!` begin comments, `\` at the end of a line joins the next, `\uXXXX` is a character; a
    surrogate pair is one character. A lone backslash at the end of the file, of which Java makes a
    setting without a name, is ignored. Raises ValueError, which names the setting.
    """
    for match in filter(None, map(PAIR.fullmatch, _logical_lines(LINE_END.split(text)))):
        name = _unescape(match[1], "a name")
        yield name, _unescape(match[2], f"the value of {name}")


def _logical_lines(lines: Iterable[str]) -> Iterator[str]:
    whole = ""
    for line in lines:
        part = line.lstrip(BLANKS)
        # Also after a line with only a backslash, which leaves nothing to continue.
        if not whole and (not part or part[0] in "#!"):
            continue
        whole += part
        # Two backslashes at the end are an escaped backslash; an odd one continues the line.
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        if whole:
            yield whole
        whole = ""
    if whole:
        yield whole


def _unescape(text: str, what: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ValueError(rf"\u without four hexadecimal digits in {what}")
        return chr(int(escape[1:], 16)) if len(escape) > 1 else ESCAPES.get(escape, escape)

    found = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text, flags=re.DOTALL)
    try:
        # Java's characters have 16 bits: a surrogate pair is one character here.
        return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise ValueError(f"half of a surrogate pair (\\u) in {what}: write both halves") from None
