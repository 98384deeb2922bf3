"""The rules of the house, for sources and tests alike."""

from __future__ import annotations

import ast
import collections
import functools
import importlib
import inspect
import os
import pkgutil
import re
import runpy
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import actors
import actors.testing
import ks_actors
import ks_actors.assignment
import ks_actors.batch
import ks_actors.cli
import ks_actors.dsl
import ks_actors.letters
import ks_actors.log
import ks_actors.metrics.exporters
import ks_actors.processors
import ks_actors.query
import ks_actors.registry
import ks_actors.runtime
import ks_actors.serdes
import ks_actors.snapshots
import ks_actors.state
import ks_actors.testing
import ks_actors.topics
import ks_actors.topology
import ks_actors.tracing
import ks_actors.web

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import ModuleType

ROOT = Path(__file__).parents[2]
PACKAGES = (
    actors,
    actors.testing,
    ks_actors,
    ks_actors.assignment,
    ks_actors.batch,
    ks_actors.cli,
    ks_actors.dsl,
    ks_actors.letters,
    ks_actors.log,
    ks_actors.metrics,
    ks_actors.metrics.exporters,
    ks_actors.processors,
    ks_actors.query,
    ks_actors.registry,
    ks_actors.runtime,
    ks_actors.serdes,
    ks_actors.snapshots,
    ks_actors.state,
    ks_actors.testing,
    ks_actors.topics,
    ks_actors.topology,
    ks_actors.tracing,
    ks_actors.web,
)
# The folders of both packages, floor by floor: a module imports only from its own folder and from floors below, when it runs.
FLOORS_OF_ACTORS: tuple[tuple[str, ...], ...] = (
    ("events", "loop"),
    ("messages",),
    ("mailbox",),
    ("supervision",),
    ("actor",),
    ("system",),
    ("testing",),
)
FLOORS_OF_STREAMS: tuple[tuple[str, ...], ...] = (
    ("system",),
    (
        "kernel",
        "lifecycle",
        "runtime/messages",
    ),
    ("records",),
    (
        "log/embedded",
        "log/kafka/login",
        "log/kafka/wire",
        "metrics/families",
        "serdes",
        "snapshots",
        "tracing",
    ),
    (
        "history",
        "log/kafka/client",
        "metrics",
        "processors/api",
        "state/core",
    ),
    (
        "log/kafka/admin",
        "metrics/exporters",
        "log/kafka/consumer",
        "log/kafka/producer",
        "processors/stateless",
        "state/disk",
        "state/key_value",
        "state/timed",
        "task/origins",
        "task/times",
        "topology",
    ),
    (
        "log/kafka/transactions",
        "dsl/graph",
        "dsl/windows",
        "processors/aggregates",
        "state/custom",
        "state/join_window",
        "state/session",
        "state/versioned",
        "task/calls",
    ),
    (
        "log/kafka/group",
        "processors/tables",
        "state/export",
        "state/window",
    ),
    ("state/task_stores",),
    (
        "log/kafka",
        "processors",
        "processors/foreign_keys",
        "processors/joins",
        "state",
        "task/figures",
    ),
    ("dsl/joins", "task/turns"),
    (
        "dsl",
        "log",
    ),
    (
        "assignment",
        "config",
        "registry",
        "runtime/shared",
    ),
    ("letters", "task"),
    (
        "batch/tables",
        "runtime/fetching",
        "runtime/output",
        "runtime/stores",
        "topics",
    ),
    ("runtime/membership",),
    (
        "query/remote",
        "runtime/commit",
        "runtime/globals",
        "runtime/snapshots",
    ),
    (
        "batch/backfill",
        "query",
        "runtime/processing",
        "runtime/watch",
    ),
    ("runtime/metrics",),
    (
        "batch/source",
        "runtime/instance",
    ),
    (
        "batch/spark",
        "runtime",
    ),
    ("batch",),
    ("app",),
    (
        "testing",
        "web",
    ),
    ("cli/dev", "cli/new", "cli/processes"),
    ("cli",),
)
FLOORS = {"actors": FLOORS_OF_ACTORS, "ks_actors": FLOORS_OF_STREAMS}
# The classes with more than 400 lines. None is added: a part of a class that grows becomes a class of its own.
LARGE = {
    "Admin", "App", "Collector", "Committer", "EmbeddedLog", "GroupMember", "Instance", "JoinWindowRows", "KafkaClient",
    "KafkaTransactionalProducer", "Restorer", "Sender", "SessionStore", "StateManager", "Stream", "StreamsConfig", "Table", "Task",
    "TaskManager", "TaskStores", "TimedStore", "Topology", "Transactional", "UpdateCache", "VersionedKeyValueStore", "Wiring",
}  # fmt: skip
SKIP = ("tests/kafka/broker.py", "tests/ks_actors/web/browser.py")
FIGURES = runpy.run_path(str(ROOT / "scripts" / "house_figures"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def expect_none(faults: Iterable[str]) -> None:
    """Fail with all faults that a rule has found, one a line."""
    if found := list(faults):
        pytest.fail(f"{len(found)} faults:\n" + "\n".join(found), pytrace=False)


@pytest.fixture(scope="module")
def houses() -> dict[str, Any]:
    """Return the facts of the files of each package, and of the tests, read once for all rules."""
    return {name: FIGURES["House"](ROOT, name) for name in (*FLOORS, "tests")}


@pytest.fixture(scope="module")
def sources(houses: dict[str, Any]) -> dict[Path, Any]:
    """Return the facts of each file of the packages."""
    return {path: file for package in FLOORS for path, file in houses[package].files.items()}


@pytest.fixture(scope="module")
def tests(houses: dict[str, Any]) -> dict[Path, Any]:
    """Return the facts of each file of tests, but for the wrong code that type checkers are tested with."""
    return {path: file for path, file in houses["tests"].files.items() if "cases" not in path.parts}


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def names_for_other_folders(package: ModuleType) -> Iterator[str]:
    """Return the names that a face has for other folders, and not for users: those that it imports as themselves."""
    for node in ast.walk(ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)


def faults_of_exports(package: ModuleType) -> Iterator[str]:
    """Yield the names that `__all__` lacks or has for nothing, and those without a docstring."""
    exported = {name for name in package.__all__ if hasattr(package, name)}  # those on demand are loaded by this
    yield from (f"{name} is in __all__, and not in the module" for name in set(package.__all__) - exported)
    # A module is public where it is exported: a namespace such as `ks_actors.serdes`.
    public = {name for name, value in vars(package).items() if not name.startswith("_") and (not inspect.ismodule(value) or name in exported)}
    public -= {"TYPE_CHECKING", "VERSION", "annotations", "taken_from", *names_for_other_folders(package)}
    yield from (f"{name} is in __all__ or in the module, not in both" for name in public ^ {name for name in exported if not name.startswith("__")})
    for name in exported & vars(package).keys():
        value = getattr(package, name)
        if (inspect.ismodule(value) or inspect.isclass(value)) and not value.__doc__:
            yield f"{name} has no docstring"
        if inspect.isclass(value):
            yield from (f"{name}.{member} has no docstring" for member, function in members(value) if not function.__doc__)


def test_every_public_name_is_exported_and_documented() -> None:
    """__all__ is complete, and all of it has a docstring."""
    expect_none(f"{package.__name__}: {fault}" for package in PACKAGES for fault in faults_of_exports(package))


def test_every_module_can_be_imported_by_itself() -> None:
    """Private modules have a first line that names their content."""
    modules = [module.name for package in PACKAGES for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    expect_none(f"{name} has no docstring" for name in modules if not importlib.import_module(name).__doc__)


@pytest.mark.extended
@pytest.mark.heavy("compiles the kernel")
def test_the_wheel_holds_both_packages_with_their_types_and_nothing_else(tmp_path: Path, sources: dict[Path, Any]) -> None:
    """Users install these files: all modules, the markers for type checkers, the plugin's entry point."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    environment = os.environ | {"KS_ACTORS_WITH_KERNEL": "1", "KS_ACTORS_WITHOUT_KERNEL": "0"}
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, env=environment)  # noqa: S603 - our own command
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        kernel = f"ks_actors/kernel/_kernel{sysconfig.get_config_var('EXT_SUFFIX')}"
        (entry_points,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("entry_points.txt"))
    page = {relative(path) for path in (ROOT / "ks_actors" / "web" / "static").iterdir()}
    templates = {relative(path) for path in (ROOT / "ks_actors" / "cli" / "new" / "template").iterdir()}
    others = {"actors/py.typed", "ks_actors/py.typed", "ks_actors/kernel/_kernel.pyi", kernel, "ks_actors/metrics/exporters/grafana.json"}
    expect_none(names ^ ({*map(relative, sources)} | others | page | templates))
    assert "\nactors = actors.testing.plugin\nks_actors = ks_actors._pytest_plugin\n" in entry_points


def test_arrows_run_one_way(sources: dict[Path, Any]) -> None:
    """actors knows nothing of ks_actors, nor of its own test kit; pytest is the plugin's alone."""

    def forbidden(path: str) -> tuple[str, ...]:
        below = path.startswith("actors/")
        return ("ks_actors",) * below + ("actors.testing",) * (below and "testing" not in path) + ("pytest",) * (not path.endswith("plugin.py"))

    imports = re.compile(r"\s*(?:from|import) ([\w.]+)")
    expect_none(
        f"{relative(path)}:{number} imports {found[1]}"
        for path, file in sources.items()
        for number, line in enumerate(file.text.splitlines(), 1)
        if (found := imports.match(line)) and found[1].startswith(forbidden(relative(path)))
    )


def folder_in_package(path: Path) -> Path | None:
    """Return the folder of a file, relative to the root; None of a file in the package's own."""
    folder = path.parent.relative_to(ROOT)
    return folder if len(folder.parts) > 1 else None


def test_the_floors_name_each_folder_once(sources: dict[Path, Any]) -> None:
    """A new folder gets its place among them."""
    named = [Path(package, name) for package, floors in FLOORS.items() for floor in floors for name in floor]
    assert len(named) == len(set(named))
    expect_none(f"{folder} is among the floors or there, not both" for folder in {*named} ^ {*map(folder_in_package, sources), None} - {None})


@functools.cache
def folder_of(module: str, name: str) -> Path:
    """Return the folder that an import takes a name from."""
    for place in (Path(*module.split("."), name), Path(*module.split("."))):
        if (ROOT / place).is_dir():
            return place
        if (ROOT / place).with_suffix(".py").exists() or (ROOT / place).with_suffix(".pyi").exists():
            return place.parent
    raise AssertionError(f"{module} has no {name}")


def imports_of_others(sources: dict[Path, Any]) -> Iterator[tuple[str, Path, Path, Any]]:
    """Yield the imports of each folder from other ones of its package that it is not in: the place, both folders, and the import."""
    for path, file in sources.items():
        if here := folder_in_package(path):
            for one in file.imports:
                if one.module.split(".")[0] == here.parts[0] and (there := folder_of(one.module, one.name)) not in (here, *here.parents):
                    yield f"{relative(path)}:{one.line}", here, there, one


def test_folders_import_only_from_floors_below(sources: dict[Path, Any]) -> None:
    """Parts may import the modules of a folder that they are in: its face alone is above them."""
    floors = {Path(package, name): number for package in FLOORS for number, floor in enumerate(FLOORS[package]) for name in floor}
    others = imports_of_others(sources)
    expect_none(f"{place} imports {one.module}" for place, here, there, one in others if not one.types and floors[there] >= floors[here])


def test_folders_import_others_through_their_faces(sources: dict[Path, Any]) -> None:
    """A folder's `__init__` lists the names for others, for types as well; modules of one's own folder may be imported directly."""
    names = ((place, one.module, one.name) for place, _, _, one in imports_of_others(sources))
    expect_none(
        f"{place} imports {name} from {module}" for place, module, name in names if module.rpartition(".")[2].startswith("_") or name.startswith("_")
    )


def test_tasks_know_no_actor(sources: dict[Path, Any]) -> None:
    """A task runs without actors, in drivers and backfills: it imports nothing of the runtime, nor of `actors`, for types either."""
    expect_none(
        f"{relative(path)}:{one.line} imports {one.module}"
        for path, file in sources.items()
        for one in file.imports
        if path.is_relative_to(ROOT / "ks_actors" / "task") and (one.module.startswith("ks_actors.runtime") or one.module.split(".")[0] == "actors")
    )


def test_actors_answer_for_themselves(sources: dict[Path, Any]) -> None:
    """No module of the runtime touches a private attribute of another object: each actor, and each part of one, has methods for others."""
    runtime = ((path, *reach) for path, file in sources.items() if path.is_relative_to(ROOT / "ks_actors" / "runtime") for reach in file.reaches)
    expect_none(f"{relative(path)}:{line} {text}" for path, line, text in runtime)


def test_docstrings_and_comments_are_in_plain_english(houses: dict[str, Any], sources: dict[Path, Any]) -> None:
    """Few question-word clauses in each folder: fewer than 3 per 1,000 words; no module begins with a question word; no folder is crowded."""
    shares = [each for package in FLOORS for each in houses[package].clauses().items()]
    files = collections.Counter(map(folder_in_package, sources))
    expect_none(
        [
            *(f"{folder}: {share:.1f} clauses per 1,000 words" for folder, share in shares if share >= 3),
            *(f"{relative(path)}:1 asks" for path, file in sources.items() if file.docstring.startswith(FIGURES["QUESTIONS"])),
            *(f"{folder}: {number} files" for folder, number in files.items() if folder and number > FIGURES["MOST_FILES"]),
        ]
    )


ASKS = re.compile(r"(what|who|whoever|whatever)\b", re.IGNORECASE)


def test_no_text_begins_with_a_question_word(sources: dict[Path, Any]) -> None:
    """Error texts, log lines and help texts name the subject: broker, task, record, store."""
    texts = ((path, *text) for path, file in sources.items() for text in file.texts)
    expect_none(f"{relative(path)}:{line} {text[:60]!r}" for path, line, text in texts if " " in text and ASKS.match(text))


def test_no_docstring_begins_with_what_or_who(sources: dict[Path, Any], tests: dict[Path, Any]) -> None:
    """Those of attributes and tests neither: each says what it is about by a noun or a verb."""
    sentences = ((path, *sentence) for path, file in (sources | tests).items() for sentence in file.sentences)
    expect_none(f"{relative(path)}:{line} {text[:60]!r}" for path, line, text in sentences if ASKS.match(text))


def test_exceptions_from_lint_have_a_reason(sources: dict[Path, Any], tests: dict[Path, Any]) -> None:
    """Each `noqa` names its rules, and says why behind a hyphen."""
    lines = ((path, *line) for path, file in (sources | tests).items() for line in enumerate(file.text.splitlines(), 1))
    bare = re.compile(r"# noq[a](?!: [A-Z0-9, ]+ - \S)")
    expect_none(f"{relative(path)}:{number}" for path, number, line in lines if bare.search(line))


def test_hierarchies_are_shallow(houses: dict[str, Any]) -> None:
    """A class and all the package's classes that it comes from are at most 4 deep: a part is held instead of inherited."""
    depths = [each for package in FLOORS for each in houses[package].depths().items()]
    expect_none(f"{place} is {depth} deep" for place, depth in depths if depth > 4)


def test_imports_have_few_circles(houses: dict[str, Any]) -> None:
    """When it runs, only the DSL imports itself in a circle: its parts return each other. With types there are 2 at most."""
    for package in FLOORS:
        run, typed = (FIGURES["circles"](houses[package].graph(types=types)) for types in (False, True))
        faults = [circle for circle in run if not all(name.startswith("ks_actors.dsl.") for name in circle)]
        expect_none(map(" ".join, faults + (typed if len(typed) > 2 else [])))


def test_no_handle_of_a_loop_is_asked_for_its_time(sources: dict[Path, Any]) -> None:
    """uvloop's `call_at` and `call_later` return a handle without `when` for a time that has nearly come: keep the time beside the handle."""
    calls = ((path, call) for path, file in sources.items() for call in file.calls)
    expect_none(f"{relative(path)}:{call.line} calls {call.name}" for path, call in calls if call.name.endswith(".when"))


def test_files_are_short_enough_to_read(sources: dict[Path, Any], tests: dict[Path, Any]) -> None:
    """900 lines for sources, 700 for tests."""
    lengths = ((path, len(file.text.splitlines()), limit) for files, limit in ((sources, 900), (tests, 700)) for path, file in files.items())
    expect_none(f"{relative(path)} has {length} lines" for path, length, limit in lengths if length > limit)


def test_classes_are_short_enough_to_read(sources: dict[Path, Any]) -> None:
    """400 lines; those that had more when the rule came have no more than 560."""
    sizes = ((path, *size) for path, file in sources.items() for size in file.sizes)
    expect_none(
        f"{relative(path)}:{line} {name} has {length} lines" for path, name, line, length in sizes if length > (560 if name in LARGE else 400)
    )


def test_tests_state_their_rule(tests: dict[Path, Any]) -> None:
    """Each has a docstring, and asserts or calls something."""
    functions = ((path, *function) for path, file in tests.items() for function in file.tests)
    expect_none(f"{relative(path)}:{line} {name}" for path, name, line, documented, does in functions if not (documented and does))


def test_tests_do_not_sleep(tests: dict[Path, Any]) -> None:
    """asyncio.sleep only with 0 and not in a loop, where `until` rests, or where time is virtual; never time.sleep; no skips."""

    def allowed(path: Path, file: Any, call: Any) -> bool:
        if call.name == "asyncio.sleep":
            words = ("VirtualLoop", "AppHarness", "virtual time", "in_virtual_time")
            virtual = any(word in file.text for word in words) or "simulation" in path.parts
            # The chaos tester is a program of its own, against which tests are run.
            program = "chaos" in path.parts and not path.name.startswith("test_")
            return program or (not call.looped if call.argument == "0" else virtual)
        # Without Java there is no Kafka, and without a browser no page: then their tests are left out, which fails in CI.
        return call.name not in {"time.sleep", "pytest.xfail"} | (set() if relative(path) in SKIP else {"pytest.skip"})

    calls = ((path, file, call) for path, file in tests.items() for call in file.calls)
    expect_none(f"{relative(path)}:{call.line} calls {call.name}({call.argument})" for path, file, call in calls if not allowed(path, file, call))
