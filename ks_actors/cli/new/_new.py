"""The command `new`."""

from __future__ import annotations

import json
import keyword
import os
import re
import shutil
import sys
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Final

import click

from ks_actors.cli.new._source import source_of

_TEMPLATES: Final = Path(__file__).with_name("template")
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
# The longest name for which the lines of the templates have room.
_LONGEST: Final = 30
_KAFKA: Final = "4.4.0"
# The files of a project, and their templates.
_FILES: Final = {
    "pyproject.toml": "pyproject.toml",
    "Makefile": "Makefile",
    "README.md": "README.md",
    "Dockerfile": "Dockerfile",
    "compose.yaml": "compose.yaml",
    ".gitignore": "gitignore",
    ".dockerignore": "dockerignore",
    "{name}/__init__.py": "init.py",
    "{name}/app.py": "app.py",
    "{name}/{name}.toml": "settings.toml",
    "tests/test_app.py": "test_app.py",
}


@click.command()
@click.argument("name")
@click.option(
    "--directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The directory to make. Default: NAME.",
)
def new(name: str, directory: Path | None) -> None:
    """Make a project: an app, its tests, settings, and containers for it and Kafka.

    NAME is the name of the package, of the application and of the settings' file. The project
    installs the ks-actors that has made it. All of it is written, or nothing. Exit codes: 0 the
    project is there, 1 it cannot be written, 2 the name or the directory is refused.
    """
    _check(name)
    made = Path(name) if directory is None else directory
    if made.exists() or made.is_symlink():
        raise click.UsageError(f"{made} exists: give a new directory with --directory")
    if not made.absolute().parent.is_dir():
        raise click.UsageError(f"{made.absolute().parent} does not exist: make it first")
    fresh = made.absolute().with_name(f".{made.name}-{os.getpid()}")
    try:
        _write(fresh, name)
        fresh.rename(made)
    except OSError as error:
        raise click.ClickException(f"{made} cannot be written: {error}") from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    click.echo(f"{made} is there. Next: cd {made} && make test, then make dev")


def _check(name: str) -> None:
    """Refuse a name that cannot name a package, or that would hide a module. Raises UsageError."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        better = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")[:_LONGEST]
        hint = better if _NAME.fullmatch(better) else "order_totals"
        raise click.UsageError(
            f"{name!r} is no name for a package: use at most {_LONGEST} lower-case letters, digits "
            f"and single underscores, as in {hint}"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise click.UsageError(f"{name} is a keyword of Python: give another name")
    if name == "tests":
        raise click.UsageError("tests is the directory of the project's tests: give another name")
    if name in sys.stdlib_module_names:
        raise click.UsageError(f"{name} is a module of Python's library: give another name")
    if find_spec(name) is not None:
        raise click.UsageError(f"{name} is an installed module: give another name")


def _write(directory: Path, name: str) -> None:
    found = source_of(distribution("ks-actors"), Path(__file__).parents[3])
    direct = " @ " in found.requirement
    values = {
        "name": name,
        "requirement": json.dumps(found.requirement, ensure_ascii=False),
        "hatch": "\n[tool.hatch.metadata]\nallow-direct-references = true\n" if direct else "",
        "copies": found.copies(),
        "contexts": found.contexts(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "kafka": _KAFKA,
    }
    for path, template in _FILES.items():
        file = directory / path.format(name=name)
        file.parent.mkdir(parents=True, exist_ok=True)
        text = (_TEMPLATES / f"{template}.template").read_text(encoding="utf-8")
        file.write_text(Template(text).substitute(values), encoding="utf-8")
