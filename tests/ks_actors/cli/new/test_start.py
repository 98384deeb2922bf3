"""The pages of Start lead from an empty folder to a tested app on Kafka."""

from __future__ import annotations

import re

import pytest

from tests.kafka.broker import NEWEST, Broker, free_ports
from tests.ks_actors.cli.new.start import PAGES, ROOT, Terminal, blocks_of

MOST_COMMANDS = 10
ASIDE = {"start-fastapi.md"}
"""Pages that the way to a tested app on Kafka may leave out."""


@pytest.mark.extended
@pytest.mark.timeout(600)
@pytest.mark.heavy("makes an environment, installs this checkout into it, and runs a dozen commands")
def test_the_blocks_of_start_make_a_tested_app_on_kafka(installed: Terminal, kafka_broker: Broker) -> None:
    """Its commands run in order, its files are saved, and its output comes; only the broker and a port are the tests' own."""
    real = {"localhost:9092": kafka_broker.bootstrap, "8000": str(free_ports(1)[0])}
    first = True
    for page in PAGES:
        for block in blocks_of(page):
            if block.kind == "sh" and (first or block.text.startswith("docker run ")):
                first = False  # the fixtures have installed it, and started a broker
                continue
            installed.run(block, but=real)


def test_start_has_ten_commands_at_most() -> None:
    """From an empty folder to a tested app on Kafka, a container for Kafka included, which is of the version of the tests."""
    blocks = [block for page in PAGES if page not in ASIDE for block in blocks_of(page) if block.kind == "sh"]
    commands = [command for block in blocks for command in block.commands()]
    assert len(commands) <= MOST_COMMANDS, commands
    assert [command.split(":")[-1] for command in commands if command.startswith("docker run ")] == [NEWEST]


def test_pages_name_what_installs() -> None:
    """The front pages have the line of Start, which a test runs; no page names an index, which has no release yet."""
    (install,) = (block.text for block in blocks_of(PAGES[0])[:1])
    for page in ("README.md", "docs/index.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        (line,) = re.findall(r"^pip install .*ks-actors.*$", install, re.MULTILINE)
        assert line in text, page
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert [page.name for page in pages if re.search(r"pip install[^`\n]* '?ks-actors", page.read_text(encoding="utf-8"))] == []
