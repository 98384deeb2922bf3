"""`ks-actors check`: whether an app could start."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Literal

import click
import msgspec

from ks_actors._counted import counted
from ks_actors._errors import ConfigError, KsActorsError
from ks_actors.app import plan_app_topics
from ks_actors.cli._application import of_target
from ks_actors.cli._output import show
from ks_actors.config import ProcessingGuarantee, opened
from ks_actors.lifecycle import in_thread
from ks_actors.log import ManagesGroups, NewTopic, TellsOperations
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.runtime.shared import check_new_topics
from ks_actors.snapshots import Place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from ks_actors.app import TopicPlan
    from ks_actors.cli._application import Application
    from ks_actors.config import StreamsConfig
    from ks_actors.log import Log


class _Finding(msgspec.Struct, frozen=True):
    check: str
    result: Literal["ok", "failed", "note"]
    detail: str


@click.command()
@click.option(
    "--timeout-ms",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="The time limit for all checks together, in ms.",
)
@of_target
def check(application: Application, *, timeout_ms: int, as_json: bool) -> None:
    """Check settings, brokers, topics and permissions of an app, without running it.

    Nothing is changed: no topic is created, no group is joined. Brokers that report no permissions
    are noted. MODULE:NAME and settings are those of `ks-actors run`. Exit codes: 0 the app could
    start, 1 a check has failed, 2 wrong command line or setting.
    """
    found = asyncio.run(_Checks(application).run(timeout_ms))
    show(
        [msgspec.structs.asdict(each) for each in found],
        ("check", "result", "detail"),
        as_json=as_json,
    )
    if any(each.result == "failed" for each in found):
        raise SystemExit(1)


class _Checks:
    def __init__(self, application: Application) -> None:
        self._application = application
        self._config = application.config
        self._app = application.app
        assert application.topology is not None
        self._topology = application.topology
        self._given_topics: Mapping[str, int] = application.topics
        self._found: list[_Finding] = []
        # The check to which an error belongs: the first failing step ends all checks.
        self._step = "broker"

    async def run(self, timeout_ms: int) -> Sequence[_Finding]:
        config = self._config
        given = [name for name, origin in config.origins.items() if origin != "default"]
        self._note("config", "ok", f"settings given: {', '.join(sorted(given))}")
        self._note("config", "ok", f"the guarantee is {config.processing_guarantee.value}")
        if config.ignored:
            self._note("config", "note", f"ignored settings: {', '.join(config.ignored)}")
        await self._directories()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                # An app that was made with a log of its own uses that log, whatever its settings
                # are.
                given_log = None if self._app is None else self._app._given_log
                missing = self._application.missing
                if missing is not None:
                    detail = f"there is no log in {missing}: the start will create it"
                    self._note("broker", "note", detail)
                    async with EmbeddedLog() as log:
                        await self._look(log)
                    return self._found
                async with opened(_hurried(config, timeout_ms), given_log) as log:
                    where = config.log if given_log is None else repr(given_log)
                    self._note("broker", "ok", f"{where} answers")
                    await self._look(log)
        except KsActorsError as error:
            self._note(self._step, "failed", f"{type(error).__name__}: {error}")
        except TimeoutError:
            self._note(self._step, "failed", f"no answer from {config.log} in {timeout_ms} ms")
        return self._found

    def _note(self, check: str, result: Literal["ok", "failed", "note"], detail: str) -> None:
        self._found.append(_Finding(check, result, detail))

    async def _directories(self) -> None:
        """Check the places of local state and of snapshots."""
        state = self._config.state_dir / self._config.application_id
        problem = _unwritable(state)
        if problem is None:
            self._note("state", "ok", f"{state} can be written")
        else:
            detail = f"{problem}: set state_dir to a directory that the app can write"
            self._note("state", "failed", detail)
        if self._config.snapshot_uri is not None:
            try:
                place = await in_thread(Place.of, self._config.snapshot_uri)
            except ConfigError as error:
                self._note("snapshots", "failed", f"snapshot_uri: {error}")
            else:
                self._note("snapshots", "ok", f"{place} is a place for snapshots")

    async def _look(self, log: Log) -> None:
        self._step = "topics"
        plans = await plan_app_topics(self._topology, self._config, log, self._given_topics)
        for plan in plans:
            if plan.state == "does not fit":
                self._note("topics", "failed", f"{plan.use} {plan.topic}: {plan.problem}")
            elif plan.state == "missing" and not plan.created:
                self._note("topics", "failed", f"{plan.use} {plan.topic} does not exist: create it")
        missing = [plan for plan in plans if plan.created and plan.state == "missing"]
        # Their sizes are unknown without the source topics; names and configs are known.
        await check_new_topics(
            log, [NewTopic(plan.topic, plan.partitions or 1, plan.configs) for plan in missing]
        )
        there = sum(plan.state == "exists" for plan in plans)
        self._note("topics", "ok", f"{there} of {len(plans)} exist")
        if missing:
            names = ", ".join(plan.topic for plan in missing)
            self._note("topics", "note", f"the start will create {names}")
        self._step = "group"
        if isinstance(log, ManagesGroups):
            members = await log.group_members(self._config.application_id)
            self._note(
                "group",
                "ok",
                f"{self._config.application_id} has {counted(len(members), 'member')}",
            )
        self._step = "permissions"
        await self._permissions(log, plans)

    async def _permissions(self, log: Log, plans: Sequence[TopicPlan]) -> None:
        if not isinstance(log, TellsOperations):
            self._note("permissions", "note", f"{type(log).__name__} has no permissions")
            return
        # Brokers report no permissions for topics that they do not have.
        existing = [plan for plan in plans if plan.state != "missing"]
        application_id = self._config.application_id
        transactions = self._config.processing_guarantee is ProcessingGuarantee.EXACTLY_ONCE_V2
        found = await log.allowed_operations(
            [plan.topic for plan in existing],
            application_id,
            f"{application_id}-check" if transactions else None,
        )
        lacking: list[str] = []
        for plan in existing:
            allowed = found.topics.get(plan.topic)
            lacking += [
                f"{operation} on topic {plan.topic}"
                for operation in _needed(plan)
                if allowed is not None and operation not in allowed
            ]
        if found.group is not None and "READ" not in found.group:
            lacking.append(f"READ on group {application_id}")
        if found.transactional_id is not None and "WRITE" not in found.transactional_id:
            lacking.append(f"WRITE on transactional ids {application_id}-*")
        missing = any(plan.created and plan.state == "missing" for plan in plans)
        # This is only a note: the right to create may also come from a prefix of names, which no
        # broker reports.
        if found.cluster is not None and missing and "CREATE" not in found.cluster:
            self._note(
                "permissions",
                "note",
                "CREATE on the cluster is not permitted: CREATE on the names of the missing "
                "topics is needed, or they have to be created before",
            )
        if lacking:
            self._note("permissions", "failed", f"not permitted: {'; '.join(lacking)}")
        elif all(each is None for each in (*found.topics.values(), found.group)):
            self._note("permissions", "note", "the brokers do not tell permissions")
        else:
            ids = ", group and transactional ids" if transactions else " and group"
            self._note("permissions", "ok", f"topics{ids} are permitted")


def _hurried(config: StreamsConfig, timeout_ms: int) -> StreamsConfig:
    """Return a config whose log times out before the check, as the log's error has the reason."""
    limit_ms = max(1, timeout_ms * 9 // 10)
    if not config.log.startswith("kafka://") or config.default_api_timeout_ms <= limit_ms:
        return config
    return config.replace(default_api_timeout_ms=limit_ms)


def _unwritable(path: Path) -> str | None:
    """Return the reason why a directory cannot be made or written, if any; change nothing."""
    # Unlike Path.exists, os.path.exists is False for paths that may not be looked at.
    nearest = next(each for each in (path, *path.absolute().parents) if os.path.exists(each))  # noqa: PTH110 - see above
    if not nearest.is_dir():
        return f"{nearest} is not a directory"
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"{nearest} cannot be written by this user"
    return None


def _needed(plan: TopicPlan) -> tuple[str, ...]:
    if plan.use in {"source", "global"}:
        return ("READ", "DESCRIBE")
    if plan.use in {"sink", "dead letters"}:
        return ("WRITE", "DESCRIBE")
    if plan.use == "repartition":
        return ("READ", "WRITE", "DELETE", "DESCRIBE")
    return ("READ", "WRITE", "DESCRIBE")
