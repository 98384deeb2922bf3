"""The lists in the pages about streams are complete."""

from __future__ import annotations

import inspect
import re
import tempfile
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import ks_actors
from ks_actors import KsActorsError, StreamsConfig, _errors
from ks_actors.config._exception_handlers import log_and_fail
from ks_actors.config._settings import SETTINGS
from ks_actors.runtime import InstanceState, TaskState, UncaughtResponse, WorkerState, messages
from ks_actors.runtime.commit._states import CommitState, Phase
from ks_actors.runtime.globals import _global_tables

DOCS = Path(__file__).parents[2] / "docs"


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the tables below a heading, group by group."""
    text = (DOCS / page).read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    tables = re.findall(r"^\|.*?\n\n", text + "\n\n", re.MULTILINE | re.DOTALL)
    assert tables != []
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for table in tables for line in table.strip().splitlines()[2:]]


IN_WORDS = {
    "application_id": "required",
    "client_id": "`application_id`",
    "log": "the Kafka at `bootstrap_servers`; an app needs one of the two, or `App(log=…)`",
    "replication_factor": "-1, the brokers' default",
    "ssl_truststore_location": "the system's",
    "state_dir": "`ks-actors` in the directory for temporary files",
}


def shown(name: str, value: Any) -> str:
    """Return how the page writes a default."""
    if name in IN_WORDS:
        return IN_WORDS[name]
    if value is None or value in ((), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, int):
        return f"{value:,}"
    word = "fail" if value is log_and_fail else value.value if isinstance(value, Enum) else str(value)
    return f"`{word}`".replace("()", "")


def test_configuration_has_exactly_the_settings_with_their_defaults() -> None:
    """The page lists each setting, in order, with its default under at-least-once, and under exactly once if that differs."""
    least, exactly = (StreamsConfig(application_id="app", processing_guarantee=each) for each in ("at_least_once", "exactly_once_v2"))
    assert least.state_dir == Path(tempfile.gettempdir()) / "ks-actors"
    expected = []
    for name in SETTINGS:
        default = shown(name, getattr(least, name))
        other = shown(name, getattr(exactly, name))
        expected.append((f"`{name}`", default if other == default or name == "processing_guarantee" else f"{default}; {other} under exactly once"))
    assert [(row[0], row[1]) for row in rows("configuration.md", "Settings")] == expected


def test_errors_has_exactly_the_errors_in_their_tree() -> None:
    """The page lists each error of ks_actors, below the one that it is a kind of, and each of them is public."""
    path: list[type[BaseException]] = []
    listed = []
    for row in rows("errors.md", "The tree"):
        match = re.fullmatch(r"((?:│ )*(?:[├└] )?)`(\w+)`", row[0])
        assert match is not None, row[0]
        depth = len(match[1]) // 2
        kind = getattr(ks_actors, match[2])
        path[depth:] = [kind]
        listed.append(kind)
        if depth:
            assert kind.__bases__[0] is path[depth - 1], kind
    defined = [kind for _, kind in inspect.getmembers(_errors, inspect.isclass) if issubclass(kind, KsActorsError)]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(defined)
    assert [kind.__name__ for kind in defined if kind.__name__ not in ks_actors.__all__] == []


def test_procedures_speaks_of_messages_and_states_that_exist() -> None:
    """Each word in capitals on the page is a state, a phase or an answer; each other name with a capital is a message, an actor or public."""
    page = (DOCS / "procedures.md").read_text(encoding="utf-8")
    states = {member.name for kind in (InstanceState, WorkerState, TaskState, UncaughtResponse, CommitState, Phase) for member in kind}
    assert set(re.findall(r"`([A-Z][A-Z_]+)`", page)) - states == set()
    known = {*vars(messages), *vars(_global_tables), *dir(ks_actors)}
    assert set(re.findall(r"`([A-Z]\w*[a-z]\w*)`", page)) - known == set()


def test_architecture_names_folders_and_files_that_exist() -> None:
    """All folders are in its table, those that it names are there, and a walk through the files of a section comes to none of them twice."""
    source = Path(ks_actors.__file__).parent
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    sections = {text.partition("\n")[0]: text for text in page.split("\n## ")}
    top = {path.name for path in source.iterdir() if (path / "__init__.py").exists()}
    assert {name for name in re.findall(r"`([a-z]+)/`", sections["Folders"]) if (source / name).is_dir()} >= top
    for text in sections.values():
        files = re.findall(r"((?:[a-z_]+/)+_\w+\.py)", text)
        assert [name for name in files if not (source / name).exists()] == []
        assert len(files) == len(set(files))
    base = source
    for line in page.splitlines():
        named = re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", line)
        if line.startswith("Of `"):
            base = source.parent / named[0]
        places = [source.parent, base]
        for name in named:
            found = next((place / name for place in places if (place / name).exists()), None)
            assert found is not None, name
            places += [found] if line.startswith("|") else []  # the next ones of a row may lie in it


@pytest.mark.parametrize("page", sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")))
def test_pages_name_attributes_that_exist(page: str) -> None:
    """Names such as `App.x` and `Table.x` on a page exist."""
    text = (DOCS / page).read_text(encoding="utf-8")
    kinds = [kind for kind in (getattr(ks_actors, name) for name in ks_actors.__all__) if inspect.isclass(kind)]
    by_name = {kind.__name__: kind for kind in kinds}
    named = re.findall(r"`([A-Z]\w+)\.([a-z]\w+)", text)
    assert [f"{kind}.{name}" for kind, name in named if kind in by_name and not hasattr(by_name[kind], name)] == []
