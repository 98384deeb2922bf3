"""An instance of an app on simulated brokers: a process with a site and a disk of its own, that ends and starts again."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Self

from ks_actors import App, NotRunning, StreamsConfig
from ks_actors.runtime.shared import write_process_id
from ks_actors.testing._disk import copy_as_is
from tests.simulation.network import PORT, Place

if TYPE_CHECKING:
    from pathlib import Path

    from ks_actors.testing._app_kit import AppKit
    from tests.simulation.apps import Apps


class Instance:
    """One instance, which may be used as the harness of an app is.

    Each start after a crash is another process: its site is new, and its disk has what the old one had, or nothing.
    """

    def __init__(self, run: Apps, number: int) -> None:
        self._run = run
        self._number = number
        self._app: App | None = None
        self._starting: asyncio.Future[None] | None = None
        self._site = 0
        self._crashes = 0
        self.config: StreamsConfig = self._new_config()

    @property
    def app(self) -> App:
        """The app. Raises NotRunning after a crash."""
        if self._app is None:
            raise NotRunning("no app is running")
        return self._app

    @property
    def kit(self) -> AppKit:
        return self._run.kit

    @property
    def _directory(self) -> Path:
        return self._run.disk / f"{self._number}-{self._crashes}"

    def _new_config(self) -> StreamsConfig:
        run = self._run
        self._site = run.new_site()
        return StreamsConfig.of({
            **run.plan.config,
            "application_id": "app",
            "client_id": f"c{self._number}",
            "bootstrap_servers": ",".join(f"{Place(self._site, node).host}:{PORT}" for node in run.cluster.brokers),
            "state_dir": str(self._directory),
            **({"group_instance_id": f"i{self._number}"} if self._number in run.plan.static else {}),
        })  # fmt: skip

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Start an app. Raises what prevents that."""
        # Its process id comes from the seed, so that a run can be repeated.
        write_process_id(self.config.state_dir / "app", str(uuid.UUID(int=self.kit.random.getrandbits(128))))
        app = self._app = self._run.make_app(self.config)
        starting = self._starting = asyncio.ensure_future(app.start())
        await asyncio.wait([starting])
        # One that has been closed or killed meanwhile has not to start.
        if self._app is app:
            starting.result()

    async def close(self) -> None:
        """Close the app."""
        app, self._app = self._app, None
        if app is not None:
            await app.close()
            self._run.check_fetches(app)

    async def restart(self) -> None:
        """Start the app again."""
        await self.start()

    async def crash(self) -> None:
        """End it without a word: nothing more is sent, and its disk stays as it is, or is lost."""
        run, app, old = self._run, self.app, self.config.state_dir
        self._app = None
        run.check_fetches(app)
        run.cluster.network.leave(self._site)
        self._crashes += 1
        self.config = self._new_config()
        if run.keeps_disk():
            # Another place: what is left of the old process may still write to its own.
            copy_as_is(old, self.config.state_dir)
        if self._starting is not None:
            self._starting.cancel()
        if app._ref is not None and app._instance is not None:
            for task in app._metrics.tasks.values():
                task.abandon()
            context = app._instance.ctx
            for child in context.children:
                context.kill(child)
            await self.kit.kill(app._ref)
        # Its calls wait for answers that never come, until their deadlines.
        run.bury(app.close(timeout_ms=0))

    def another(self, *, start: bool) -> Instance:
        """Return one more instance, not started."""
        assert not start
        return self._run.another()

    async def add_worker(self) -> str | None:
        """Add a worker."""
        return await self.app.add_worker()

    async def remove_worker(self) -> str | None:
        """Remove a worker."""
        return await self.app.remove_worker()

    def stalls(self) -> int:
        """Return how many fetches the watchdog had to begin anew."""
        return 0 if self._app is None else int(self._app._metrics.stalls_mended)

    def behind(self) -> Any:
        """Return what its records wait for, for reports."""
        return () if self._app is None else self._app.waiting()
