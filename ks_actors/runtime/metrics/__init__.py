"""The sources of an app's metrics, and the actor that samples them."""

from ks_actors.runtime.metrics._sampler import SAMPLER_MAILBOX, Sampler
from ks_actors.runtime.metrics._sources import add_sources
from ks_actors.runtime.metrics._watched import Watched

__all__ = ["SAMPLER_MAILBOX", "Sampler", "Watched", "add_sources"]
