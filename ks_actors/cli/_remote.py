"""Commands to a running app, by its HTTP API: `tasks`, `query`, `pause`, `resume`."""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import (
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    build_opener,
)

import click

from ks_actors._counted import counted
from ks_actors.cli._output import moment, show, show_json, tell

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

TOKEN: Final = "KS_OPS_TOKEN"  # noqa: S105 - the name of a variable
WAYS: Final = ("auto", "text", "json", "hex", "base64")
_TIMEOUT_S: Final = 15.0
_HISTORIES: Final = {
    "commits": ("at", "took", "in_phases", "tasks", "processed", "records", "bytes", "error"),
    "exceptions": (
        *("at", "count", "kind", "error", "text", "task", "node", "topic", "partition", "offset"),
        "done",
    ),
    "rebalances": (
        *("at", "causes", "assigned_after_ms", "running_after_ms", "gained", "lost"),
        *("restored_records", "restored_bytes"),
    ),
    "stream-time": ("task", "at", "held_by", "waits"),
}
"""The histories of the API, with their columns."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def _url(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)
    return click.option(
        "--url",
        default="http://127.0.0.1:8080",
        show_default=True,
        help="The HTTP API of an instance, as `serve_page` tells it.",
    )(command)


def _token(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--token-file",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help=f"A file with the token of the API. Default: the variable {TOKEN}.",
    )(command)


def ask(
    url: str, path: str, given: Mapping[str, str] | None = None, token: str | None = None
) -> Any:
    """Return the answer to a GET. Raises click.ClickException, UsageError for a bad URL."""
    try:
        query = urlencode(given or {})
    except UnicodeEncodeError:
        raise click.UsageError("keys with bytes that are not UTF-8 need --as hex") from None
    return _call(url, f"{path}?{query}" if query else path, "GET", token)


def order(url: str, path: str, token_file: Path | None) -> Any:
    """Return the answer to a POST with the token. Raises click.ClickException, UsageError."""
    return _call(url, path, "POST", _read_token(token_file, "orders need"))


def _read_token(token_file: Path | None, why: str) -> str:
    """Return the token of the API, which `why` needs. Raises click.UsageError."""
    # Never take the token as an argument: other users of the machine can see command lines.
    try:
        token = (
            os.environ.get(TOKEN) if token_file is None else token_file.read_text(encoding="utf-8")
        )
    except (OSError, UnicodeDecodeError) as error:
        # The text of a decoding error would show bytes of the secret file.
        raise click.UsageError(
            f"the token cannot be read from {token_file}: {type(error).__name__}"
        ) from None
    if not token or not token.strip():
        raise click.UsageError(f"{why} the token of the API: set {TOKEN}, or give --token-file")
    if not token.strip().isascii() or not token.strip().isprintable():
        raise click.UsageError("the token has characters that no header can have: use ASCII")
    return token.strip()


def _call(url: str, path: str, method: str, token: str | None) -> Any:
    # urllib would open files as well.
    if not _is_http(url):
        raise click.UsageError(f"--url {url!r} is not a URL such as http://127.0.0.1:8080")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    request = Request(url.rstrip("/") + path, headers=headers, method=method)  # noqa: S310 - see above
    try:
        with _opener(url).open(request, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        raise click.ClickException(f"{url}: {_reason(error)}") from None
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error) or type(error).__name__
        raise click.ClickException(f"{url} does not answer: {reason}") from None
    except ValueError:
        raise click.ClickException(f"{url}{path} gives no JSON: is it the API of an app?") from None


class _NoRedirects(HTTPRedirectHandler):
    """Follow no redirect: urllib would send the token to any other host, and a GET for a POST."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Return no request, so that the answer is an error."""


def _opener(url: str) -> OpenerDirector:
    if urlsplit(url).hostname in _LOOPBACK:
        # A proxy from the environment would use its own loopback, and would see the token.
        return build_opener(_NoRedirects, ProxyHandler({}))
    return build_opener(_NoRedirects)


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


def _reason(error: HTTPError) -> str:
    try:
        found = json.load(error)
    except ValueError:
        found = {}
    if isinstance(found, dict) and "error" in found:
        return str(found["error"])
    return f"answers {error.code} {error.reason}"


@click.command()
@click.option(
    "--history",
    type=click.Choice(sorted(_HISTORIES)),
    help="Print this history of the instance instead, the newest first.",
)
@_url
def tasks(*, url: str, history: str | None, as_json: bool) -> None:
    """Print the tasks of a running instance, with their progress and waits."""
    if history is not None:
        rows = ask(url, f"/api/history/{history}")
        rows = rows["commits"] if history == "commits" else rows
        if as_json:
            show_json(rows)
        else:
            show([_told(row) for row in rows], _HISTORIES[history], as_json=False)
        return
    found = ask(url, "/api/tasks")
    if as_json:
        show_json(found)
    else:
        query = ["query"] if any(each.get("query") for each in found) else []
        columns = (
            "task",
            *query,
            "state",
            "role",
            "partitions",
            "lag",
            "restored",
            "stuck",
            "waits",
        )
        show([_task(each) for each in found], columns, as_json=False)


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of a history as a person reads it: its time, and the phases of a commit (ms)."""
    at = next(
        (row[name] for name in ("last_ms", "at_ms", "began_ms", "time") if row.get(name)), None
    )
    phases = row.get("phases", {})
    return {
        **row,
        "at": None if at is None else moment(at),
        "took": f"{row.get('took_ms', 0.0):.1f} ms",
        "in_phases": ", ".join(f"{name} {took:.1f}" for name, took in phases.items()),
    }


def _task(task: Mapping[str, Any]) -> dict[str, Any]:
    lags = [each["lag"] for each in task["partitions"]]
    shares = [each["share"] for each in task["restores"] if each["share"] is not None]
    return {
        "task": task["task"],
        "query": task.get("query"),
        "state": task["state"],
        "role": "standby" if task["standby"] else "active",
        "partitions": [each["partition"] for each in task["partitions"]],
        # If one lag is unknown, the sum is unknown, not smaller.
        "lag": None if None in lags else sum(lags),
        # A task runs when its last store is restored.
        "restored": f"{min(shares):.0%}" if shares else None,
        "stuck": task["stuck"],
        "waits": "; ".join(each["text"] for each in task["waits"]) or None,
    }


@click.command()
@click.argument("store")
@click.option("--key", help="One key.")
@click.option("--from", "low", metavar="KEY", help="The lowest key.")
@click.option("--to", "high", metavar="KEY", help="The highest key.")
@click.option(
    "--as",
    "how",
    type=click.Choice(WAYS),
    default="auto",
    show_default=True,
    help="The form of the keys that are given; auto: the first form that has rows.",
)
@click.option("--time-from", type=int, metavar="MS", help="Of windows, sessions and versions.")
@click.option("--time-to", type=int, metavar="MS")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True)
@click.option("--stale", is_flag=True, help="Read standbys, too.")
@click.option(
    "--everywhere", is_flag=True, help="Read the partitions of all instances; needs the token."
)
@_token
@_url
def query(
    *,
    store: str,
    key: str | None,
    low: str | None,
    high: str | None,
    how: str,
    time_from: int | None,
    time_to: int | None,
    limit: int,
    stale: bool,
    everywhere: bool,
    token_file: Path | None,
    url: str,
    as_json: bool,
) -> None:
    """Print rows of a store of a running instance, or of all instances.

    Exit code 3: there is no such row.
    """
    asked = {
        "key": key,
        "from": low,
        "to": high,
        "as": how,
        "time_from": time_from,
        "time_to": time_to,
        "limit": limit,
        "stale": "true" if stale else None,
        "everywhere": "true" if everywhere else None,
    }
    given = {name: str(value) for name, value in asked.items() if value is not None}
    token = _read_token(token_file, "rows of other instances need") if everywhere else None
    found = ask(url, f"/api/stores/{quote(store, safe='')}", given, token)
    rows = found["rows"]
    if as_json:
        show_json(found)
    else:
        shown = [
            {
                name: value if isinstance(value, str | None) else json.dumps(value)
                for name, value in row.items()
            }
            for row in rows
        ]
        show(shown, ("key", "value", "at"), as_json=False)
        if found.get("more"):
            tell(f"there are more than {counted(limit, 'row')}: --limit")
    if not rows:
        # A separate exit code, so that scripts can distinguish this from an error.
        raise SystemExit(3)


_query = click.option("--query", metavar="NAME", help="Only this query.")


@click.command()
@_query
@_token
@_url
def pause(*, query: str | None, url: str, token_file: Path | None, as_json: bool) -> None:
    """Pause processing in a running instance until `resume`; it keeps its tasks."""
    _order("/api/pause", query, url, token_file, "paused", as_json=as_json)


@click.command()
@_query
@_token
@_url
def resume(*, query: str | None, url: str, token_file: Path | None, as_json: bool) -> None:
    """Resume processing in a paused instance: all queries, or one."""
    _order("/api/resume", query, url, token_file, "resumed", as_json=as_json)


def _order(
    path: str, query: str | None, url: str, token_file: Path | None, word: str, *, as_json: bool
) -> None:
    answer = order(
        url, path if query is None else f"{path}?query={quote(query, safe='')}", token_file
    )
    if as_json:
        show_json(answer)
    else:
        click.echo(word if query is None else f"{word} query {query}")
