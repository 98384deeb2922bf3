"""The instance actor, which starts and watches all others."""

from ks_actors.runtime.instance._consumer_lag import consumer_lag
from ks_actors.runtime.instance._instance import INSTANCE_MAILBOX, Instance
from ks_actors.runtime.instance._wiring import LEAST_STOP_S, Wiring
from ks_actors.runtime.instance._workers import WorkerMetadata, Workers

__all__ = [
    "INSTANCE_MAILBOX",
    "LEAST_STOP_S",
    "Instance",
    "Wiring",
    "WorkerMetadata",
    "Workers",
    "consumer_lag",
]
