"""The catalogue of all metrics, by group."""

from typing import Final

from ks_actors.metrics._family import Group, MetricFamily
from ks_actors.metrics.families import _client as client
from ks_actors.metrics.families import _inputs as inputs
from ks_actors.metrics.families import _instance as instance
from ks_actors.metrics.families import _log as log
from ks_actors.metrics.families import _node as node
from ks_actors.metrics.families import _query as query
from ks_actors.metrics.families import _store as store
from ks_actors.metrics.families import _task as task
from ks_actors.metrics.families import _thread as thread
from ks_actors.metrics.families._absent import ABSENT

GROUPS: Final[tuple[Group, ...]] = (
    client.CLIENT,
    thread.THREAD,
    store.UPDATER,
    task.TASK,
    node.NODE,
    node.TOPIC,
    store.CACHE,
    store.STATE,
    log.GROUP,
    log.FETCH,
    log.PRODUCER,
    instance.INSTANCE,
    task.OWN_TASK,
    inputs.INPUT,
    query.QUERY,
    node.LATENCY,
    node.CALLS,
    node.HANDLERS,
    store.STORE,
    store.RESTORE,
    log.OWN_GROUP,
    log.LOOP,
)


def catalogue() -> tuple[MetricFamily, ...]:
    """Return all metrics that an app can have, in the order of their groups."""
    return tuple(family for group in GROUPS for family in group.families)


__all__ = [
    "ABSENT",
    "GROUPS",
    "catalogue",
    "client",
    "inputs",
    "instance",
    "log",
    "node",
    "store",
    "task",
    "thread",
]
