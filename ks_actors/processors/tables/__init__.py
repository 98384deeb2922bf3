"""Tables."""

from ks_actors.processors.tables._change_serde import ChangeSerde
from ks_actors.processors.tables._expire import Expire
from ks_actors.processors.tables._suppress import BufferedChange, Suppress, SuppressView
from ks_actors.processors.tables._suppressed_serde import BufferedChangeSerde
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
    stored_in,
)

__all__ = [
    "AsOf",
    "BufferedChange",
    "BufferedChangeSerde",
    "ChangeSerde",
    "Expire",
    "FilterView",
    "Get",
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
    "stored_in",
]
