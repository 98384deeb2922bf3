"""The reset of an application's offsets, internal topics and state."""

from __future__ import annotations

import asyncio
import shutil
import time
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

import msgspec

from ks_actors._errors import (
    ConfigError,
    IllegalGeneration,
    KsActorsError,
    ResetIncomplete,
    ResetRefused,
    StateLocked,
    UnknownTopicOrPartition,
)
from ks_actors.app._reset_plan import Planner
from ks_actors.config import MEMBERS, is_target, opened
from ks_actors.lifecycle import check_timeout, component_log, run_in_thread
from ks_actors.log import ManagesGroups, OffsetAndMetadata
from ks_actors.runtime.shared import CLUSTER_FILE, PROCESS_FILE, StateDirectory
from ks_actors.snapshots import delete_snapshot
from ks_actors.system import close_locked, open_locked

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import timedelta
    from pathlib import Path

    from ks_actors.app._reset_plan import ResetPlan
    from ks_actors.config import ResetTo, StreamsConfig
    from ks_actors.log import GroupMember, Log
    from ks_actors.topology import Topology

_LOCK: Final = ".lock"
_LOOK_AGAIN_S: Final = 0.05
_log = component_log(__name__)


async def reset(
    config: StreamsConfig,
    *,
    topology: Topology | None = None,
    log: Log | None = None,
    input_topics: Collection[str] | None = None,
    to: ResetTo = "earliest",
    internal_topics: Collection[str] | None = None,
    execute: bool = False,
    force: bool = False,
    timeout_ms: int | timedelta = 120_000,
) -> ResetPlan:
    """Reset an application, so that its next start is like the first; return the changes.

    Without `execute`, it changes nothing.

    The group gets new offsets of the input topics by `to`: 'earliest', 'latest', an offset,
    `ShiftBy`, a `datetime` (UTC unless it says otherwise), a `timedelta` before now, or offsets by
    partition. An offset that the log does not have becomes the nearest offset. Internal topics are
    deleted, and so is the local state below `state_dir`, and the snapshots of the internal topics
    at `snapshot_uri`. Input and output topics, dead letters and the state on other machines stay.
    `log` replaces the config's log.

    Input topics are those given, else those that the `topology` reads, else topics with committed
    offsets of the group. Internal topics are those given, else those of the `topology`, else topics
    with names of internal topics; a name that also fits the id of another application with a group
    is then refused.

    The offsets are set last, in one request. After an interruption or failure, reset again before
    the application is started.

    Raises ResetRefused, with nothing changed: for members in the group (`force` removes them), for
    missing topics, and for offsets that do not fit them; StateLocked when an instance uses the
    state directory; LogError. Raises ResetIncomplete when a later step has failed, or when
    `timeout_ms` are over in the middle.
    """
    timeout_ms = check_timeout(timeout_ms)
    if not is_target(to):
        raise ConfigError(
            f"to is {to!r}: give 'earliest', 'latest', an offset, ShiftBy, a datetime, a "
            "timedelta, or offsets by partition"
        )
    if log is None and config.log == "memory://":
        raise ConfigError(
            "the log is in memory and ends with its process, so nothing can be reset: set "
            "bootstrap_servers, or log=embedded:///path"
        )
    resetter = _Resetter(config, execute=execute, force=force)
    scope = asyncio.timeout(timeout_ms / 1000)
    try:
        async with scope, AsyncExitStack() as stack:
            try:
                found = await stack.enter_async_context(opened(config, log))
                return await resetter.run(found, topology, input_topics, to, internal_topics)
            except KsActorsError as error:
                if not resetter.changed:
                    raise
                raise resetter.explained(error) from error
    except TimeoutError as late:
        if not scope.expired():
            raise
        refusal = ResetRefused(f"timeout_ms ({timeout_ms}) was too short {resetter.step}")
        raise resetter.explained(refusal) if resetter.changed else refusal from late


@final
class _Resetter:
    def __init__(self, config: StreamsConfig, *, execute: bool, force: bool) -> None:
        self._config = config
        self._id: str = config.application_id
        self._execute = execute
        self._force = force
        self._directory = StateDirectory(config.state_dir / self._id)
        self._done: list[str] = []
        self._finished = False
        self.step: str = "to open the log"

    @property
    def changed(self) -> bool:
        """Whether something has changed."""
        return bool(self._done)

    def explained(self, error: KsActorsError) -> ResetIncomplete:
        """Return an error that lists the changes made so far, and says how to continue."""
        return ResetIncomplete(
            f"the reset of application {self._id} stopped in the middle: it failed {self.step}: "
            f"{error}. Changed, at least in part: {', '.join(self._done)}. Run the reset again "
            "before you start the application"
        )

    async def run(
        self,
        log: Log,
        topology: Topology | None,
        input_topics: Collection[str] | None,
        to: ResetTo,
        internal_topics: Collection[str] | None,
    ) -> ResetPlan:
        if not isinstance(log, ManagesGroups):
            raise ConfigError(
                f"{type(log).__name__} cannot change groups: it lacks the methods of "
                "ks_actors.log.ManagesGroups"
            )
        self._check_apart(log)
        with self._state_held() as directory:
            self.step = "to list the members of the group"
            members = await self._members(log)
            self.step = "to make the plan"
            planner = Planner(self._config, topology, log, log, lambda: time.time_ns() // 1_000_000)
            plan = await planner.plan(members, directory, input_topics, internal_topics, to)
            if not self._execute:
                return plan
            await self._remove(log, members)
            await self._carry_out(plan, log, log)
            self._finished = True
        return msgspec.structs.replace(plan, executed=True)

    def _check_apart(self, log: Log) -> None:
        """Raise ResetRefused when the log itself would be deleted with the state."""
        place: Path | None = getattr(log, "directory", None)
        if place is not None and place.resolve().is_relative_to(self._directory.path.resolve()):
            raise ResetRefused(
                f"the log in {place} is inside the state directory {self._directory.path}, which a "
                "reset deletes: move one of them"
            )

    @contextmanager
    def _state_held(self) -> Iterator[Path | None]:
        """Keep instances on this machine from starting.

        Yields the directory, None when there is none yet. Raises StateLocked, StateError.
        """
        path = self._directory.path
        there = path if path.is_dir() else None
        if self._execute:
            self._directory.open()
            try:
                with _members_held(path):
                    yield there
            finally:
                if there is None or self._finished:
                    _remove_if_empty(path)
                self._directory.close()
            return
        if there is not None:
            with suppress(FileNotFoundError):
                close_locked(_locked(path))
            with _members_held(path):
                pass
        yield there

    async def _members(self, groups: ManagesGroups) -> list[GroupMember]:
        members = list(await groups.group_members(self._id))
        if members and not self._force:
            raise ResetRefused(
                f"the group {self._id} has members: {', '.join(map(str, members))}; nothing has "
                "changed. Stop all instances of the application. A crashed instance stays a "
                "member until its session timeout; --force (force=True) removes it"
            )
        return members

    async def _remove(self, groups: ManagesGroups, members: list[GroupMember]) -> None:
        if members:
            self.step = "to remove members from the group"
            await groups.remove_members(self._id, members)
            _log.warning(
                "removed %d members from group %s: %s",
                len(members),
                self._id,
                ", ".join(map(str, members)),
            )
        await self._check_empty(groups)

    async def _check_empty(self, groups: ManagesGroups) -> None:
        again = await groups.group_members(self._id)
        if again:
            raise ResetRefused(
                f"members have rejoined the group {self._id}: {', '.join(map(str, again))}: stop "
                "their processes"
            )

    async def _carry_out(self, plan: ResetPlan, log: Log, groups: ManagesGroups) -> None:
        """Carry out the plan.

        Steps that only make the next start slower come first, and the offsets last: until these are
        set, a repeated reset makes the same plan.
        """
        try:
            self.step = "to commit for the group"
            # Commit the group's current offsets again: a coordinator that refuses this would refuse
            # the last step, too.
            partitions = {each.partition for each in plan.offsets}
            now = (await groups.group_offsets(self._id)).items()
            await groups.set_group_offsets(
                self._id,
                {partition: offset for partition, offset in now if partition in partitions},
            )
            if plan.state_directory is not None:
                self.step = f"to delete the state in {plan.state_directory}"
                # Note the step before taking it: even a failed step may have changed something.
                self._done.append("local state")
                await run_in_thread(partial(_empty, plan.state_directory))
            for place in plan.snapshots:
                self.step = f"to delete snapshot {place}"
                self._done.append(f"snapshot {place}")
                await run_in_thread(partial(delete_snapshot, place))
            if plan.internal_topics:
                await self._check_empty(groups)
                self.step = f"to delete topics {', '.join(plan.internal_topics)}"
                self._done.append("internal topics, at least some")
                try:
                    await log.delete_topics(plan.internal_topics)
                except UnknownTopicOrPartition:
                    _log.info("another process deleted internal topics of %s meanwhile", self._id)
                self.step = "to wait until the group has no offsets of the deleted topics"
                await self._until_forgotten(groups, plan.internal_topics)
            self.step = "to set the offsets of the input topics"
            await groups.set_group_offsets(
                self._id, {each.partition: OffsetAndMetadata(each.after) for each in plan.offsets}
            )
        except IllegalGeneration as error:
            raise ResetRefused(
                f"members joined the group {self._id} meanwhile: stop all instances of the "
                f"application ({error})"
            ) from error
        except OSError as error:
            raise ResetRefused(f"{error}") from error

    async def _until_forgotten(self, groups: ManagesGroups, topics: Collection[str]) -> None:
        """Wait until the group has no offsets of deleted topics.

        New topics of the same names would be read from those offsets.
        """
        while any(  # noqa: ASYNC110 - the coordinator sends no events
            each.topic in topics for each in await groups.group_offsets(self._id)
        ):
            await asyncio.sleep(_LOOK_AGAIN_S)


@contextmanager
def _members_held(path: Path) -> Iterator[None]:
    """Hold the directories of an instance's member processes, as they may run without the first."""
    with ExitStack() as stack:
        for place in path.glob(f"{MEMBERS}/*/{path.name}"):
            with suppress(FileNotFoundError):
                stack.callback(close_locked, _locked(place))
        yield


def _locked(path: Path) -> int:
    try:
        return open_locked(path / _LOCK)
    except BlockingIOError as error:
        raise StateLocked(
            f"the state directory {path} is in use by an instance: stop it before you reset the "
            "application"
        ) from error


def _empty(directory: Path) -> None:
    """Delete everything in a directory but its lock."""
    for path in directory.iterdir():
        if path.name == _LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove_if_empty(directory: Path) -> None:
    """Remove a directory that has only its lock and its process id.

    Other directories stay, for a repeated reset.
    """
    names = {path.name for path in directory.iterdir()}
    if names <= {_LOCK, PROCESS_FILE, CLUSTER_FILE}:
        for name in names:
            (directory / name).unlink(missing_ok=True)
        try:
            directory.rmdir()
        except OSError as error:
            _log.debug(
                "the state directory %s stays, because an instance has begun to use it: %s",
                directory,
                error,
            )
