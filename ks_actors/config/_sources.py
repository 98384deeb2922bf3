"""Sources of settings: mappings, the environment, TOML and .properties files."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING, Any, NamedTuple

from ks_actors._errors import ConfigError
from ks_actors.config._names import canonical
from ks_actors.kernel import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

TABLES = ("ks-actors", "ks_actors")
ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
PAIR = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)


class Given(NamedTuple):
    """A setting as given: its canonical name, value, and origin with the name used there."""

    name: str
    value: Any
    origin: str


def from_mapping(settings: Mapping[str, Any], origin: str) -> tuple[Given, ...]:
    """Return settings by name, `commit.interval.ms` or `commit_interval_ms`.

    Nested mappings are parts of a name: TOML reads dots so.
    """
    return tuple(Given(canonical(name), value, origin) for name, value in _flat(settings))


def from_environment(environ: Mapping[str, str], prefix: str) -> tuple[Given, ...]:
    """Return settings from variables such as KS_ACTORS_COMMIT_INTERVAL_MS.

    `prefix` ends with an underscore. Skips the kernel's switches.
    """
    names = sorted(name for name in environ if name.startswith(prefix) and name not in SWITCHES)
    return tuple(
        Given(name.removeprefix(prefix).lower(), environ[name], f"environment {name}")
        for name in names
    )


def from_file(path: Path) -> tuple[Given, ...]:
    """Return settings from a `.toml` or `.properties` file.

    TOML: its table `ks-actors` if there is one, else the whole file. Raises ConfigError for any
    other file, and for one that cannot be read.
    """
    if path.suffix not in {".toml", ".properties"}:
        raise ConfigError(f"{path}: settings come from .toml and .properties files")
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".properties":
            return tuple(
                Given(canonical(name), value, path.name) for name, value in parse_properties(text)
            )
        content = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    table = next((content[name] for name in TABLES if isinstance(content.get(name), dict)), content)
    return from_mapping(table, path.name)


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{part}", inner) for part, inner in _flat(value))
        else:
            yield name, value


def parse_properties(text: str) -> Iterator[tuple[str, str]]:
    r"""Yield the pairs of a Java properties file.

    `#` and `!` begin comments, `\` at the end of a line joins the next, `\uXXXX` is a character.
    """
    for match in filter(None, map(PAIR.fullmatch, _logical_lines(text.splitlines()))):
        yield _unescape(match[1]), _unescape(match[2])


def _logical_lines(lines: Iterable[str]) -> Iterator[str]:
    whole = ""
    for line in lines:
        part = line.lstrip()
        if not whole and (not part or part[0] in "#!"):
            continue
        whole += part
        # An even number of backslashes at the end is that many escaped ones.
        if (len(whole) - len(whole.rstrip("\\"))) % 2:
            whole = whole[:-1]
            continue
        yield whole
        whole = ""
    if whole:
        yield whole


def _unescape(text: str) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match[1]
        if escape == "u":
            raise ValueError(rf"\u without four hexadecimal digits in {text!r}")
        return chr(int(escape[1:], 16)) if len(escape) > 1 else ESCAPES.get(escape, escape)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", character, text)
