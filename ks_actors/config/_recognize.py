"""Given names sorted into settings, clients' settings, topic configs and those not supported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ks_actors._hints import SETTINGS as OTHERS
from ks_actors.config._clients import (
    TOPIC,
    USERS,
    Prefixed,
    is_accepted,
    named,
    prefixed,
)
from ks_actors.config._names import ALIASES, canonical, shown
from ks_actors.config._refused import refusal
from ks_actors.config._settings import SETTINGS
from ks_actors.system import Later

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ks_actors.config._sources import Given

if TYPE_CHECKING:
    import difflib
else:
    difflib = Later("difflib")

HINT = "settings that are not supported are accepted, and ignored, if ignored_settings lists them"


@dataclass
class Recognized:
    """The settings of all sources so far; later sources override earlier ones.

    Only the effective values are checked: an overridden value may be wrong.
    """

    latest: dict[str, Given] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Messages about settings that are not supported, by the given name."""
    doubled: dict[str, str] = field(default_factory=dict)
    """Messages about settings that one source gives by two names, by the setting."""
    shared: dict[str, tuple[Given, str]] = field(default_factory=dict)
    """By given name: a setting for one of the clients that share it, and its name without prefix.
    """
    topics: dict[str, Given] = field(default_factory=dict)
    """Configs of internal topics by their names."""
    wrong_topics: dict[str, str] = field(default_factory=dict)
    """Messages about wrong topic configs, by name, or by `topic_configs` for a whole source."""

    def add(self, source: Iterable[Given]) -> None:
        """Add the settings of a source."""
        found: dict[str, tuple[int, Given]] = {}
        doubled: dict[str, str] = {}
        for entry in source:
            self.refused.pop(entry.name, None)
            name = ALIASES.get(entry.name, entry.name)
            if name == "topic_configs":
                self._add_topics(entry)
            elif name in SETTINGS:
                _note(found, doubled, name, 0, entry)
            elif entry.name in OTHERS:
                self._refuse(entry, unknown(entry.name))
            elif (client := prefixed(entry.name)) is not None:
                self._add_prefixed(found, doubled, client, entry)
            elif entry.name.startswith(TOPIC) and entry.name != TOPIC:
                config = entry.name.removeprefix(TOPIC).replace("_", ".")
                self.topics[config] = entry
                self.wrong_topics.pop(config, None)
            elif not is_accepted(entry.name, entry.value):
                self._refuse(entry, refusal(entry.name) or unknown(entry.name))
        self.latest |= {name: entry for name, (_, entry) in found.items()}
        self.doubled = {
            name: said for name, said in self.doubled.items() if name not in found
        } | doubled

    def _add_topics(self, entry: Given) -> None:
        parse = SETTINGS["topic_configs"].parse
        try:
            configs = parse(entry.value)
        except ValueError as error:
            self._add_wrong_topics(
                entry, f"topic_configs ({entry.origin}): {entry.value!r} {error}"
            )
            return
        self.topics |= {name: entry._replace(value=value) for name, value in configs.items()}
        for name in ("topic_configs", *configs):
            self.wrong_topics.pop(name, None)

    def _add_wrong_topics(self, entry: Given, said: str) -> None:
        """Note the wrong configs, so that a later source can override them."""
        parse = SETTINGS["topic_configs"].parse
        wrong = set()
        for name, value in entry.value.items() if isinstance(entry.value, Mapping) else ():
            try:
                parse({name: value})
            except ValueError:
                wrong.add(str(name).replace("_", "."))
        self.wrong_topics |= dict.fromkeys(wrong or ("topic_configs",), said)

    def _add_prefixed(
        self,
        found: dict[str, tuple[int, Given]],
        doubled: dict[str, str],
        client: Prefixed,
        entry: Given,
    ) -> None:
        name = ALIASES.get(client.name, client.name)
        users = USERS.get(name)
        if users is None:
            if not is_accepted(name, entry.value):
                self._refuse(entry, refusal(name) or refusal(client.prefix) or unknown(entry.name))
        elif users <= client.clients:
            _note(found, doubled, name, client.rank, entry)
        elif users & client.clients:
            self.shared[entry.name] = entry, name
        else:
            self._refuse(
                entry,
                f"not supported, because {name} is of {named(users)} only",
            )

    def _refuse(self, entry: Given, why: str) -> None:
        self.refused[entry.name] = f"{entry.name} ({entry.origin}): {why}"

    def check_shared(self, values: Mapping[str, Any]) -> None:
        """Refuse settings for one client that differ from the setting that the clients share."""
        for entry, name in self.shared.values():
            try:
                same = SETTINGS[name].parse(entry.value) == values[name]
            except ValueError as error:
                told = shown(entry.name, entry.value)
                self.problems.append(f"{entry.name} ({entry.origin}): {told} {error}")
                continue
            if not same:
                self._refuse(
                    entry,
                    f"not supported, because one {name} is for {named(USERS[name])}: "
                    "give it without a prefix",
                )

    def ignore(self, patterns: Collection[str]) -> tuple[str, ...]:
        """Drop the refused settings that the patterns name; return their names, in order.

        A pattern is a name, or the beginning of names, followed by `*`. A supported name becomes a
        problem.
        """
        names = [canonical(pattern) for pattern in patterns]
        ignored = sorted(
            name for name in self.refused if any(fnmatchcase(name, each) for each in names)
        )
        for name in ignored:
            del self.refused[name]
        self.problems += [
            f"ignored_settings: {name} is supported: remove it from the list"
            for name in names
            if ALIASES.get(name, name) in SETTINGS
        ]
        return tuple(ignored)

    def has_unsupported(self) -> bool:
        """Return whether a refused name is known, so that ignoring it may be meant."""
        return any("not supported" in said for said in self.refused.values())

    def wrong(self) -> list[str]:
        """Return all problems, those of names first."""
        topics = dict.fromkeys(self.wrong_topics.values())
        return [*self.refused.values(), *self.doubled.values(), *topics, *self.problems]


def _note(
    found: dict[str, tuple[int, Given]],
    doubled: dict[str, str],
    name: str,
    rank: int,
    entry: Given,
) -> None:
    """Note the setting of a source, unless the source has it with a narrower prefix, too."""
    held, other = found.get(name, (-1, entry))
    # Two names for one setting in the same source: neither name is later than the other.
    if held == rank and other.name != entry.name:
        doubled[name] = (
            f"{entry.name} ({entry.origin}): is another name of {other.name}, which is set, too"
        )
    elif rank >= held:
        found[name] = rank, entry


def unknown(name: str) -> str:
    """Return the message about an unknown name, with the closest known name."""
    close = (
        [OTHERS[name]]
        if name in OTHERS
        else difflib.get_close_matches(name, [*SETTINGS, *ALIASES], n=1)
    )
    return f"is unknown; did you mean {close[0]}?" if close else "is unknown"
