"""`ks-actors topology diff`: the effects of a new version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ks_actors.cli._application import settings_options
from ks_actors.cli._output import show
from ks_actors.cli._target import configured_topology_of
from ks_actors.topology import Effect, compare

if TYPE_CHECKING:
    from pathlib import Path


@click.group()
def topology() -> None:
    """Compare versions of a topology."""


@topology.command()
@click.argument("old", metavar="RUNNING")
@click.argument("new", metavar="NEW")
@click.option("--all", "every", is_flag=True, help="Show what stays as it is, too.")
@settings_options
def diff(
    *, old: str, new: str, every: bool, conf: tuple[str, ...], file: Path | None, as_json: bool
) -> None:
    """Show the effects on state and topics when NEW replaces the RUNNING topology.

    Both are MODULE:NAME, as for `ks-actors run`, with the same application id, log and state
    directories. Asks no broker: sizes of topics are left to `ks-actors topics plan`. Exit codes: 0
    nothing is lost, 3 state or records are lost or left behind, or NEW would not start.
    """
    (before, was), (after, now) = (configured_topology_of(each, conf, file) for each in (old, new))
    old_serdes, new_serdes = (
        (config.default_key_serde, config.default_value_serde) for config in (was(), now())
    )
    changes = compare(before, after, old_serdes=old_serdes, new_serdes=new_serdes)
    rows = [
        {
            "kind": each.kind,
            "name": each.name,
            "effect": each.effect.value,
            "reason": each.reason,
            "harmless": each.harmless,
        }
        for each in changes
        if every or each.effect is not Effect.KEPT
    ]
    if rows or as_json:
        show(rows, ("kind", "name", "effect", "reason"), as_json=as_json)
    else:
        click.echo("all state and all topics stay as they are")
    if not all(each.harmless for each in changes):
        raise SystemExit(3)
