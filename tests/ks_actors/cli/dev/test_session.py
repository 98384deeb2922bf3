"""`ks-actors dev` with the commands of a script."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ks_actors import StreamsConfig
from ks_actors.app import App
from ks_actors.cli._main import ks_actors
from tests.ks_actors.cli.dev import jobs

HERE = "tests.ks_actors.cli.dev.jobs"


def dev(name: str, commands: str, *arguments: str) -> Result:
    return CliRunner().invoke(ks_actors, ["dev", f"{HERE}:{name}", *arguments], input=commands)


def test_records_go_through_the_app_and_its_output_is_printed() -> None:
    """Topics are made, types are those of the topology, and at the end of the commands all input is processed."""
    result = dev(
        "orders", 'send orders ann={"amount": 3.5}\n\n# a remark\nsend orders ann={"amount": 200, "item": "tea"}\nsend orders {"amount": 1}\n'
    )
    assert result.exit_code == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == ['large\tann\t{"amount":200.0,"item":"tea"}', "totals\tann\t203.5", "totals\tann\t3.5"]
    assert result.stderr.splitlines() == [
        "dev is running with at_least_once: 1 active task, 0 standbys, 1 worker",
        "it reads orders and writes large, totals; try help",
    ]


def test_windowed_keys_are_shown_with_their_window() -> None:
    """As Kafka Streams prints them; the settings are those of the command line, the partitions the app's."""
    result = dev("visits", "send visits ann=home\ntopics\n", "-c", "application_id=counter")
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^hourly\t\[ann@\d+/\d+\]\t1$", result.stdout, re.MULTILINE)
    rows = {line.split()[0]: line.split()[1:] for line in result.stdout.splitlines() if "\t" not in line}
    assert rows["visits"] == ["source", "3", "1"]
    assert rows["hourly"][:2] == ["sink", "3"]
    assert "counter is running with at_least_once: 3 active tasks" in result.stderr


def test_a_key_without_a_value_is_a_deletion_and_only_text_before_the_first_sign_is_a_key() -> None:
    """A value that begins with the sign has no key: tables drop it."""
    result = dev("names", "send names a=Ann\nsend names a=\nsend names b=x=y\nsend names =c=z\n")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == ["out\ta\tAnn", "out\ta\t-", "out\tb\tx=y"]


def test_a_wrong_command_is_refused_and_the_others_are_obeyed() -> None:
    """Each has its reason, and the exit code is 2."""
    commands = [
        "send order a=1",
        "send orders",
        'send orders ann={"amount": "much"}',
        "tail nothing",
        "sned orders x",
        'send orders ann={"amount": 2}',
    ]
    result = dev("orders", "\n".join(commands))
    assert result.exit_code == 2
    assert result.stdout == "totals\tann\t2.0\n"
    told = result.stderr.splitlines()[2:]
    assert told[0] == "send order a=1: there is no topic 'order'; did you mean orders?"
    assert told[1] == "send orders: give send TOPIC [KEY=]VALUE"
    assert told[2].startswith('send orders ann={"amount": "much"}: <Serde json(Order)> does not write ')
    assert "Expected `float`, got `str`" in told[2]
    assert told[3] == "tail nothing: there is no topic 'nothing': there are dev-totals-changelog, large, orders, totals"
    assert told[4] == "sned orders x: there are the commands send, tail, topics, help and quit"


def test_tail_prints_a_topic_from_its_begin() -> None:
    """And the records that come, by its own types, or as bytes."""
    result = dev("orders", 'send orders ann={"amount": 2}\ntail orders\nsend orders bob={"amount": 3}\ntail dev-totals-changelog\n')
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert [line for line in lines if line.startswith("orders")] == ['orders\tann\t{"amount":2.0,"item":""}', 'orders\tbob\t{"amount":3.0,"item":""}']
    assert sum(line.startswith("dev-totals-changelog\t") for line in lines) == 2


def test_quit_ends_before_the_rest_and_help_lists_the_commands() -> None:
    """The commands behind it are not read."""
    result = dev("orders", "help\nquit\nsend orders x\n")
    assert result.exit_code == 0
    assert "send TOPIC [KEY=]VALUE" in result.stderr
    assert "does not write" not in result.stderr


def test_dead_letters_have_a_color_and_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their topic is made, too."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    settings = ("-c", "errors_dead_letter_queue_topic_name=dead", "-c", "processing_exception_handler=continue", "--log-level=error")
    result = dev("orders", 'send orders ann={"amount": 0}\nsend orders ann={"amount": 2}\n', *settings)
    assert result.exit_code == 0, result.stderr
    assert "\x1b[36mtotals\x1b[0m\tann\t2.0\n" in result.stdout
    dead = next(line for line in result.stdout.splitlines() if "dead" in line)
    assert re.fullmatch(r'\x1b\[31mdead\tann\t{"amount":0.0,"item":""}\t.*ZeroDivisionError: .* \(orders-0@0\)\x1b\[0m', dead), dead
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in dev("orders", 'send orders ann={"amount": 2}\n').stdout


def test_an_error_of_the_users_code_ends_the_app_with_one_short_traceback() -> None:
    """It has the frames of that code alone; records until then are printed."""
    result = dev("orders", 'send orders ann={"amount": 2}\nsend orders ann={"amount": 0}\n', "-c", "processing_guarantee=exactly_once_v2")
    assert result.exit_code == 1
    assert result.stderr.count("Traceback (most recent call last):") <= 1
    assert "Error: dev has ended: ProcessingFailed: " in result.stderr
    assert "orders, partition 0, offset 1" in result.stderr
    files = re.findall(r'File "(.*?)"', result.stderr)
    assert files == [jobs.__file__] * len(files)


def test_an_app_that_cannot_be_made_shows_the_users_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the call, and of a syntax error."""
    result = dev("broken", "")
    assert result.exit_code == 1
    assert re.fullmatch(
        rf'Traceback \(most recent call last\):\n  File "{jobs.__file__}", line \d+, in broken\n.*\n(?: *[~^]+\n)?LookupError: no such thing\n',
        result.stderr,
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "misspelt.py").write_text("def\n")
    result = CliRunner().invoke(ks_actors, ["dev", "misspelt:app"])
    assert result.exit_code == 1
    assert result.stderr.startswith(f'  File "{tmp_path / "misspelt.py"}", line 1\n')
    assert result.stderr.endswith("SyntaxError: invalid syntax\n")


def test_a_directory_keeps_log_and_state(tmp_path: Path) -> None:
    """Without one each run begins anew; new topics have the given partitions."""
    kept = ("--directory", str(tmp_path / "kept"), "--partitions=2")
    command = 'send orders ann={"amount": 2}\n'
    assert dev("orders", command, *kept).stdout == "totals\tann\t2.0\n"
    result = dev("orders", f"{command}topics\n", *kept)
    assert "totals\tann\t4.0\n" in result.stdout
    assert re.search(r"^orders +source +2 +2$", result.stdout, re.MULTILINE)
    assert dev("orders", command).stdout == "totals\tann\t2.0\n"
    assert dev("orders", command).stdout == "totals\tann\t2.0\n"


def test_topics_of_a_pattern_are_made_when_records_come() -> None:
    """Others are refused."""
    result = dev("by_pattern", "send clicks-eu a=1\nsend other a=1\n")
    assert result.exit_code == 2
    assert result.stdout == "all\ta\t1\n"
    assert "send other a=1: there is no topic 'other'" in result.stderr


def test_an_app_leaves_its_own_log_state_and_snapshots_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any settings: nothing asks these servers, and nothing is written there."""
    config = StreamsConfig(
        application_id="live",
        bootstrap_servers="127.0.0.1:1",
        state_dir=tmp_path / "state",
        snapshot_uri=(tmp_path / "snapshots").as_uri(),
        commit_interval_ms=100,
    )
    app = App(jobs.names(), config)
    monkeypatch.setattr(jobs, "live", app, raising=False)
    result = dev("live", "send names a=Ann\n")
    assert (result.exit_code, result.stdout) == (0, "out\ta\tAnn\n"), result.stderr
    assert list(tmp_path.iterdir()) == []
    assert (app.config.snapshot_uri, app.config.commit_interval_ms) == (None, 100)


def test_the_page_is_on_loopback() -> None:
    """Its address comes first."""
    result = dev("names", "send names a=Ann\n", "--page=0")
    assert result.exit_code == 0, result.stderr
    assert re.match(r"the page is at http://127\.0\.0\.1:\d+/\n", result.stderr)
