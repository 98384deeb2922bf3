"""A placeholder for the data of a closed store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors._errors import StoreClosed

if TYPE_CHECKING:
    from collections.abc import Iterator


class Closed(dict[Any, Any]):
    """A dict in place of a closed store's dicts: every use raises StoreClosed."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name: str = name

    def _closed(self) -> StoreClosed:
        return StoreClosed(f"store {self._name} is closed, as its task is")

    def __contains__(self, key: object, /) -> bool:
        raise self._closed()

    def __getitem__(self, key: Any, /) -> Any:
        raise self._closed()

    def __setitem__(self, key: Any, value: Any, /) -> None:
        raise self._closed()

    def __iter__(self) -> Iterator[Any]:
        raise self._closed()

    def get(self, _key: Any, _default: Any = None, /) -> Any:
        """Raise StoreClosed."""
        raise self._closed()

    def keys(self) -> Any:
        """Raise StoreClosed."""
        raise self._closed()

    def values(self) -> Any:
        """Raise StoreClosed."""
        raise self._closed()

    def items(self) -> Any:
        """Raise StoreClosed."""
        raise self._closed()
