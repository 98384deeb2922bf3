"""Tables."""

from ks_actors.processors.tables._change_serde import ChangeSerde
from ks_actors.processors.tables._expire import Expire
from ks_actors.processors.tables._suppress import Held, Suppress, SuppressView
from ks_actors.processors.tables._suppressed_serde import HeldSerde
from ks_actors.processors.tables._tables import (
    TableFilter,
    TableMapValues,
    TablePassThrough,
    TableSource,
    ToStream,
)
from ks_actors.processors.tables._transform import (
    TableTransformValues,
    TransformView,
    ValueTransformer,
)
from ks_actors.processors.tables._views import (
    AsOf,
    FilterView,
    Get,
    JoinView,
    MapView,
    Reader,
    SessionView,
    StoreView,
    View,
    WindowView,
)

__all__ = [
    "AsOf",
    "ChangeSerde",
    "Expire",
    "FilterView",
    "Get",
    "Held",
    "HeldSerde",
    "JoinView",
    "MapView",
    "Reader",
    "SessionView",
    "StoreView",
    "Suppress",
    "SuppressView",
    "TableFilter",
    "TableMapValues",
    "TablePassThrough",
    "TableSource",
    "TableTransformValues",
    "ToStream",
    "TransformView",
    "ValueTransformer",
    "View",
    "WindowView",
]
