"""Programs import the modules that they need, and no others."""

from __future__ import annotations

import ast
import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

import ks_actors
from ks_actors.cli._main import COMMANDS
from ks_actors.cli._main import ks_actors as commands

PACKAGE = Path(ks_actors.__file__).parent
# Each takes longer than all that `import ks_actors` needs, or belongs to an extra.
HEAVY = {
    "aiokafka",
    "asyncio",
    "click",
    "cramjam",
    "fsspec",
    "httpx",
    "importlib.metadata",
    "msgspec",
    "opentelemetry",
    "pandas",
    "prometheus_client",
}
HEAVY |= {"pyarrow", "pyspark", "rich", "rocksdict", "ssl", "starlette", "uvicorn", "uvloop", "zoneinfo"}
APP = """
import asyncio
from ks_actors import App, Batch, Consumed, StreamsBuilder, StreamsConfig, serdes
from ks_actors.log import Outgoing, TopicPartition

async def main():
    got = asyncio.Event()
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed(serdes.STRING, serdes.STRING))
    stream.map_values(str.upper).foreach(lambda key, value: got.set())
    config = StreamsConfig(application_id="small", log="memory://")
    async with App(builder.build(), config, topics={"in": 1}) as app:
        producer = await app.log.producer(client_id="test")
        await producer.send([Outgoing(TopicPartition("in", 0), Batch([b"k"], [b"v"], [0]))])
        await got.wait()

asyncio.run(main())
"""


def loaded_by(code: str) -> set[str]:
    """Return all modules that a program has loaded at its end."""
    program = f"{code}\nimport sys; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    return set(ended.stdout.splitlines()[-1].split())


def faces() -> Iterator[tuple[str, ast.If]]:
    """Yield the packages whose names come on demand, with the imports that type checkers read."""
    for path in sorted(PACKAGE.rglob("__init__.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.If) and node.orelse and "taken_from" in ast.unparse(node.orelse[0]):
                yield ".".join(path.parent.relative_to(PACKAGE.parent).parts), node


FACES = dict(faces())


def test_importing_the_package_loads_next_to_nothing() -> None:
    """Errors and checks of the platform: names come when they are used."""
    loaded = loaded_by("import ks_actors")
    assert HEAVY & loaded == set()
    assert {name for name in loaded if name.startswith("ks_actors.")} <= {
        name for name in loaded if name.startswith(("ks_actors.system", "ks_actors._"))
    }


def test_an_app_loads_no_module_that_it_does_not_need() -> None:
    """Neither operators and stores that its topology lacks, nor other logs, nor what an extra is for."""
    loaded = loaded_by(APP)
    assert (HEAVY - {"asyncio", "msgspec", "rocksdict", "ssl", "uvloop"}) & loaded == set()
    absent = {"batch", "cli", "dsl._table", "dsl.joins", "dsl.windows", "letters", "log.kafka", "metrics.exporters", "query._serve", "state.session"}
    absent |= {
        "processors.aggregates",
        "processors.foreign_keys",
        "processors.joins",
        "processors.tables",
        "state.window",
        "testing",
        "web",
        "app._reset",
    }
    absent |= {"runtime.snapshots", "snapshots._writer", "state.export", "state.key_value", "state.timed", "state.versioned"}
    assert {name for name in absent if f"ks_actors.{name}" in loaded} == set()


def test_help_loads_no_command() -> None:
    """Nor anything of the runtime: the list of commands is ready in a tenth of a second."""
    loaded = loaded_by("import sys; sys.argv = ['ks-actors', '--help']\nfrom ks_actors.cli import main\ntry: main()\nexcept SystemExit: pass")
    assert (HEAVY - {"click"}) & loaded == set()
    modules = {f"ks_actors.cli.{module}" for module, _ in COMMANDS.values()}
    assert {name for name in loaded if name in modules or name.startswith(("ks_actors.app", "ks_actors.runtime"))} == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_their_own_help_says(name: str) -> None:
    """The first sentence."""
    command = commands.get_command(commands.make_context("ks-actors", ["--help"], resilient_parsing=True), name)
    assert command is not None
    assert command.get_short_help_str(1000) == COMMANDS[name][1]


def test_an_unknown_command_is_an_error_that_names_it() -> None:
    """With a hint at one that is alike."""
    result = CliRunner().invoke(commands, ["tials"])
    assert result.exit_code == 2
    assert "No such command 'tials'" in result.output


@pytest.mark.parametrize("package", FACES)
def test_names_on_demand_are_those_that_type_checkers_see(package: str) -> None:
    """Each is the same object as its static import; a misspelled one is an AttributeError."""
    face = importlib.import_module(package)
    for node in FACES[package].body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            source = importlib.import_module(str(node.module))
            wanted = getattr(source, alias.name, None) or importlib.import_module(f"{node.module}.{alias.name}")
            assert getattr(face, alias.asname or alias.name) is wanted
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Misspelled'"):
        face.Misspelled  # noqa: B018 - it raises


def test_all_public_names_are_listed_and_imported_by_a_star() -> None:
    """`dir` has them before their first use, too."""
    program = "import ks_actors; assert set(ks_actors.__all__) <= set(dir(ks_actors)); from ks_actors import *; print(*sorted(globals()))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    assert set(ks_actors.__all__) <= set(ended.stdout.split())


def test_objects_of_public_classes_can_be_pickled() -> None:
    """By the module that defines the class."""
    task = ks_actors.TaskId(1, 2)
    assert pickle.loads(pickle.dumps(task)) == task  # noqa: S301 - our own bytes


def test_public_modules_come_with_the_package() -> None:
    """`ks_actors.log` needs no import of its own."""
    program = "import ks_actors; print(ks_actors.log.open_log, ks_actors.query.KeyQuery, ks_actors.serdes.STRING, ks_actors.stores.key_value)"
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)  # noqa: S603 - our own program
