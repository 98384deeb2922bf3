"""Metrics of the app as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ks_actors.metrics.families import client as f
from ks_actors.metrics.families import instance
from ks_actors.runtime.shared import InstanceState
from ks_actors.system import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.metrics import MetricSource, Readings
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics

_STATES: Final = {state: float(number) for number, state in enumerate(InstanceState)}


def client_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of an app's own metrics."""
    config = watched.config
    client = {"client-id": config.client_id}
    description = str(watched.topology.describe())

    def read() -> Iterator[Readings]:
        state = watched.state()
        yield (
            client,
            [
                (f.VERSION, VERSION),
                (f.APPLICATION_ID, config.application_id),
                (f.TOPOLOGY_DESCRIPTION, description),
                (f.STATE, state.value),
                (f.ALIVE_THREADS, metrics.alive_workers),
                (f.FAILED_THREADS, metrics.failed_workers),
                *(
                    (instance.INSTRUMENTS[name], value)
                    for name, value in metrics.snapshot().items()
                ),
            ],
        )
        process = {"process-id": metrics.process_id}
        application = {"application-id": config.application_id}
        yield client | application | process, [(f.CLIENT_STATE, _STATES[state])]
        yield client | process, [(f.RECORDING_LEVEL, float(metrics.registry.level))]

    return read
