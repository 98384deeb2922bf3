"""Old values of tables for which a function failed when the values were new."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ks_actors.lifecycle import component_log

if TYPE_CHECKING:
    from collections.abc import Callable

    from ks_actors.processors.api._operator import NodeContext

_log = component_log(__name__)


def for_old(context: NodeContext, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for old values: it returns None when `function` fails for a value.

    The handler was asked about the value when it was new, and the value contributed nothing. Kafka
    Streams fails again, and leaves out the good new value of the change. The first failure of a
    node is logged: if the function did not fail when the value was new, the value did contribute.
    """
    told = False
    if context.kafka_streams_faults:
        return function

    def of_old(*arguments: Any) -> Any:
        nonlocal told
        try:
            return function(*arguments)
        except Exception as error:  # noqa: BLE001 - the failure was reported when the value was new
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

    The old value has contributed, and the next change will have the failed value as its old value.
    Returns None if there is nothing to take back, as for out-of-order changes, which are of another
    class.
    """
    if type(change) is not tuple or change[1] is None or context.kafka_streams_faults:
        return None
    return None, change[1]


def taken_in(context: NodeContext, add: Callable[..., Any]) -> Callable[..., bool]:
    """Return a function that tells whether an aggregate includes an old value.

    The aggregate does not include the value if `add` fails for the value with a fresh aggregate.
    Then `add` also failed when the value was new, and the handler chose to continue. If handlers
    never continue, all old values are included.
    """
    if context.kafka_streams_faults or not context.leaves_out:
        return _always

    def taken(*arguments: Any) -> bool:
        try:
            add(*arguments)
        except Exception:  # noqa: BLE001 - the failure was reported when the value was new
            return False
        return True

    return taken


def _always(*_: Any) -> bool:
    return True
