"""All sources of an app's metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors.runtime.metrics._client import client_source
from ks_actors.runtime.metrics._inputs import input_source
from ks_actors.runtime.metrics._log import log_source
from ks_actors.runtime.metrics._nodes import call_source, node_source
from ks_actors.runtime.metrics._restores import restore_source
from ks_actors.runtime.metrics._stores import store_source
from ks_actors.runtime.metrics._tasks import task_source
from ks_actors.runtime.metrics._threads import thread_source

if TYPE_CHECKING:
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics


def add_sources(metrics: Metrics, watched: Watched) -> None:
    """Add all sources of an app to its registry."""
    for source in (
        client_source,
        thread_source,
        task_source,
        input_source,
        node_source,
        call_source,
        store_source,
        restore_source,
        log_source,
    ):
        metrics.registry.add(source(metrics, watched))
