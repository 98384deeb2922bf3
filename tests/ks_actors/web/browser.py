"""A real browser for tests: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import TimeoutError as PlaywrightTimeout
from playwright.async_api import async_playwright

from tests.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from playwright.async_api import Browser, Dialog, Page, Playwright

# Those of Playwright's own start that a headless page notices. As root there is no sandbox; the pages are our own.
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--no-first-run", "--no-default-browser-check",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--disable-breakpad", "--password-store=basic",
    "--use-mock-keychain", "--disable-background-timer-throttling", "--disable-backgrounding-occluded-windows", "--disable-renderer-backgrounding",
    "--disable-ipc-flooding-protection", "--disable-back-forward-cache", "--force-color-profile=srgb", "--hide-scrollbars", "--mute-audio",
)  # fmt: skip
_log = logging.getLogger(__name__)
_END_S = 10
_CONNECT_MS = 60_000
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_browser() -> str | None:
    """Return the path of a browser, None when this machine has none."""
    return next((path for name in NAMES if (path := shutil.which(name)) is not None), None)


def require_browser() -> str:
    """Skip the test when there is no browser; on CI that is a failure."""
    path = find_browser()
    if path is not None:
        return path
    missing = "no browser on this machine: apt-get install chromium"
    if os.environ.get("CI") in ("1", "true"):
        pytest.fail(f"tests of the page cannot run: {missing}")
    pytest.skip(f"THE PAGE IS NOT TESTED: {missing}")


class Seen:
    """A page in the browser, with the errors of its console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.errors: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.asked: list[str] = []
        page.on("dialog", self._agree)
        page.set_default_timeout(PATIENCE_S * 1000)

    async def _agree(self, dialog: Dialog) -> None:
        self.asked.append(dialog.message)
        await dialog.accept()

    async def text(self, selector: str, pattern: str) -> None:
        """Wait until the text of an element matches a regular expression."""
        await self.page.wait_for_function(
            "([selector, pattern]) => [...document.querySelectorAll(selector)].some((one) => new RegExp(pattern).test(one.textContent))",
            arg=[selector, pattern],
        )

    async def gone(self, selector: str) -> None:
        """Wait until nothing matches a selector."""
        await self.page.wait_for_function("(selector) => document.querySelector(selector) === null", arg=selector)

    async def views(self, count: int) -> None:
        """Wait until the page has shown so many more views."""
        seen = await self.page.evaluate("Number(document.body.dataset.views ?? 0)")
        await self.page.wait_for_function("(least) => Number(document.body.dataset.views ?? 0) >= least", arg=seen + count)


@functools.cache
def _shared(path: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start the browser of all tests, which ends with this process, and return it with its directory: a start takes longer than most tests."""
    directory = Path(tempfile.mkdtemp(prefix="browser-"))
    command = [path, *_FLAGS, f"--user-data-dir={directory}"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 - the machine's own

    def end() -> None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        shutil.rmtree(directory, ignore_errors=True)

    atexit.register(end)
    return process, directory


async def _connect(playwright: Playwright) -> Browser:
    process, directory = _shared(require_browser())
    if process.poll() is not None:
        # A test has ended it: that is no fault of the next ones.
        _shared.cache_clear()
        _, directory = _shared(require_browser())
    place = directory / "DevToolsActivePort"
    await until(lambda: place.exists() and len(place.read_text().splitlines()) == 2, "the browser listens")
    port, address = place.read_text().splitlines()
    return await playwright.chromium.connect_over_cdp(f"ws://127.0.0.1:{port}{address}", timeout=_CONNECT_MS)


@asynccontextmanager
async def browsing(url: str, **options: Any) -> AsyncIterator[Seen]:
    """Open a page; at the end its console must have no error. `options` are those of a browser context."""
    async with async_playwright() as playwright:
        try:
            browser = await _connect(playwright)
        except PlaywrightTimeout:
            # It took the connection and hung: that is no fault of the page.
            hung, _ = _shared(require_browser())
            _log.warning("the browser (process %d) did not answer within %d ms: another one is started", hung.pid, _CONNECT_MS)
            os.killpg(hung.pid, signal.SIGKILL)
            hung.wait()
            browser = await _connect(playwright)
        context = await browser.new_context(**options)
        try:
            seen = Seen(await context.new_page())
            await seen.page.goto(url)
            await seen.views(1)
            yield seen
            assert seen.errors == []
        finally:
            await context.close()
            await browser.close()
