"""An app as one of several processes, which a supervisor starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import ConfigError, FencedInstanceId, StateLocked, TopologyError
from ks_actors.lifecycle import admitted
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.system import become_supervisor, check_posix, current_member
from ks_actors.topology import REST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log
    from ks_actors.runtime.shared import InstanceState
    from ks_actors.runtime.watch import TaskMetadata
    from ks_actors.topology import Topology

# A restart changes none of these; only a change of settings, sources or programs does.
_FINAL: Final = (ConfigError, TopologyError, FencedInstanceId, StateLocked)
_MOST: Final = 256
_MOST_TEXT: Final = 4_000
_CPU_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
_KILL_S: Final = 10


def as_member(config: StreamsConfig) -> StreamsConfig:
    """Return the config of this process: that of its member, if a supervisor has started it."""
    member = current_member()
    if member is None:
        return config
    member.close_s = config.close_timeout_ms / 1000 + _KILL_S
    return config.for_member(member.number, member.count)


def part_of(topology: Topology, config: StreamsConfig) -> Topology:
    """Return the part of the topology that this process runs, by `queries` or by its member.

    Raises TopologyError for unknown queries, and for queries that no process would run.
    """
    member = current_member()
    if member is None or not member.groups:
        return topology.only(*config.queries) if config.queries else topology
    if config.queries:
        raise ConfigError(
            f"queries is {', '.join(config.queries)}, and processes names queries, too: give one"
        )
    groups, known = _groups(member.groups), frozenset(topology.queries())
    others = known - groups.keys()
    if others and REST not in groups:
        raise TopologyError(
            f"no process runs {', '.join(sorted(others))}: add {REST}=1 to the processes "
            f"{member.groups}, for all queries that they do not name"
        )
    query = [query for query, count in groups.items() for _ in range(count)][member.number - 1]
    return topology.only(*(others | {REST} & known if query == REST else (query,)))


def paced(config: StreamsConfig, topology: Topology) -> StreamsConfig:
    """Return the config with the least commit interval of these queries.

    A query without an interval has that of the config. Raises ConfigError for an interval that the
    config does not allow.
    """
    intervals = topology.commit_intervals
    own = {
        query: intervals.get(query, config.commit_interval_ms)
        for query in (topology.queries() if intervals else ())
    }
    query = min(own, key=own.__getitem__, default="")
    if own.get(query, config.commit_interval_ms) == config.commit_interval_ms:
        return config
    try:
        return config.replace(commit_interval_ms=own[query])
    except ConfigError as error:
        raise ConfigError(f"query {query}: {error}") from None


def processes_of(given: int | str | Mapping[str, int]) -> tuple[int, str]:
    """Return the number of processes, and their queries as in `fraud=1,rest=3`, or an empty text.

    `auto` is the number of cores. Raises ConfigError.
    """
    check_posix("processes")
    if given == "auto":
        return _cores(), ""
    text = given if isinstance(given, str) else ""
    if isinstance(given, Mapping):
        text = ",".join(f"{query}={count}" for query, count in given.items())
    try:
        found = sum(_groups(text).values()) if "=" in text else int(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        found = 0
    if not 1 <= found <= _MOST:
        raise ConfigError(
            f"processes is {given!r}: give a number from 1 to {_MOST}, 'auto', or numbers by query "
            "as in fraud=1,rest=3"
        )
    return found, text if "=" in text else ""


def _groups(text: str) -> dict[str, int]:
    """Return the numbers of processes by query; raise ValueError for any other text."""
    pairs = [pair.split("=") for pair in text.split(",")]
    found = {query.strip(): int(count) for query, count in pairs}
    if len(found) < len(pairs) or not all(count > 0 and query for query, count in found.items()):
        raise ValueError(text)
    return found


def _cores() -> int:
    """Return the number of cores that this process may use, by its affinity and its cgroup."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, _, period = _CPU_QUOTA.read_text(encoding="ascii").partition(" ")
        limit = int(quota) // int(period)
    except (OSError, ValueError):  # there is no cgroup, or it has no limit
        return cores or 1
    return max(1, min(cores or 1, limit))


def supervise(processes: int | str | Mapping[str, int], **options: Any) -> None:
    """Become the supervisor of this program's members; return if this process is a member.

    Raises ConfigError.
    """
    count, groups = processes_of(processes)
    if current_member() is None:
        become_supervisor({"processes": count, "groups": groups, **options})


async def begin_as_member(config: StreamsConfig, log: Log) -> None:
    """Wait until the supervisor has put the task directories in their places.

    Raises ConfigError for a log that belongs to one process at a time.
    """
    if (member := current_member()) is None:
        return
    if isinstance(log, EmbeddedLog):
        raise ConfigError(
            f"{log!r} belongs to one process at a time: run members on a Kafka (set "
            "bootstrap_servers), or the app without processes"
        )
    place = config.state_dir
    home = place / config.application_id if member.number == 1 else place.parents[1]
    await admitted(
        "start",
        home=str(home.absolute()),
        application_id=config.application_id,
        close_ms=config.close_timeout_ms,
        session_ms=config.session_timeout_ms,
    )


def tell_supervisor(state: InstanceState, tasks: Callable[[], Iterable[TaskMetadata]]) -> None:
    """Tell the supervisor the app's state and its number of active tasks."""
    if (member := current_member()) is not None:
        member.say("state", state=state.name, active=sum(not task.standby for task in tasks()))


def tell_end(error: Exception) -> None:
    """Tell the supervisor the error that has ended the app, and whether a restart may help."""
    if (member := current_member()) is not None:
        # The supervisor reads lines of at most 64 KiB; a character takes up to 12 bytes there.
        text = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
        member.say("failed", error=text, final=isinstance(error, _FINAL))
