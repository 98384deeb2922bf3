"""The options that all runs have, of a command line or of a test."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from tests.chaos.checks import EXACTLY_ONCE, GUARANTEES


def option(default: Any, text: str) -> Any:
    """Return a field of options with its help."""
    return field(default=default, metadata={"help": text})


@dataclass(kw_only=True)
class Options:
    """All that can be set for any driver; times in seconds."""

    guarantee: str = option(EXACTLY_ONCE, "that of the app")
    members: int = option(3, "processes of the app")
    workers: int = option(3, "workers of each member")
    standbys: int = option(0, "standbys of each task")
    kills: int = option(8, "members that are killed (kill -9) and started again")
    freezes: int = option(0, "members that stand still (SIGSTOP) for about the session timeout")
    broker_restarts: int = option(0, "restarts of the only broker")
    session_timeout: float = option(6.0, "that of the app's group")
    seconds: int = option(90, "in which the driver writes its records")
    max_verify: float = option(300.0, "in which the driver is to have its verdict after that")
    seed: int = option(7, "of the faults")
    work_dir: str = option("", "for logs and state; a temporary directory if not given")

    @classmethod
    def parse(cls, arguments: Sequence[str], description: str) -> Self:
        """Return the options of a command line."""
        parser = argparse.ArgumentParser(description=description)
        for each in fields(cls):
            choices = GUARANTEES if each.name == "guarantee" else None
            name = f"--{each.name.replace('_', '-')}"
            parser.add_argument(name, type=type(each.default), default=each.default, choices=choices, help=f"{each.metadata['help']} (%(default)s)")
        return cls(**vars(parser.parse_args(arguments)))
