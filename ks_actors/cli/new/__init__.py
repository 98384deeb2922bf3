"""`ks-actors new`: a project with an app, its tests, and a container."""

from ks_actors.cli.new._new import new

__all__ = ["new"]
