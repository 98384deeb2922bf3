"""One environment for the tests that install ks-actors: the one that the pages of Start make."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ks_actors.cli.new.start import Terminal, blocks_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    """Open a terminal in an empty folder, and run the commands that install ks-actors, as the first page has them."""
    with Terminal(tmp_path_factory.mktemp("start")) as terminal:
        install = next(block for block in blocks_of("start-first-app.md") if block.kind == "sh")
        terminal.run(install)
        yield terminal
