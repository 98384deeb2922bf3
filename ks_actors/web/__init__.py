"""The HTTP API and page of an app, for operators. Needs the extra `web`."""

from importlib.util import find_spec as _find_spec
from typing import TYPE_CHECKING

from ks_actors.system import taken_from

for _package in ("starlette", "uvicorn"):
    if _find_spec(_package) is None:
        raise ModuleNotFoundError(
            f"ks_actors.web needs {_package}: pip install 'ks-actors[web]'", name=_package
        )

if TYPE_CHECKING:
    from ks_actors.web._create_app import create_app, create_probes
    from ks_actors.web._security import LOOPBACK as LOOPBACK
    from ks_actors.web._security import SecureHeaders as SecureHeaders
    from ks_actors.web._server import PageServer, serve_page, serve_probes
    from ks_actors.web._server import serve_member as serve_member
    from ks_actors.web._serving import is_loopback as is_loopback
    from ks_actors.web._serving import listen as listen
    from ks_actors.web._serving import serving as serving
    from ks_actors.web._serving import url_of as url_of
else:
    # The supervisor of members takes the first two, and imports no app.
    __getattr__ = taken_from(
        __name__,
        ("_security", "_serving", "_create_app", "_server"),
        others=(
            "LOOPBACK",
            "SecureHeaders",
            "is_loopback",
            "listen",
            "serve_member",
            "serving",
            "url_of",
        ),
    )

__all__ = ["PageServer", "create_app", "create_probes", "serve_page", "serve_probes"]
