"""Tables joined by a foreign key (KIP-213)."""

from ks_actors.processors.foreign_keys._foreign_table_join import ForeignTableJoin
from ks_actors.processors.foreign_keys._response_join import ResponseJoin
from ks_actors.processors.foreign_keys._response_wrapper import (
    SubscriptionResponse,
    SubscriptionResponseSerde,
)
from ks_actors.processors.foreign_keys._subscription_join import SubscriptionJoin
from ks_actors.processors.foreign_keys._subscription_receive import SubscriptionReceive
from ks_actors.processors.foreign_keys._subscription_send import SubscriptionSend
from ks_actors.processors.foreign_keys._subscription_wrapper import (
    Instruction,
    Subscription,
    SubscriptionSerde,
)

__all__ = [
    "ForeignTableJoin",
    "Instruction",
    "ResponseJoin",
    "Subscription",
    "SubscriptionJoin",
    "SubscriptionReceive",
    "SubscriptionResponse",
    "SubscriptionResponseSerde",
    "SubscriptionSend",
    "SubscriptionSerde",
]
