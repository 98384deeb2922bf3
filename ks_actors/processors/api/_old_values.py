"""Old values of tables for which a function failed when they were new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api._operator import NodeContext

_log = component_log(__name__)


def for_old(context: NodeContext, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for old values: it returns None when `function` fails for one.

    The handler was asked about that value when it was new, and it has contributed nothing. Kafka
    Streams fails again, and leaves out the good value that follows. The first failure of a node is
    logged: a function that did not fail when the value was new has contributed after all.
    """
    told = False
    if context.kafka_streams_faults:
        return function

    def of_old(*arguments: Any) -> Any:
        nonlocal told
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - it was told when the value was new
            if not told:
                told = True
                _log.warning(
                    "node %s of task %s failed for the former value of a row, which counts as "
                    "missing: it must have failed when it was new, too; further failures are not "
                    "logged: %r",
                    context.node,
                    context.task_id,
                    error,
                )
            return None

    return of_old


def withdrawn(context: NodeContext, change: tuple[Any, Any]) -> tuple[None, Any] | None:
    """Return the change that takes the old value back, for a change whose new value has failed.

    The old value has contributed, and the next change will have the failed one as its old value.
    Returns None where there is nothing to take back. Out-of-order changes, of a class of their own,
    take nothing back.
    """
    if type(change) is not tuple or change[1] is None or context.kafka_streams_faults:
        return None
    return None, change[1]


def taken_in(context: NodeContext, add: Callable[..., Any]) -> Callable[..., bool]:
    """Return a function that tells whether an aggregate includes an old value.

    It does not if `add` fails for the value with a fresh aggregate. Then `add` failed when the
    value was new, and the handler went on. If handlers never go on, all old values are included.
    """
    if context.kafka_streams_faults or not context.leaves_out:
        return _always

    def taken(*arguments: Any) -> bool:
        try:
            add(*arguments)
        except Exception:  # noqa: BLE001 - it was told when the value was new
            return False
        return True

    return taken


def _always(*_: Any) -> bool:
    return True
