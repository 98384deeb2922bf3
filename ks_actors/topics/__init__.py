"""Topics as programs use them: send records, and read them, with or without an app."""

from ks_actors.topics._access import TopicAccess as TopicAccess
from ks_actors.topics._formats import serdes_in as serdes_in
from ks_actors.topics._publisher import Publisher
from ks_actors.topics._reading import ReadFrom
from ks_actors.topics._reading import partitions_of as partitions_of
from ks_actors.topics._reading import read_batches as read_batches
from ks_actors.topics._records import SentRecord, TopicRecord
from ks_actors.topics._topics import Topics as Topics

__all__ = ["Publisher", "ReadFrom", "SentRecord", "TopicRecord"]
