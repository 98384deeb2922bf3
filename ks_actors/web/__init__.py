"""The HTTP API and page of an app, for operators. Needs the extra `web`."""

from ks_actors.web._create_app import create_app
from ks_actors.web._server import PageServer, serve_page

__all__ = ["PageServer", "create_app", "serve_page"]
