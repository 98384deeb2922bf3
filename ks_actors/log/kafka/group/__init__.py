"""Group membership."""

from ks_actors.log.kafka.group._group_admin import GroupAdmin
from ks_actors.log.kafka.group._membership import KafkaMembership, join_group

__all__ = [
    "GroupAdmin",
    "KafkaMembership",
    "join_group",
]
