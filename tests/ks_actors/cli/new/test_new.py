"""`ks-actors new`: its projects, and the names that it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PathDistribution
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ks_actors import StreamsConfig
from ks_actors.cli._main import ks_actors
from ks_actors.cli.new._source import Source, source_of
from tests.kafka.broker import NEWEST
from tests.ks_actors.cli.new.start import Terminal, link

ROOT = Path(__file__).parents[4]
NAME = "shop_with_the_longest_name_yet"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a new project."""
    made = tmp_path / "made"
    result = CliRunner().invoke(ks_actors, ["new", NAME, "--directory", str(made)])
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"cd {made} && make test" in result.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["made"]
    return made


@pytest.mark.extended
@pytest.mark.timeout(600)
@pytest.mark.heavy("makes an environment, and installs this checkout into it")
def test_a_new_project_passes_its_own_tests(installed: Terminal, tmp_path: Path) -> None:
    """`ks-actors new NAME && cd NAME && make test`; its environment is that of the pages of Start, and takes what a project needs beside."""
    new = [sys.executable, "-m", "ks_actors.cli", "new", NAME]
    subprocess.run(new, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, capture_output=True)  # noqa: S603 - our own
    python = link(tmp_path / "python", installed.folder / ".venv")
    make = ["make", "test", f"PYTHON={python}"]
    done = subprocess.run(make, cwd=tmp_path / NAME, env=installed.environment, capture_output=True, text=True, check=False)  # noqa: S603 - the tool that projects use
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 6 passed in " in done.stdout


def test_the_code_of_a_project_is_clean(project: Path) -> None:
    """It passes ruff's rules and form; tests/typing checks its types."""
    ruff = [sys.executable, "-m", "ruff"]
    rules = ["--select=ALL", "--ignore=CPY,D203,D213,INP001,S101"]
    for command in (["check", "--isolated", "--no-cache", "-q", *rules], ["format", "--isolated", "--no-cache", "--check", "-q"]):
        done = subprocess.run([*ruff, *command, "."], cwd=project, capture_output=True, text=True, check=False)  # noqa: S603 - our own
        assert (done.returncode, done.stdout) == (0, "")


def test_the_settings_of_a_project_are_known(project: Path) -> None:
    """Those in comments, too."""
    file = project / NAME / f"{NAME}.toml"
    text = file.read_text(encoding="utf-8")
    config = StreamsConfig.load(file, environ={})
    assert (config.application_id, config.processing_guarantee.value) == (NAME, "exactly_once_v2")
    file.write_text(re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE), encoding="utf-8")
    config = StreamsConfig.load(file, environ={})
    assert config.errors_dead_letter_queue_topic_name == f"{NAME}-dead-letters"


def test_a_project_runs_on_the_checkout_that_made_it(project: Path) -> None:
    """The tests of a project, its image, and the image's build name the same place."""
    (requirement,) = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert requirement == f"ks-actors[cli,kafka,prometheus,uvloop,web] @ {ROOT.as_uri()}"
    assert f'additional_contexts:\n        ks-actors: "{ROOT}"\n' in (project / "compose.yaml").read_text(encoding="utf-8")
    copied = re.findall(r"^COPY --from=ks-actors (.*)$", (project / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    for line in copied:
        *names, to = json.loads(line)
        assert Path(to).is_relative_to(ROOT)
        assert all((ROOT / name).exists() for name in names)


def test_containers_listen_on_loopback_alone_and_run_the_app(project: Path) -> None:
    """Kafka is of the newest version that is tested; the image's command line is one of ours."""
    compose = (project / "compose.yaml").read_text(encoding="utf-8")
    assert re.findall(r"^    image: (.*)$", compose, re.MULTILINE) == [f"apache/kafka:{NEWEST}"]
    assert re.findall(r"^    ports: (.*?)(?: #.*)?$", compose, re.MULTILINE) == ['["127.0.0.1:9092:9092"]', '["127.0.0.1:9464:9464"]']
    entry = re.search(r"^ENTRYPOINT (.*)$", (project / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert entry is not None
    program, command, *arguments = json.loads(entry[1])
    assert program == "ks-actors"
    found = ks_actors.get_command(click.Context(ks_actors), command)
    assert found is not None
    context = found.make_context(command, arguments)
    assert context.params["target"] == f"{NAME}.app:app"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "order-totals",
            "'order-totals' is no name for a package: use at most 30 lower-case letters, digits and single underscores, as in order_totals",
        ),
        ("Shop", "as in shop"),
        ("_shop", "as in shop"),
        ("2shops", "as in order_totals"),
        ("läden", "as in l_den"),
        ("a/b", "as in a_b"),
        ("..", "as in order_totals"),
        ("s" * 31, "as in sss"),
        ("class", "class is a keyword of Python"),
        ("match", "match is a keyword of Python"),
        ("json", "json is a module of Python's library"),
        ("tests", "tests is the directory of the project's tests"),
        ("click", "click is an installed module"),
        ("ks_actors", "ks_actors is an installed module"),
    ],
)
def test_a_name_that_python_or_kafka_would_not_take_is_refused(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is one that would hide a module; nothing is written."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(ks_actors, ["new", name])
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_directory_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that exists stays as it is, a missing parent is named, and a failed write leaves nothing."""
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept"
    kept.mkdir()

    def new(*arguments: str) -> tuple[int, str]:
        result = CliRunner().invoke(ks_actors, ["new", NAME, *arguments])
        return result.exit_code, " ".join(result.stderr.split())

    code, told = new("--directory", "kept")
    assert (code, "kept exists: give a new directory with --directory" in told) == (2, True)
    code, told = new("--directory", "none/made")
    assert (code, f"{tmp_path / 'none'} does not exist: make it first" in told) == (2, True)
    (tmp_path / f".{NAME}-{os.getpid()}").write_text("in the way")
    code, told = new()
    assert (code, f"Error: {NAME} cannot be written: " in told) == (1, True)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["kept"]
    assert list(kept.iterdir()) == []


INSTALLED = {
    "": Source("ks-actors[cli,kafka,prometheus,uvloop,web]>=1.2"),
    '{"url": "file:///a%20b/src", "dir_info": {}}': Source("ks-actors[cli,kafka,prometheus,uvloop,web] @ file:///a%20b/src", Path("/a b/src")),
    '{"url": "https://host/o/r", "vcs_info": {"vcs": "git", "commit_id": "ab12"}, "subdirectory": "sub"}': Source(
        "ks-actors[cli,kafka,prometheus,uvloop,web] @ git+https://host/o/r@ab12#subdirectory=sub"
    ),
    '{"url": "https://host/k.whl", "archive_info": {}}': Source("ks-actors[cli,kafka,prometheus,uvloop,web] @ https://host/k.whl"),
}


@pytest.mark.parametrize("direct", INSTALLED)
def test_a_project_installs_from_where_ks_actors_came(direct: str, tmp_path: Path) -> None:
    """By PEP 610: a directory, a repository, a file, or the index, for at least the same version."""
    information = tmp_path / "ks_actors-1.2.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: ks-actors\nVersion: 1.2\n")
    if direct:
        (information / "direct_url.json").write_text(direct)
    assert source_of(PathDistribution(information), tmp_path) == INSTALLED[direct]


def test_an_image_gets_a_wheel_by_its_own_path(tmp_path: Path) -> None:
    """The build has no other file of that directory."""
    wheel = tmp_path / "k.whl"
    wheel.touch()
    made = Source("ks-actors", wheel)
    assert made.copies() == f'COPY --from=ks-actors ["k.whl", "{wheel}"]\n'
    assert made.contexts() == f'      additional_contexts:\n        ks-actors: "{tmp_path}"\n'
    assert (Source("ks-actors").copies(), Source("ks-actors").contexts()) == ("", "")
