"""Metrics of the poller, of the group, of the log's clients and of the event loop."""

from __future__ import annotations

from math import inf, nan
from typing import TYPE_CHECKING, Any

from ks_actors.log import MeasuresRequests
from ks_actors.metrics.families import log as f

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ks_actors.log import Lease
    from ks_actors.metrics import Instrument, MetricSource, Readings
    from ks_actors.runtime.fetching import Poller
    from ks_actors.runtime.membership import Member
    from ks_actors.runtime.metrics._watched import Watched
    from ks_actors.runtime.shared import Metrics


def log_source(metrics: Metrics, watched: Watched) -> MetricSource:
    """Return the source of the metrics of poller, group, clients and event loop."""
    client_id = watched.config.client_id
    client = {"client-id": client_id}

    def read() -> Iterator[Readings]:
        if (started := watched.started()) is not None:
            instance, parts = started
            yield {"thread-id": f"{client_id}-Poller"}, _polls(parts.poller)
            yield client, _group(parts.member, instance.lease)
        loop, reads = metrics.loop_lag.spread(), metrics.read_times.spread()
        yield client, [(f.LAG, loop), (f.READ_TIME, reads)]
        yield from _requests(metrics, watched)

    return read


def _polls(poller: Poller) -> list[tuple[Instrument, Any]]:
    figures = poller.figures
    return [
        (f.POLL, figures.fetches.count),
        (f.POLL_LATENCY, figures.fetches.spread()),
        (f.POLL_RATIO, figures.fetches.total / 1000),
        (f.POLL_RECORDS, figures.records.spread()),
    ]


def _group(member: Member, lease: Lease) -> list[tuple[Instrument, Any]]:
    figures, status, now = member.figures, member.status(), member.ctx.time()
    assigned_at = figures.assigned_at
    return [
        (f.ASSIGNED, sum(len(partitions) for partitions in status.tasks.values())),
        (f.REBALANCES, figures.rebalances.count),
        (f.LAST_REBALANCE, nan if assigned_at is None else now - assigned_at),
        (f.REBALANCE_LATENCY, figures.rebalances.spread()),
        # A log in the process has no heartbeats.
        (f.LAST_HEARTBEAT, lease.time() - lease.heard if lease.heard > -inf else nan),
        (f.GENERATION, status.generation),
        (f.LOST, figures.lost),
        (f.ASSIGNOR_FAILURES, figures.assignor_failures),
        (f.UNCOVERED, nan if status.uncovered is None else len(status.uncovered)),
    ]


def _requests(metrics: Metrics, watched: Watched) -> Iterator[Readings]:
    log = watched.log()
    if not isinstance(log, MeasuresRequests):
        return
    # A recreated client has the name of its predecessor, which is about to close.
    for figures in {(one.kind, one.client_id): one for one in log.requests()}.values():
        figures.use(metrics.registry.window)
        times, tags = figures.times, {"client-id": figures.client_id}
        if figures.kind == "fetch":
            yield (
                tags,
                [
                    (f.FETCHES, times.count),
                    (f.FETCH_LATENCY, times.spread()),
                    (f.FETCHED_BYTES, figures.bytes),
                ],
            )
        else:
            yield (
                tags,
                [
                    (f.REQUESTS, times.count),
                    (f.REQUEST_LATENCY, times.spread()),
                    (f.SENT_RECORDS, figures.records),
                    (f.SENT_BYTES, figures.bytes),
                ],
            )
