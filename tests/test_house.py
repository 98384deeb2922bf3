"""The rules of the house, for sources and tests alike."""

from __future__ import annotations

import ast
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
import ks_actors.runtime
import ks_actors.serdes
import ks_actors.snapshots
import ks_actors.state
import ks_actors.testing
import ks_actors.topology
import ks_actors.tracing
import ks_actors.web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

ROOT = Path(__file__).parent.parent
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
    ks_actors.runtime,
    ks_actors.serdes,
    ks_actors.snapshots,
    ks_actors.state,
    ks_actors.testing,
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
    (
        "kernel",
        "lifecycle",
        "runtime/messages",
        "system",
    ),
    ("records",),
    (
        "log/embedded",
        "log/kafka/wire",
        "metrics/families",
        "serdes",
        "snapshots",
        "tracing",
    ),
    (
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
    (
        "log/kafka",
        "processors",
        "processors/foreign_keys",
        "processors/joins",
        "state",
        "task/figures",
    ),
    ("dsl/joins",),
    (
        "dsl",
        "log",
    ),
    (
        "assignment",
        "config",
        "runtime/shared",
    ),
    ("letters", "task"),
    (
        "batch/tables",
        "runtime/input",
        "runtime/output",
        "runtime/stores",
    ),
    (
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
    ("cli",),
)
FLOORS = {"actors": FLOORS_OF_ACTORS, "ks_actors": FLOORS_OF_STREAMS}
SOURCES = sorted(path for package in ("actors", "ks_actors") for path in (ROOT / package).rglob("*.py"))
SKIP = ("tests/kafka/broker.py", "tests/web/browser.py")
TESTS = sorted(path for path in (ROOT / "tests").rglob("*.py") if "cases" not in path.parts)


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def members(kind: type[Any]) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def names_for_other_folders(package: ModuleType) -> Iterator[str]:
    """Return the names that a face has for other folders, and not for users: those that it imports as themselves."""
    for node in ast.parse(Path(str(package.__file__)).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if alias.asname == alias.name)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_every_public_name_is_exported_and_documented(package: ModuleType) -> None:
    """__all__ is complete, in order, and all of it has a docstring."""
    exported = set(package.__all__)
    # A module is public where it is exported: a namespace such as `ks_actors.serdes`.
    public = {name for name, value in vars(package).items() if not name.startswith("_") and (not inspect.ismodule(value) or name in exported)}
    public -= {"annotations", "version", *names_for_other_folders(package)}
    assert public == {name for name in exported if not name.startswith("__")}
    for name in exported:
        value = getattr(package, name)
        if inspect.ismodule(value):
            assert value.__doc__, name
        elif inspect.isclass(value):
            assert value.__doc__, name
            assert [f"{name}.{member}" for member, function in members(value) if not function.__doc__] == []


def test_every_module_can_be_imported_by_itself() -> None:
    """Private modules have a first line that names their content."""
    for package in PACKAGES:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            assert importlib.import_module(module.name).__doc__, module.name


@pytest.mark.extended
def test_the_wheel_holds_both_packages_with_their_types_and_nothing_else(tmp_path: Path) -> None:
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
    others = {"actors/py.typed", "ks_actors/py.typed", "ks_actors/kernel/_kernel.pyi", kernel, "ks_actors/metrics/exporters/grafana.json"}
    assert names == {relative(path) for path in SOURCES} | others | page
    assert "actors = actors.testing.plugin" in entry_points


def test_arrows_run_one_way() -> None:
    """actors knows nothing of ks_actors, nor of its own test kit; pytest is the plugin's alone."""
    for path in SOURCES:
        imported = set(re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE))
        here = relative(path)
        if here.startswith("actors/"):
            assert not {name for name in imported if name.startswith("ks_actors")}, here
        if here.startswith("actors/") and "testing" not in here:
            assert not {name for name in imported if name.startswith("actors.testing")}, here
        if not here.endswith("plugin.py"):
            assert not {name for name in imported if name.startswith("pytest")}, here


def imports_of(path: Path, *, for_types: bool) -> Iterator[tuple[str, str]]:
    """Return the modules of a module's own package that it imports, each with the name that it takes from there."""
    (package, *_) = path.relative_to(ROOT).parts
    tree = ast.parse(path.read_text(encoding="utf-8"))
    only_types = {
        id(inner) for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == package and (for_types or id(node) not in only_types):
            yield from ((node.module, alias.name) for alias in node.names)


def folder_of(module: str, name: str) -> Path:
    """Return the folder that an import takes a name from."""
    for place in (Path(*module.split("."), name), Path(*module.split("."))):
        if (ROOT / place).is_dir():
            return place
        if (ROOT / place).with_suffix(".py").exists() or (ROOT / place).with_suffix(".pyi").exists():
            return place.parent
    raise AssertionError(f"{module} has no {name}")


FOLDERS = sorted({path.parent for path in SOURCES} - {ROOT / package for package in FLOORS})


@pytest.mark.parametrize("package", FLOORS)
def test_the_floors_name_each_folder_once(package: str) -> None:
    """A new folder gets its place among them."""
    folders = [str(folder.relative_to(ROOT / package)) for folder in FOLDERS if folder.is_relative_to(ROOT / package)]
    assert sorted(name for floor in FLOORS[package] for name in floor) == folders


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_folders_import_only_from_floors_below(folder: Path) -> None:
    """Parts may import the modules of a folder that they are in: its face alone is above them."""
    (package, *_) = folder.relative_to(ROOT).parts
    floors = {name: number for number, floor in enumerate(FLOORS[package]) for name in floor}
    here = folder.relative_to(ROOT / package)
    for path in folder.glob("*.py"):
        for module, name in imports_of(path, for_types=False):
            there = folder_of(module, name).relative_to(package)
            if there not in (here, *here.parents):
                assert floors[str(there)] < floors[str(here)], f"{relative(path)} imports {module}"


@pytest.mark.parametrize("folder", FOLDERS, ids=relative)
def test_folders_import_others_through_their_faces(folder: Path) -> None:
    """A folder's `__init__` lists the names for others, for types as well; modules of one's own folder may be imported directly."""
    here = folder.relative_to(ROOT)
    for path in folder.glob("*.py"):
        for module, name in imports_of(path, for_types=True):
            private = module.rpartition(".")[2].startswith("_") or name.startswith("_")
            there = folder_of(module, name)
            assert not private or there in (here, *here.parents), f"{relative(path)} imports {name} from {module}"


def test_tasks_know_no_actor() -> None:
    """A task runs without actors, in drivers and backfills: it imports nothing of the runtime, nor of `actors`, for types either."""
    for path in (ROOT / "ks_actors" / "task").rglob("*.py"):
        modules = [node.module or "" for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ImportFrom)]
        assert [name for name in modules if name.startswith("ks_actors.runtime") or name.split(".")[0] == "actors"] == [], relative(path)


@pytest.mark.parametrize("package", ["actors", "ks_actors"])
def test_docstrings_and_comments_are_in_plain_english(package: str) -> None:
    """Few question-word clauses in each folder: fewer than 3 per 1,000 words; no module begins with a question word; no folder is crowded."""
    figures = runpy.run_path(str(ROOT / "scripts" / "house_figures"))
    house = figures["House"](ROOT, package)
    assert {folder: share for folder, share in house.clauses().items() if share >= 3} == {}
    begins = ("What", "Who", "Which", "How", "Where", "When", "Why")
    assert [relative(path) for path, tree in house.trees.items() if (ast.get_docstring(tree) or "").startswith(begins)] == []
    crowded = [folder for folder in FOLDERS if folder.is_relative_to(ROOT / package) and len(list(folder.glob("*.py"))) > figures["MOST_FILES"]]
    assert crowded == []


def test_no_text_begins_with_a_question_word() -> None:
    """Error texts, log lines and help texts name the subject: broker, task, record, store."""
    begins = re.compile(r"(what|who|whoever|whatever)\b", re.IGNORECASE)
    found = []
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        texts = [(node.lineno, node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docstrings]
        found += [f"{relative(path)}:{line}" for line, text in texts if isinstance(text, str) and " " in text and begins.match(text)]
    assert found == []


def test_no_docstring_begins_with_what_or_who() -> None:
    """Those of attributes and tests neither: each says what it is about by a noun or a verb."""
    begins = re.compile(r"(what|who|whoever|whatever)\b", re.IGNORECASE)
    found = []
    for path in (*SOURCES, *TESTS):
        lines = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Expr))
        texts = [(node.lineno, node.value.value) for node in lines if isinstance(node.value, ast.Constant)]
        found += [f"{relative(path)}:{line}" for line, text in texts if isinstance(text, str) and begins.match(text)]
    assert found == []


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_exceptions_from_lint_have_a_reason(path: Path) -> None:
    """Each `noqa` names its rules, and says why behind a hyphen."""
    lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
    assert [number for number, line in lines if re.search(r"# noqa(?!: [A-Z0-9, ]+ - \S)", line) and "re.search" not in line] == []


@pytest.mark.parametrize("package", ["actors", "ks_actors"])
def test_hierarchies_are_shallow(package: str) -> None:
    """A class and all the package's classes that it comes from are at most 4 deep: a part is held instead of inherited."""
    figures = runpy.run_path(str(ROOT / "scripts" / "house_figures"))
    assert figures["House"](ROOT, package).depth() <= 4


@pytest.mark.parametrize("package", ["actors", "ks_actors"])
def test_imports_have_few_circles(package: str) -> None:
    """When it runs, only the DSL imports itself in a circle: its parts return each other. With types there are 4 at most."""
    figures = runpy.run_path(str(ROOT / "scripts" / "house_figures"))
    house = figures["House"](ROOT, package)
    assert [circle for circle in figures["circles"](house.graph(types=False)) if not all(name.startswith("ks_actors.dsl.") for name in circle)] == []
    assert len(figures["circles"](house.graph(types=True))) <= 4


def test_no_handle_of_a_loop_is_asked_for_its_time() -> None:
    """uvloop's `call_at` and `call_later` return a handle without `when` for a time that has nearly come: keep the time beside the handle."""
    asked = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "when"
    ]
    assert asked == []


@pytest.mark.parametrize("path", [*SOURCES, *TESTS], ids=relative)
def test_files_are_short_enough_to_read(path: Path) -> None:
    """600 lines for sources, 700 for tests."""
    assert len(path.read_text().splitlines()) <= (600 if path in SOURCES else 700)


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_tests_state_their_rule_and_do_not_sleep(path: Path) -> None:
    """A docstring each; asyncio.sleep only with 0, or where time is virtual; never time.sleep; no skips."""
    tree = ast.parse(path.read_text())
    virtual = any(word in path.read_text() for word in ("VirtualLoop", "AppHarness", "virtual time"))
    # The chaos tester is a program of its own, against which tests are run.
    program = "chaos" in path.parts and not path.name.startswith("test_")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_") and node.col_offset == 0:
            assert ast.get_docstring(node), f"{relative(path)}: {node.name} has no docstring"
            assert any(isinstance(inner, ast.Assert | ast.With | ast.AsyncWith | ast.Call) for inner in ast.walk(node)), node.name
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            # Without Java there is no Kafka, and without a browser no page: then their tests are left out, which fails in CI.
            forbidden = {"time.sleep", "pytest.xfail"} | (set() if relative(path) in SKIP else {"pytest.skip"})
            assert called not in forbidden, f"{relative(path)}:{node.lineno}"
            if called == "asyncio.sleep" and not (virtual or program):
                assert ast.unparse(node.args[0]) == "0", f"{relative(path)}:{node.lineno} sleeps"
