"""A placeholder for the data of a closed store."""

from __future__ import annotations

from typing import Any

from ks_actors._errors import StoreClosed


class Closed(dict[Any, Any]):
    """A dict in place of a closed store's dicts: every use raises StoreClosed."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name: str = name

    def _raise(self, *_: object) -> Any:
        raise StoreClosed(f"store {self._name} is closed, as its task is")

    __contains__ = __getitem__ = __setitem__ = __iter__ = get = keys = values = items = _raise
