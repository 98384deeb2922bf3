"""The HTTP API and page of an app, for operators. Needs the extra `web`."""

try:
    from ks_actors.web._create_app import create_app, create_probes
    from ks_actors.web._server import PageServer, serve_page, serve_probes
except ModuleNotFoundError as _missing:
    _package: str = (_missing.name or "").partition(".")[0]
    if _package not in {"starlette", "uvicorn"}:
        raise
    raise ModuleNotFoundError(
        f"ks_actors.web needs {_package}: pip install 'ks-actors[web]'", name=_package
    ) from _missing

__all__ = ["PageServer", "create_app", "create_probes", "serve_page", "serve_probes"]
