"""An application before its start: backfill, publish, export, seed and reset."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ks_actors._errors import NotRunning, SparkUnavailable, TopicExists
from ks_actors.app._checks import check_log, check_topics
from ks_actors.app._members import paced, part_of
from ks_actors.config import opened
from ks_actors.log import NewTopic
from ks_actors.system import Later
from ks_actors.task import Planning, TaskParts
from ks_actors.topology import (
    check_serdes,
    check_services,
    refuse_unnamed,
    topology_of,
    with_headers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from pathlib import Path

    from actors import Ref
    from ks_actors.app._reset_plan import ResetPlan
    from ks_actors.batch import (
        Backfill,
        BackfillProgress,
        Choice,
        Engine,
        ExportProgress,
        SparkSettings,
    )
    from ks_actors.batch.spark import BridgeMessage
    from ks_actors.config import ResetTo, StreamsConfig
    from ks_actors.dsl import StreamsBuilder
    from ks_actors.log import Log, TopicPartition
    from ks_actors.runtime.snapshots import IfSeeded
    from ks_actors.snapshots import SnapshotManifest
    from ks_actors.topology import Topology


if TYPE_CHECKING:
    from ks_actors.app import _reset
    from ks_actors.runtime import snapshots
else:
    _reset = Later("ks_actors.app._reset")
    snapshots = Later("ks_actors.runtime.snapshots")


class AppOverHistory:
    """The part of an App that needs no running tasks."""

    def __init__(
        self,
        topology: Topology | StreamsBuilder,
        config: StreamsConfig,
        log: Log | None,
        topics: Mapping[str, int],
        services: Iterable[AbstractAsyncContextManager[Any]],
    ) -> None:
        topology = topology_of(topology, config, of="App")
        topology = part_of(topology, config)
        config = paced(config, topology)
        check_log(log)
        check_topics(topics)
        check_serdes(topology, key=config.default_key_serde, value=config.default_value_serde)
        if config.ensure_explicit_internal_resource_naming:
            refuse_unnamed(topology)
        self.config: StreamsConfig = config
        self._topology: Topology = (
            with_headers(topology, config.default_dsl_store)
            if config.dsl_store_format == "HEADERS"
            else topology
        )
        self._given_log: Log | None = log
        self._topics: Mapping[str, int] = topics
        self._given_services = tuple(services)
        check_services(self._given_services, of="App")
        self._begun: bool = False
        self._planning: Planning = Planning()

    def _running_log(self) -> Log | None:
        """Return the log of the app while it runs."""
        return None

    def _move(self, log: Log, config: StreamsConfig) -> None:
        """Take another log and config, before the start."""
        self._given_log, self.config = log, config

    async def _create_topics(self, log: Log) -> None:
        if self._topics:
            existing = await log.describe_topics(self._topics)
            # Another instance, or an unanswered attempt, may have created topics meanwhile.
            with suppress(TopicExists):
                await log.create_topics(
                    [
                        NewTopic(name, partitions)
                        for name, partitions in self._topics.items()
                        if name not in existing
                    ]
                )

    async def backfill(
        self,
        *,
        until: int | Mapping[str, Mapping[int, int]] | None = None,
        allow: Collection[Choice] = (),
        engine: Engine = "local",
        spark: SparkSettings | Ref[BridgeMessage] | None = None,
        progress: Callable[[BackfillProgress], None] | None = None,
        directory: Path | None = None,
    ) -> Backfill:
        """Run the topology over past records, and write a snapshot: see `ks_actors.batch.backfill`.

        A backfill enters the app's services, too; a later start enters them again. Raises
        NotRunning for an app that was started.
        """
        if self._begun:
            raise NotRunning(
                f"app {self.config.application_id} has already been started: run a backfill with a "
                "new one"
            )
        from ks_actors.batch import backfill as over_history  # noqa: PLC0415 - few apps need it

        to: Any = {
            "snapshot_uri": self.config.snapshot_uri,
            "log": self._given_log,
            "directory": directory,
            "engine": engine,
        }
        return await over_history(
            self._topology,
            self.config,
            until=until,
            allow=allow,
            spark=spark,
            progress=progress,
            services=self._given_services,
            **to,
        )

    async def publish_backfill(
        self,
        done: Backfill,
        *,
        job: str = "backfill",
        progress: Callable[[TopicPartition, int], None] | None = None,
    ) -> dict[str, int]:
        """Write a backfill's output to its topics, once for each job.

        See `ks_actors.batch.publish_backfill`. Returns how many records were new. Call it before
        the app is started: live output comes after history. Raises NotRunning for an app that was
        started.
        """
        if self._begun:
            raise NotRunning(
                f"app {self.config.application_id} has already been started: import history into "
                "its topics before the start"
            )
        from ks_actors.batch import publish_backfill  # noqa: PLC0415 - most apps have no use for it

        return await publish_backfill(
            done, self.config, job=job, log=self._given_log, progress=progress
        )

    async def export(
        self,
        directory: Path | str,
        *,
        tables: Collection[str] = (),
        topics: Collection[str] = (),
        raw: bool = False,
        types: Mapping[str, Any] | None = None,
        progress: Callable[[ExportProgress], None] | None = None,
    ) -> dict[str, int]:
        """Write tables (by store name) and topics as Parquet; return how many rows each has.

        The files are `<directory>/<name>/<partition>.parquet`. A table is the last value of each
        key in its changelog, a topic all its records; both only up to what is committed now. You
        may call it before, during or after the app's run.

        Keys and values are decoded by the serdes of the topology, into structs, lists, maps and
        scalars where their types allow. Other values stay bytes, unless `types` has, by name, the
        type that the serde makes. With `raw`, and for topics that the topology does not know, all
        values stay bytes. Windows and sessions have columns of their own. A file appears when
        it is complete; a table's partition has to fit into memory. `progress` is called on this
        event loop at the start and the end of each partition, and each second in between; an error
        that it raises ends the export.

        Raises UnknownStore, UnknownTopicOrPartition, ConfigError for a table without a changelog,
        SerializationError, which says where bad data is, and SparkUnavailable without pyarrow (`pip
        install 'ks-actors[parquet]'`).
        """
        try:
            from ks_actors.batch.tables import export  # noqa: PLC0415 - optional package
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise SparkUnavailable(
                "Parquet needs pyarrow, which is not installed: pip install 'ks-actors[parquet]'"
            ) from error

        log = self._given_log or self._running_log()
        return await export(
            self._topology,
            self.config,
            directory,
            log,
            tables=tables,
            topics=topics,
            raw=raw,
            types=types,
            progress=progress,
        )

    async def seed(self, uri: str, *, if_seeded: IfSeeded = "refuse") -> SnapshotManifest | None:
        """Load a snapshot into the application before its first start.

        The app then continues where the snapshot ends. Returns the snapshot's manifest.

        `uri` is a snapshot, or a place with snapshots, of which the newest of this application is
        taken. Rows, the group's offsets and deletions of the changelogs' former content are one
        transaction: all of it happens, or nothing, and a repetition gives the same. `if_seeded`
        applies if the group has committed something: refuse, skip (returns None), or overwrite all.

        Raises NotRunning once the app was started. Raises SnapshotRefused for a snapshot that is
        broken, foreign, or lacks something that the topology needs, or when the group has members
        or offsets. Raises SnapshotFailed when it takes longer than `snapshot_timeout_ms`;
        StateLocked; LogError.
        """
        if self._begun:
            raise NotRunning(
                f"app {self.config.application_id} has already been started: load state before the "
                "start"
            )
        async with opened(self.config, self._given_log) as log:
            await self._create_topics(log)
            parts = TaskParts.of(self._topology, self.config, planning=self._planning)
            return await snapshots.Bootstrap(parts.topics, parts.stores, log).seed(uri, if_seeded)

    async def reset(
        self,
        *,
        input_topics: Collection[str] | None = None,
        to: ResetTo = "earliest",
        internal_topics: Collection[str] | None = None,
        execute: bool = False,
        force: bool = False,
        timeout_ms: int | timedelta = 120_000,
    ) -> ResetPlan:
        """Reset the application, so that its next start is like the first: see `ks_actors.reset`.

        Returns the changes. Raises NotRunning for an app that was started.
        """
        if self._begun:
            raise NotRunning(
                f"app {self.config.application_id} has already been started: reset the application "
                "with a new one, before the start"
            )
        options: Any = {"execute": execute, "force": force, "timeout_ms": timeout_ms}
        return await _reset.reset(
            self.config,
            topology=self._topology,
            log=self._given_log,
            input_topics=input_topics,
            to=to,
            internal_topics=internal_topics,
            **options,
        )
