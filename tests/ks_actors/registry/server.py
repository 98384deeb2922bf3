"""A registry over HTTP, in a thread: an `InMemoryRegistry` with logins, failures and delays."""

from __future__ import annotations

import ssl
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ks_actors.registry import InMemoryRegistry


class Server:
    """Serve a registry. `answer` may give another answer to a request, None for the registry's."""

    def __init__(self, registry: InMemoryRegistry) -> None:
        self.registry = registry
        self.login: str | None = None
        self.answer: Callable[[str, str], tuple[int, Any] | None] = lambda _method, _path: None
        self.seen: list[dict[str, str]] = []
        self.queries: list[str] = []
        self._lock = threading.Lock()
        self._http: Any = None

    def basic(self, user: str, password: str) -> None:
        self.login = "Basic " + b64encode(f"{user}:{password}".encode()).decode()

    @property
    def url(self) -> str:
        scheme = "https" if isinstance(self._http.socket, ssl.SSLSocket) else "http"
        return f"{scheme}://127.0.0.1:{self._http.server_address[1]}"

    def respond(self, method: str, target: str, headers: dict[str, str], body: bytes) -> tuple[int, Any]:
        with self._lock:
            self.seen.append(headers)
            self.queries.append(urlsplit(target).query)
        parts = urlsplit(target)
        if self.login is not None and headers.get("Authorization") != self.login:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        other = self.answer(method, parts.path)
        if other is not None:
            return other
        with self._lock:
            return self.registry.answer(method, parts.path, msgspec.json.decode(body) if body else None)


@contextmanager
def serving(registry: InMemoryRegistry, context: ssl.SSLContext | None = None) -> Iterator[Server]:
    """Serve a registry on a port of this machine while the block runs."""
    server = Server(registry)

    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = server.respond(self.command, self.path, dict(self.headers), body)
            data = answer if isinstance(answer, bytes) else msgspec.json.encode(answer)
            self.send_response(status)
            if status // 100 == 3:
                self.send_header("Location", answer)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _respond  # noqa: N815 - the names that http.server calls

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - likewise
            pass

    class Http(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # clients that break off, or do not trust the certificate

    with Http(("127.0.0.1", 0), Handler) as http:
        server._http = http
        if context is not None:
            http.socket = context.wrap_socket(http.socket, server_side=True)
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()
