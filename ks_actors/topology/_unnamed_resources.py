"""The resources of a topology that have generated names."""

from __future__ import annotations

from typing import NamedTuple


class Unnamed(NamedTuple):
    """The resources of a topology with generated names, in the order of their addition.

    Global stores are included. They have no changelog.
    """

    changelogs: tuple[str, ...] = ()
    stores: tuple[str, ...] = ()
    repartition_topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        kinds = (
            ("changelog topics", self.changelogs),
            ("stores", self.stores),
            ("repartition topics", self.repartition_topics),
        )
        return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds if names)
