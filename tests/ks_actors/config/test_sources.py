"""The sources of settings, and their order of precedence."""

from __future__ import annotations

import copy
import pickle
import re
import string
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ks_actors import serdes
from ks_actors._errors import ConfigError
from ks_actors.config._config import StreamsConfig
from ks_actors.config._exception_handlers import log_and_continue
from ks_actors.config._sources import parse_properties
from ks_actors.kernel._native import SWITCHES

TOML = """
application.id = "from-file"
commit.interval.ms = 1
poll_ms = 1
max-task-idle-ms = 1
default_key_serde = "ks_actors.serdes.STRING"
"""

PROPERTIES = r"""
# a comment
! another
application.id = from-file
commit.interval.ms=1
poll.ms:1
max.task.idle.ms 1
   default.key.serde = \
      org.apache.kafka.common.serialization.\
      Serdes$StringSerde
processing.exception.handler=org.apache.kafka.streams.errors.LogAndContinueProcessingExceptionHandler
"""


@pytest.mark.parametrize(("name", "content"), [("app.toml", TOML), ("table.toml", f"other = 1\n[ks-actors]\n{TOML}"), ("app.properties", PROPERTIES)])
def test_later_sources_override_earlier_ones(tmp_path: Path, name: str, content: str) -> None:
    """The file, then the environment, then keywords."""
    file = tmp_path / name
    file.write_text(content, encoding="utf-8")
    environ = {"KS_ACTORS_POLL_MS": "2", "KS_ACTORS_MAX_TASK_IDLE_MS": "2", "OTHER": "x"}
    config = StreamsConfig.load(file, environ=environ, max_task_idle_ms=3)
    assert (config.application_id, config.commit_interval_ms, config.poll_ms, config.max_task_idle_ms) == ("from-file", 1, 2, 3)
    assert config.default_key_serde is serdes.STRING
    names = ("commit_interval_ms", "poll_ms", "max_task_idle_ms", "log")
    assert [config.origins[each] for each in names] == [name, "environment KS_ACTORS_POLL_MS", "keyword", "default"]


@pytest.mark.parametrize(("name", "content"), [("app.toml", TOML), ("app.properties", PROPERTIES)])
def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path, name: str, content: str) -> None:
    """Editors on Windows put one in front."""
    file = tmp_path / name
    file.write_text(content.lstrip(), encoding="utf-8-sig")
    assert StreamsConfig.load(file, environ={}).application_id == "from-file"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([("application_id", "a")], "settings are a list: give a mapping"),
        ("application_id=a", "settings are a str"),
        ({"application_id": "a", 1: 2}, r"1 \(mapping\): is not the name of a setting"),
        ({"application_id": "a", "poll_ms": 1, "poll.ms": 2}, r"poll\.ms \(mapping\): is another spelling of poll_ms"),
        ({"application_id": "a", "poll_ms": 1, "poll": {"ms": 2}}, r"poll\.ms \(mapping\): is another spelling of poll_ms"),
    ],
)
def test_settings_are_a_mapping_with_one_spelling_of_each_name(settings: Any, message: str) -> None:
    """Anything else is a ConfigError that names it."""
    with pytest.raises(ConfigError, match=message):
        StreamsConfig.of(settings)


def test_a_config_can_be_copied_and_sent_to_another_process() -> None:
    """The copy is equal, and has the same origins."""
    config = StreamsConfig.of({"application_id": "a", "poll_ms": "7"})
    for other in (pickle.loads(pickle.dumps(config)), copy.deepcopy(config), copy.copy(config)):  # noqa: S301 - our own bytes
        assert other == config
        assert dict(other.origins) == dict(config.origins)
        assert other.replace(poll_ms=8).poll_ms == 8


def test_a_java_apps_properties_can_be_read(tmp_path: Path) -> None:
    """Classes that have an equal here are known by their names."""
    file = tmp_path / "streams.properties"
    file.write_text(PROPERTIES)
    assert StreamsConfig.load(str(file), environ={}).processing_exception_handler is log_and_continue


def test_a_placeholder_in_a_file_is_an_error(tmp_path: Path) -> None:
    """Nothing fills it in: the error names the variable to set, and shows no secret."""
    toml = tmp_path / "app.toml"
    toml.write_text(
        'application_id = "${APP}"\nbootstrap_servers = ["a:1", "${BROKER}:1"]\nstate_dir = "/var/${NAME}/x"\n'
        'sasl_password = "hunter2${PW}"\n"topic.retention.ms" = "${RETENTION}"\n',
        encoding="utf-8",
    )
    with pytest.raises(ConfigError) as caught:
        StreamsConfig.load(toml, environ={})
    why = "has a placeholder, ${…}, that is not filled in from the environment: set"
    assert str(caught.value).splitlines() == [
        "5 settings are wrong:",
        f"  application_id (app.toml): '${{APP}}' {why} KS_ACTORS_APPLICATION_ID",
        f"  bootstrap_servers (app.toml): ['a:1', '${{BROKER}}:1'] {why} KS_ACTORS_BOOTSTRAP_SERVERS",
        f"  state_dir (app.toml): '/var/${{NAME}}/x' {why} KS_ACTORS_STATE_DIR",
        f"  sasl_password (app.toml): *** {why} KS_ACTORS_SASL_PASSWORD",
        f"  topic_retention_ms (app.toml): '${{RETENTION}}' {why} KS_ACTORS_TOPIC_RETENTION_MS",
    ]
    properties = tmp_path / "app.properties"
    properties.write_text("application.id = app\nclient.id = ${env:CLIENT}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"set KS_ACTORS_CLIENT_ID$"):
        StreamsConfig.load(properties, environ={})


@pytest.mark.parametrize(
    ("content", "environ"),
    [
        ("commit_interval_ms = 'soon'", {"COMMIT_INTERVAL_MS": "100"}),
        ("acks = '0'", {"ACKS": "all"}),
        ("dsl_store = 'rocksDB'\ndefault_dsl_store = 'rocksDB'", {"DSL_STORE": "in_memory"}),
        ("restore_consumer_session_timeout_ms = 1\nadmin_request_timeout_ms = 'soon'", {"ADMIN_REQUEST_TIMEOUT_MS": "30000"}),
        ("topic_segment_ms = ['a']", {"TOPIC_SEGMENT_MS": "1"}),
        ("[topic_configs]\n'segment.ms' = []\n'retention.ms' = 5", {"TOPIC_SEGMENT_MS": "1"}),
    ],
)
def test_a_wrong_value_that_is_overridden_is_no_error(tmp_path: Path, content: str, environ: dict[str, str]) -> None:
    """The effective values count, whatever an earlier source says; without the later one, the error names the earlier."""
    path = tmp_path / "app.toml"
    path.write_text(f"ignored_settings = 'restore_consumer_session_timeout_ms'\napplication_id = 'app'\n{content}")
    config = StreamsConfig.load(path, environ={f"KS_ACTORS_{name}": value for name, value in environ.items()})
    assert config.application_id == "app"
    with pytest.raises(ConfigError, match=r"app\.toml"):
        StreamsConfig.load(path, environ={})


def test_only_what_is_overridden_is_forgiven(tmp_path: Path) -> None:
    """Other wrong values of the same source stay errors, and so does a wrong value that overrides a good one."""
    path = tmp_path / "app.toml"
    path.write_text("application_id = 'app'\nacks = '0'\nretries = 3\ntopic_configs = {'a.b' = [], 'c.d' = []}")
    with pytest.raises(ConfigError) as wrong:
        StreamsConfig.load(path, environ={"KS_ACTORS_ACKS": "all", "KS_ACTORS_TOPIC_A_B": "1", "KS_ACTORS_ENABLE_IDEMPOTENCE": "false"})
    assert str(wrong.value).startswith("3 settings are wrong:")
    assert all(name in str(wrong.value) for name in ("retries (app.toml)", "topic_configs (app.toml)", "enable_idempotence (environment"))


def test_a_variable_takes_the_place_of_a_placeholder(tmp_path: Path) -> None:
    """Its own text is taken as it is, and so is that of a keyword: a password may look like a placeholder."""
    file = tmp_path / "app.toml"
    file.write_text('application_id = "app"\nclient_id = "${CLIENT}"\nstate_dir = "$HOME/x"\n', encoding="utf-8")
    assert StreamsConfig.load(file, environ={"KS_ACTORS_CLIENT_ID": "one${x}"}).client_id == "one${x}"
    loaded = StreamsConfig.load(file, environ={}, client_id="two${x}")
    assert (loaded.client_id, loaded.state_dir) == ("two${x}", Path("$HOME/x"))


def test_the_environment_is_the_processs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless another one is given; the prefix can be chosen."""
    monkeypatch.setenv("KS_ACTORS_APPLICATION_ID", "mine")
    monkeypatch.setenv("MY_APP_APPLICATION_ID", "other")
    assert StreamsConfig.load().application_id == "mine"
    assert StreamsConfig.load(prefix="MY_APP_").application_id == "other"
    assert StreamsConfig.load(environ={}, application_id="third").application_id == "third"


def test_switches_of_the_kernel_are_no_settings() -> None:
    """They begin with the same prefix, those of its build too, and an app that has one in its environment starts."""
    switches = {"KS_ACTORS_WITHOUT_KERNEL": "1", "KS_ACTORS_WITH_KERNEL": "1", "KS_ACTORS_WITHOUT_AHEAD": "1"}
    assert StreamsConfig.load(environ={**switches, "KS_ACTORS_APPLICATION_ID": "app"}).application_id == "app"
    named = set(re.findall(r'"(KS_ACTORS_\w+)"', (Path(__file__).parents[3] / "hatch_build.py").read_text(encoding="utf-8")))
    assert named == switches.keys() == SWITCHES


def test_a_misspelt_variable_is_an_error() -> None:
    """It names the variable."""
    with pytest.raises(ConfigError, match=r"pol_ms \(environment KS_ACTORS_POL_MS\): is unknown; did you mean poll_ms\?"):
        StreamsConfig.load(environ={"KS_ACTORS_POL_MS": "1", "KS_ACTORS_APPLICATION_ID": "app"})


def test_variables_that_kubernetes_makes_for_a_service_are_no_settings() -> None:
    """A service named ks-actors, or ks-actors-page, gives each pod of its namespace such variables; others are settings all the same."""
    services = {
        "KS_ACTORS_SERVICE_HOST": "10.0.0.1",
        "KS_ACTORS_SERVICE_PORT": "80",
        "KS_ACTORS_SERVICE_PORT_HTTP": "80",
        "KS_ACTORS_PORT": "tcp://10.0.0.1:80",
        "KS_ACTORS_PORT_80_TCP": "tcp://10.0.0.1:80",
        "KS_ACTORS_PORT_80_TCP_PROTO": "tcp",
        "KS_ACTORS_PORT_80_TCP_PORT": "80",
        "KS_ACTORS_PORT_80_TCP_ADDR": "10.0.0.1",
        "KS_ACTORS_PAGE_SERVICE_HOST": "10.0.0.2",
        "KS_ACTORS_PAGE_PORT": "tcp://10.0.0.2:80",
    }
    assert StreamsConfig.load(environ={**services, "KS_ACTORS_APPLICATION_ID": "app", "KS_ACTORS_POLL_MS": "7"}).poll_ms == 7
    with pytest.raises(ConfigError, match=r"port \(environment KS_ACTORS_PORT\): is unknown"):
        StreamsConfig.load(environ={"KS_ACTORS_PORT": "80", "KS_ACTORS_APPLICATION_ID": "app"})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("app.yaml", b"", "settings come from .toml and .properties files"),
        ("app.toml", b"x = ", "cannot be read: Invalid value"),
        ("app.toml", b"\xff", "cannot be read: .*utf-8"),
        ("app.properties", b"\xff", "cannot be read: .*utf-8"),
        ("app.properties", None, "cannot be read: .*No such file"),
        ("app.properties", b"a = hunter2\\u12", r"cannot be read: \\u without four hexadecimal digits in the value of a$"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    """It names the file."""
    file = tmp_path / name
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"{name}: {message}"):
        StreamsConfig.load(file, environ={})


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("a", [("a", "")]),
        ("a b c", [("a", "b c")]),
        ("a = b = c", [("a", "b = c")]),
        (r"a\ b\=c = d\te\\f", [("a b=c", "d\te\\f")]),
        (r"a = \u00e9\!", [("a", "\u00e9!")]),
        ("a = b\\\\\nc = d", [("a", "b\\"), ("c", "d")]),
        ("a = b\\\n  c", [("a", "bc")]),
        ("a = b\\", [("a", "b")]),
        ("a = #1", [("a", "#1")]),
        ("a = b\\\n# no comment", [("a", "b# no comment")]),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, pairs: list[tuple[str, str]]) -> None:
    """Separators, escapes, lines that go on."""
    assert list(parse_properties(text)) == pairs


def test_lines_and_blanks_are_those_of_java() -> None:
    """Other characters that Python takes for ends of lines, or for blanks, are part of a value."""
    assert list(parse_properties("a=1\x0b2\u20283\x85\nb=\xa04\x1c\rc = 5\f\r\n\f d=6")) == [
        ("a", "1\x0b2\u20283\x85"),
        ("b", "\xa04\x1c"),
        ("c", "5\f"),
        ("d", "6"),
    ]
    # Behind a lone backslash there may be a comment, and blank lines; they do not end what goes on.
    assert list(parse_properties("\\\n# a\n\\\n\nb=1\na\\\n\nc=1\nd=\\\n#1\n\\\n !e\\\nf\n\\")) == [
        ("b", "1"),
        ("a", ""),
        ("c", "1"),
        ("d", "#1"),
        ("f", ""),
    ]


def test_characters_beyond_the_first_plane_are_two_of_javas() -> None:
    """Half of one is an error that names the setting, and does not show its value."""
    assert list(parse_properties(r"a = \ud83d\ude00")) == [("a", "\U0001f600")]
    with pytest.raises(ValueError, match=r"half of a surrogate pair \(\\u\) in the value of password: write both halves") as caught:
        list(parse_properties(r"password = hunter2\ud83d"))
    assert "hunter2" not in str(caught.value)


WORDS = st.text(string.ascii_letters + string.digits + " =:#!\\\t\n\u00e9", min_size=1)


@given(st.lists(st.tuples(WORDS, WORDS)))
def test_escaped_text_is_read_back(pairs: list[tuple[str, str]]) -> None:
    """Any character may be written as its code."""
    text = "\n".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs)
    assert list(parse_properties(text)) == pairs


ANY = st.text(st.characters(exclude_categories=["Cs"]))
BREAKS = st.sampled_from(["", "", "", "\\\n", "\\\r\n \t", "\\\r  \f"])


@st.composite
def files(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """Make a file as a person or a program may write it, and its content."""
    content = draw(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), ANY, max_size=6))
    lines = []
    for name, value in content.items():
        if draw(st.booleans()):
            lines.append(draw(st.sampled_from(["", "  ", "# a comment = x\\", "\t! another"])))
        separator = draw(st.sampled_from(["=", ":", " = ", "\t:\f", " "]))
        lines.append(draw(st.sampled_from(["", "  ", "\t"])) + written(draw, name) + separator + written(draw, value))
    return draw(st.sampled_from(["\n", "\r\n", "\r"])).join(lines), content


def written(draw: st.DrawFn, text: str) -> str:
    """Write a name or value as Java's `Properties.store` does, or with more escapes, over one or several lines."""
    plain = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    parts = []
    for at, character in enumerate(text):
        if character in plain:
            part = plain[character]
        elif character in "=:#!\\ ":
            part = f"\\{character}"
        elif draw(st.booleans()) or ord(character) > 0x7E:
            part = "".join(f"\\u{unit:04X}" for (unit,) in struct.iter_unpack(">H", character.encode("utf-16-be")))
        else:
            part = character
        # A break is nothing: blanks at the beginning of the next line are left out.
        parts.append((draw(BREAKS) if at else "") + part)
    return "".join(parts)


@given(files())
def test_a_file_as_java_writes_it_is_read_back(made: tuple[str, dict[str, str]]) -> None:
    """With comments, any separator, escapes and lines that go on."""
    text, content = made
    assert dict(parse_properties(text)) == content


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)
