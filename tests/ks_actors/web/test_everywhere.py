"""Rows of all instances over the HTTP API and by the command line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ks_actors.cli._main import ks_actors
from ks_actors.web import serve_page
from tests.ks_actors.query.remote.test_everywhere import TOKEN, instances


async def test_rows_of_all_instances_need_the_token_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance shows its own rows to all; a page without a token shows nobody those of others."""
    monkeypatch.delenv("KS_OPS_TOKEN", raising=False)

    async def query(url: str, *options: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, ks_actors, ["query", "counts", f"--url={url}", "--json", *options])

    secret = tmp_path / "token"
    secret.write_text(f"{TOKEN}\n")
    async with instances(tmp_path, 2) as apps:
        async with serve_page(apps[0], token=TOKEN) as page:
            assert 0 < len(json.loads((await query(page.url)).stdout)["rows"]) < 40
            found = await query(page.url, "--everywhere", f"--token-file={secret}")
            assert len(json.loads(found.stdout)["rows"]) == 40
            assert "rows of other instances need the token of the API" in (await query(page.url, "--everywhere")).output
            secret.write_text("a guess")
            refused = await query(page.url, "--everywhere", f"--token-file={secret}")
            assert refused.exit_code == 1
            assert "rows of other instances need the token of the page" in refused.output
        secret.write_text(f"{TOKEN}\n")
        async with serve_page(apps[0]) as page:
            assert (await query(page.url, "--everywhere", f"--token-file={secret}")).exit_code == 1
