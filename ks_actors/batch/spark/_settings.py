"""What a Spark session is to be like."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT = "sc://"
_MASTERS = ("local", "spark://", "yarn", "k8s://", CONNECT)


class SparkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which Spark to use, and how.

    `master` is Spark's: `local[*]` (the default) runs inside of this machine, as a child process of this one; `spark://host:port`, `yarn` and
    `k8s://…` name a cluster, `sc://host:port` a Spark Connect server. `driver_memory` bounds the child process. `conf` has Spark's own settings,
    which go before those that the bridge chooses. `python` is the interpreter of the tasks. At most `max_jobs` jobs run at a time, others wait.

    Raises ConfigError for a master that is none, for `max_jobs` below 1, and for a `kafka.transactional.id`: Spark cannot write in transactions.
    """

    master: str = "local[*]"
    app_name: str = "ks-actors"
    driver_memory: str = "2g"
    conf: Mapping[str, str] = {}
    python: str = sys.executable
    max_jobs: int = 2

    def __post_init__(self) -> None:
        """Check what can be checked without Spark."""
        if not self.master.startswith(_MASTERS):
            raise ConfigError(f"master: {self.master!r} is no Spark: use local[*], spark://host:port, yarn, k8s://… or sc://host:port")
        if self.max_jobs < 1:
            raise ConfigError(f"max_jobs: is {self.max_jobs}, at least one job has to be able to run")
        if any(name.endswith("kafka.transactional.id") for name in self.conf):
            raise ConfigError("conf: kafka.transactional.id makes every task fail after two minutes, as Spark begins no transactions: leave it out")

    @property
    def place(self) -> str:
        """What may be told of the master: what Spark Connect's URLs have behind the address may be a token."""
        return self.master.partition("/;")[0] if self.connects else self.master

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Return the fields, of `conf` the names: there may be passwords, and what is printed goes into logs."""
        shown = {"master": self.place, "conf": list(self.conf)}
        return [(name, shown.get(name, getattr(self, name))) for name in self.__struct_fields__]

    def __repr__(self) -> str:
        return f"SparkSettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @property
    def connects(self) -> bool:
        """Whether Spark is reached by Spark Connect: then there is no JVM of this process's own."""
        return self.master.startswith(CONNECT)
