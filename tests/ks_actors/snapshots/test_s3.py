"""Snapshots in S3: a real server over HTTP, on this machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import pytest

from ks_actors import ConfigError, SnapshotFailed
from ks_actors.log.embedded import EmbeddedLog
from ks_actors.snapshots import Place, find_snapshots
from tests.ks_actors.runtime.helpers import EOS
from tests.ks_actors.runtime.snapshots.bootstraps import app_of, counted, put, totals_of
from tests.ks_actors.runtime.snapshots.test_taking import Heard
from tests.waiting import PATIENCE_S

if not os.environ.get("CI"):  # there, what cannot run fails
    pytest.importorskip("moto")
boto3: Any = import_module("boto3")
s3fs: Any = import_module("s3fs")
ROOT = Path(__file__).parents[3]
KEYS = [f"k{number % 300:04d}" for number in range(2_000)]


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Return the URL of a server that is stopped at the end."""
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.ks_actors.snapshots.s3_server"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    port = int(server.stdout.readline())
    yield f"http://127.0.0.1:{port}"
    server.stdin.close()
    server.wait(PATIENCE_S)
    server.stdout.close()


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the URL of a new bucket, which the environment has all for."""
    for name, value in (("ACCESS_KEY_ID", "test"), ("SECRET_ACCESS_KEY", "test"), ("DEFAULT_REGION", "us-east-1"), ("ENDPOINT_URL", endpoint)):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    name = f"snapshots-{uuid.uuid4().hex[:8]}"
    client = boto3.client("s3")
    client.create_bucket(Bucket=name)
    client.close()
    s3fs.S3FileSystem.clear_instance_cache()
    yield f"s3://{name}/below"
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.parametrize("store", ["rocksdb", "in_memory"])
async def test_a_task_begins_with_a_snapshot_from_s3(bucket: str, store: str, tmp_path: Path) -> None:
    """Taken, found, restored with the changelog's tail, handed over to another log, and deleted when there are newer ones."""
    heard = Heard()
    settings: Any = {"snapshot_uri": bucket, "processing_guarantee": EOS, "snapshot_keep": 1}
    async with EmbeddedLog() as log:
        async with (app := app_of(log, tmp_path / "one", store=store, **settings)):
            await put(log, KEYS)
            await app.wait_until_caught_up()
            await app.snapshot()
            await asyncio.sleep(0)
            newer = await app.snapshot()
            await put(log, KEYS[:10])
            await app.wait_until_caught_up()
            expected = await totals_of(app)
        async with app_of(log, tmp_path / "two", store=store, listener=heard, **settings) as app:
            assert heard.told[0] == ("snapshot", "counts", newer.name, newer.tasks["0_0"].stores["counts"].next_offset, 300)
            assert await totals_of(app) == expected
    (snapshot,) = find_snapshots(bucket, "app")[0]
    assert snapshot.place.name == newer.name
    assert snapshot.verify() == 300
    async with EmbeddedLog() as there:
        await (app := app_of(there, tmp_path / "three", store=store))._create_topics(there)
        await put(there, KEYS)
        await app.seed(bucket)
        async with app:
            await app.wait_until_caught_up()
            assert (await totals_of(app))[KEYS[-1]] == expected[KEYS[-1]]


async def failing(bucket: str, directory: Path, said: str) -> None:
    """Check that an app runs all the same, and that the error about its place names the fault."""
    async with EmbeddedLog() as log, app_of(log, directory, snapshot_uri=bucket) as app:
        await put(log, KEYS[:5])
        await app.wait_until_caught_up()
        with pytest.raises(SnapshotFailed, match=said):
            await app.snapshot()
        assert len(await totals_of(app)) == 5
    with pytest.raises(OSError, match=said):
        Place.of(bucket).names()


@pytest.mark.parametrize("key", ["wrong", None])
def test_credentials_that_are_wrong_or_missing_are_told(
    bucket: str, key: str | None, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By place, with the remedy; the app goes on."""
    if key is None:
        for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
            monkeypatch.delenv(f"AWS_{name}")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    count_free_of_checks(endpoint, 0)
    try:
        asyncio.run(failing(bucket, tmp_path, r"below.*: access is denied \(.*check the credentials"))
    finally:
        count_free_of_checks(endpoint, 1_000_000_000)


def count_free_of_checks(endpoint: str, count: int) -> None:
    """Have the server check credentials after so many requests."""
    httpx.post(f"{endpoint}/moto-api/reset-auth", content=str(count), headers={"Content-Type": "text/plain"}).raise_for_status()


def test_a_bucket_that_there_is_not_is_told(bucket: str, tmp_path: Path) -> None:
    """It is not made, and not taken for an empty one."""
    missing = bucket.replace("snapshots-", "nowhere-")
    asyncio.run(failing(missing, tmp_path, "bucket 'nowhere-"))
    with pytest.raises(OSError, match="does not exist: create it"):
        counted(missing, KEYS)


async def test_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """When the app starts, with the package to install."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(import_module("fsspec.registry")._registry, "s3", raising=False)
    async with EmbeddedLog() as log:
        with pytest.raises(ConfigError, match=r"s3://somewhere.*s3fs.*pip install 'ks-actors\[s3\]'"):
            await app_of(log, tmp_path, snapshot_uri="s3://somewhere/x").start()
