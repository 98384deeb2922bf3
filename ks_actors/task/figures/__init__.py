"""The figures that a task measures while it works."""

from ks_actors.task.figures._emissions import Emission, Emitted, emissions_of
from ks_actors.task.figures._hit_ratio import HitRatio
from ks_actors.task.figures._output import SinksFigures, estimated_bytes
from ks_actors.task.figures._telemetry import Telemetry

__all__ = [
    "Emission",
    "Emitted",
    "HitRatio",
    "SinksFigures",
    "Telemetry",
    "emissions_of",
    "estimated_bytes",
]
