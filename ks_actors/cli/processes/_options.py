"""The options of a supervisor, as its command line has them."""

from __future__ import annotations

from typing import NamedTuple


class Options(NamedTuple):
    """The number of members, their queries, the addresses of page and probes, and the log."""

    processes: int
    groups: str = ""
    page: int | None = None
    probes: tuple[str, int] | None = None
    log_level: str | None = None
    log_format: str = "text"
    quiet: bool = False
