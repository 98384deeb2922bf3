"""`ks-actors version`: the versions of the packages in use."""

from __future__ import annotations

import platform
from importlib import metadata

import click

from ks_actors.cli._output import show
from ks_actors.kernel import missing

PACKAGES = (
    "ks-actors",
    "msgspec",
    "rocksdict",
    "aiokafka",
    "cramjam",
    "uvloop",
    "pyarrow",
    "pyspark",
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def version(*, as_json: bool) -> None:
    """Print the versions of ks-actors, of Python and of the packages that it uses."""
    rows: list[dict[str, str | None]] = [
        {"name": "Python", "version": platform.python_version(), "note": platform.platform()},
        {
            "name": "kernel in C",
            "version": None if missing else _version("ks-actors"),
            "note": f"missing: {missing}" if missing else None,
        },
        *({"name": name, "version": _version(name), "note": None} for name in PACKAGES),
    ]
    show(rows, ("name", "version", "note"), as_json=as_json)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
