"""What becomes of records that the log refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ks_actors._errors import Fenced, LogClosed, StorageFull, TransactionAborted
from ks_actors._handlers import ErrorContext, FailedRecord, HandlerResponse, Response
from ks_actors._task_id import TaskId

if TYPE_CHECKING:
    from ks_actors.log import Outgoing
    from ks_actors.log._types import TopicPartition
    from ks_actors.runtime._metrics import Metrics
    from ks_actors.runtime._setup import Setup

_FATAL = (Fenced, LogClosed, StorageFull, TransactionAborted)


class Production:
    """Ask the production handler about each record of a refused batch; some errors are not about records, and nobody is asked."""

    def __init__(self, setup: Setup, metrics: Metrics) -> None:
        self._setup = setup
        self._metrics = metrics

    def refused(self, partition: TopicPartition, outgoing: Outgoing, error: Exception) -> bool:
        """Return whether to go on without the batch."""
        if isinstance(error, _FATAL) or partition.topic.endswith("-changelog"):
            return False
        batch = outgoing.batch
        config = self._setup.config
        for index in range(len(batch)):
            context = ErrorContext(
                topic=None,
                partition=-1,
                offset=-1,
                headers=() if batch.headers is None else batch.headers[index],
                processor_node_id="collector",
                task_id=TaskId(-1, partition.partition),
                timestamp=batch.timestamps[index],
                source_raw_key=batch.keys[index],
                source_raw_value=batch.values[index],
            )
            record = FailedRecord(
                batch.keys[index], batch.values[index], batch.timestamps[index], context.headers, partition.topic, partition.partition
            )
            if Response.of(config.production_exception_handler(context, record, error)).result is HandlerResponse.FAIL:
                return False
        self._metrics.global_dropped += len(batch)
        return True
