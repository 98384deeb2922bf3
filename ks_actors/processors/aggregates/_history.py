"""Tables with a history: their store is versioned, and an update may be out of order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast, final

from ks_actors.records import PUT_RETURN_CODE_NOT_PUT, PUT_RETURN_CODE_VALID_TO_UNDEFINED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api import NodeContext, Process, VersionsForOperators
    from ks_actors.records import Headers


class Superseded(tuple[Any, Any]):
    """An out-of-order change `(new, old)`, not of the latest version of a row.

    `old` is the latest value, before and after the change.
    """

    __slots__ = ()


def with_history(context: NodeContext, store: str | None) -> NodeContext | None:
    """Return the context for an operator with a versioned store; None for another store.

    In that context `put_entry` does nothing: `forward` puts the value with its timestamp, and
    forwards it unless it came too late. So the operator has to process record by record, and to
    forward each record.
    """
    if store is None:
        return None
    found = context.store(store)
    if not hasattr(found, "put_version"):
        return None
    return cast("NodeContext", _History(context, store, found))


@final
class _History:
    """A node's context with a versioned store in the place of a timestamped one."""

    def __init__(self, context: NodeContext, name: str, store: VersionsForOperators) -> None:
        self._context: NodeContext = context
        self._name: str = name
        self._latest: _Latest = _Latest(store)
        self.forward: Process = _putting(store.put_version, context.forward)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def store(self, name: str) -> Any:
        return self._latest if name == self._name else self._context.store(name)

    def cache(self, store: str, *, send_old: bool) -> None:  # noqa: ARG002 - every update counts
        return None


@final
class _Latest:
    """The latest versions of a versioned store, as operators read a timestamped one."""

    count_up: None = None

    def __init__(self, store: VersionsForOperators) -> None:
        self.get_entry: Callable[[Any], tuple[Any, int] | None] = store.latest
        self.mutable: bool = store.mutable

    def put_entry(self, key: Any, entry: tuple[Any, int] | None) -> None:
        """Do nothing: `forward` puts the entry."""


def _putting(put: Callable[[Any, Any, int], int], forward: Process) -> Process:
    def put_and_forward(
        key: Any, change: tuple[Any, Any], timestamp: int, headers: Headers
    ) -> None:
        code = put(key, change[0], timestamp)
        if code == PUT_RETURN_CODE_VALID_TO_UNDEFINED:
            forward(key, tuple(change), timestamp, headers)
        elif code != PUT_RETURN_CODE_NOT_PUT:
            forward(key, Superseded(change), timestamp, headers)

    return put_and_forward
