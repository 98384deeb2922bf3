"""The C kernel and its Python boundary."""

from typing import TYPE_CHECKING

from ks_actors.kernel._native import HAS_KERNEL, SWITCHES, kernel, missing, tell_if_missing

if TYPE_CHECKING:
    from ks_actors.kernel._kernel import Rows as Rows

__all__ = [
    "HAS_KERNEL",
    "SWITCHES",
    "kernel",
    "missing",
    "tell_if_missing",
]
