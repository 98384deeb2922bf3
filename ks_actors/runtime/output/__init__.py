"""The collector."""

from ks_actors.runtime.output._collector import COLLECTOR_MAILBOX, Collector
from ks_actors.runtime.output._dead_letters import DeadLetterWriter
from ks_actors.runtime.output._rejected_records import RecordsLeftOut as RecordsLeftOut
from ks_actors.runtime.output._rejected_records import RejectedRecords

__all__ = [
    "COLLECTOR_MAILBOX",
    "Collector",
    "DeadLetterWriter",
    "RejectedRecords",
]
