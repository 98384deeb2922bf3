"""`ks-actors dev`: an app on an embedded log, with commands to send and to look at records."""

from ks_actors.cli.dev._dev import dev

__all__ = ["dev"]
