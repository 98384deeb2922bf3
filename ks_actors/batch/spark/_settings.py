"""The settings of a Spark session."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from ks_actors._errors import ConfigError

CONNECT = "sc://"
_DRIVER_MEMORY = "2g"
_MASTERS = ("local", "spark://", "yarn", "k8s://", CONNECT)


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a Spark session.

    `master` is Spark's master URL. `local[*]` (the default) runs on this machine, as a child
    process; `spark://host:port`, `yarn` and `k8s://…` name a cluster, `sc://host:port` a Spark
    Connect server. `driver_memory` limits the child process. `conf` holds Spark's own settings and
    overrides the bridge's choices. `python` is the interpreter of the tasks. A Spark Connect server
    chooses `driver_memory` and `python` itself. At most `max_jobs` jobs run at a time; others wait.

    Raises ConfigError for an invalid master, for `max_jobs` below 1, for `driver_memory` or
    `python` with a Spark Connect server, and for a `kafka.transactional.id`, as Spark cannot write
    in transactions.
    """

    master: str = "local[*]"
    app_name: str = "ks-actors"
    driver_memory: str = _DRIVER_MEMORY
    conf: Mapping[str, str] = {}
    python: str = sys.executable
    max_jobs: int = 2

    def __post_init__(self) -> None:
        """Check the settings, as far as possible without Spark."""
        if not str(self.master).startswith(_MASTERS):
            raise ConfigError(
                f"master: {self.master!r} is not a Spark master: use local[*], spark://host:port, "
                "yarn, k8s://… or sc://host:port"
            )
        if type(self.max_jobs) is not int or self.max_jobs < 1:
            raise ConfigError(f"max_jobs: is {self.max_jobs!r}: give 1 or more, an int")
        chosen = (("driver_memory", _DRIVER_MEMORY), ("python", sys.executable))
        for name, default in chosen if self.connects else ():
            if getattr(self, name) != default:
                raise ConfigError(
                    f"{name}: has no effect at {self.place}: the Spark Connect server has chosen "
                    "its own, so set it there"
                )
        if any(name.endswith("kafka.transactional.id") for name in self.conf):
            raise ConfigError(
                "conf: kafka.transactional.id makes every task fail after two minutes, because "
                "Spark begins no transactions: remove it"
            )

    @property
    def place(self) -> str:
        """The master for messages; the parameters of a Spark Connect URL may contain a token."""
        return self.master.partition("/;")[0] if self.connects else self.master

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields, with only the names of `conf`.

        The values of `conf` may be passwords, and printed values end up in logs.
        """
        shown = {"master": self.place, "conf": list(self.conf)}
        return [(name, shown.get(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        fields = (f"{name}={value!r}" for name, value in self.__rich_repr__())
        return f"SparkSettings({', '.join(fields)})"

    @property
    def connects(self) -> bool:
        """Whether the master is a Spark Connect server; then this process has no JVM."""
        return self.master.startswith(CONNECT)
