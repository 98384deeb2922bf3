"""The figures and the tracing that the tasks of an instance share."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from ks_actors.history import History
from ks_actors.metrics import STILL

if TYPE_CHECKING:
    from ks_actors.metrics import Histogram, Window
    from ks_actors.tracing import Tracing


class Telemetry(msgspec.Struct, frozen=True):
    """The figures that the tasks of an instance share, and the tracing of records.

    `window` is the time window of the metrics. `ages` are the ages of output records, by topic.
    `answers` counts the answers of exception handlers, by kind and response. `history` has the last
    exceptions, and samples of records.
    """

    window: Window = STILL
    tracing: Tracing | None = None
    ages: dict[str, Histogram] = {}
    answers: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    history: History = msgspec.field(default_factory=History)
