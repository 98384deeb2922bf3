"""The end of processes whose starter was killed."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def ended_with_this(pid: int) -> Iterator[None]:
    """Send SIGTERM to a process if this one dies during the block, also by SIGKILL."""
    # The pipe ends with this process. In a group of its own the shell gets no Ctrl-C of the terminal.
    command = ["sh", "-c", 'read -r over || kill "$0"', str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0) as shell:  # noqa: S603 - our own
        try:
            yield
        finally:
            shell.communicate(b"over\n")
