"""The settings of one of several processes that run the same app on one machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ks_actors._errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

MEMBERS: Final = "members"
"""The directory of the other members' state, inside the app's own."""
_SHARED: Final = (
    "input_buffer_max_bytes",
    "statestore_uncommitted_max_bytes",
    "statestore_memory_max_bytes",
    "statestore_cache_max_bytes",
)
_LEAST: Final = 16 << 20


def share(amount: int, count: int) -> int:
    """Return the share of one of `count` members in an amount of memory (bytes).

    At least 16 MiB, or all of a smaller amount; -1 (no limit) and 0 (none) stay.
    """
    return max(amount // count, min(amount, _LEAST))


def settings_of_member(values: Mapping[str, Any], number: int, count: int) -> dict[str, Any]:
    """Return the settings by which a member's config differs from these values.

    Raises ConfigError.
    """
    if not 1 <= number <= count:
        raise ConfigError(f"there is no member {number} of {count}: members are 1 to {count}")
    if count == 1:
        return {}
    shares = {name: share(values[name], count) for name in _SHARED}
    found: dict[str, Any] = {name: one for name, one in shares.items() if one != values[name]}
    if values["group_instance_id"] is not None:
        found["group_instance_id"] = f"{values['group_instance_id']}-{number}"
    if number > 1 and (address := values["application_server"]) is not None:
        # Each process answers queries at a port of its own; port 0 is any free port.
        host, _, port = address.rpartition(":")
        found["application_server"] = f"{host}:{int(port) and int(port) + number - 1}"
    if number > 1:
        found["client_id"] = f"{values['client_id']}-{number}"
        found["state_dir"] = values["state_dir"] / values["application_id"] / MEMBERS / str(number)
    return found
