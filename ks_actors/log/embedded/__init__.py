"""A log in this process: for tests, for tools, and for apps without servers."""

from ks_actors.log.embedded._codec import decode_batch as decode_batch
from ks_actors.log.embedded._codec import encode_batch as encode_batch
from ks_actors.log.embedded._faults import Faults as Faults
from ks_actors.log.embedded._faults import Operation
from ks_actors.log.embedded._fetcher import EmbeddedFetcher
from ks_actors.log.embedded._log import EmbeddedLog
from ks_actors.log.embedded._member import EmbeddedMembership
from ks_actors.log.embedded._producer import EmbeddedProducer, EmbeddedTransactionalProducer

__all__ = [
    "EmbeddedFetcher",
    "EmbeddedLog",
    "EmbeddedMembership",
    "EmbeddedProducer",
    "EmbeddedTransactionalProducer",
    "Operation",
]
