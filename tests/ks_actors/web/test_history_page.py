"""The history on the page, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from ks_actors.web import serve_page
from tests.ks_actors.web.browser import browsing
from tests.ks_actors.web.helpers import TOKEN, Visits, fresh_log, visit, visiting

pytestmark = pytest.mark.unmeasured


# A word that is broken is in two boxes.
BROKEN_WORDS = """() => [...document.querySelectorAll("#history td")].flatMap(({ firstChild: text }) =>
  [...(text?.data ?? "").matchAll(/[\\p{L}\\p{N}_.:]+/gu)].filter((word) => {
    const range = document.createRange();
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    return range.getClientRects().length > 1;
  }).map(([word]) => word))"""


async def test_each_part_of_the_history_is_shown_once_it_is_opened(tmp_path: Path) -> None:
    """An exception with its reason, a commit with its phases, the start, the stream time; and records on each arrow, until they end.

    On a phone its tables scroll by themselves, and break no word.
    """
    log = await fresh_log()
    async with visiting(log, tmp_path, Visits()) as app, serve_page(app, token=TOKEN) as served, browsing(served.link) as seen:
        await visit(log, "/", "bad <b>")
        await app.wait_until_caught_up()
        assert await seen.page.locator("#history tbody tr").count() == 0
        texts = {
            "exceptions": "processing: ValueError: no page bad <b>.*looks-up, task 0_0, visits-0 @ 1.*dead-lettered",
            "commits": r"ms.*(freeze|flush|transaction|stores) \d",
            "rebalances": "this instance started.*0_0, 0_1, 1_0, 1_1",
            "stream-time": "0_0.*1970-01-01T00:00:30.000Z.*visits-0: .*idle, 0 buffered, lag 0",
        }
        for part, text in texts.items():
            await seen.page.click(f"#history-{part} summary")
            await seen.text(f"#history-{part} tbody tr", text)
        await seen.page.click("#history-samples summary")
        await seen.text("#history-samples p.faint", "^Off")
        await seen.page.click("#sample")
        await seen.text("#history-samples p.faint", "^Ends in 60 s")
        await visit(log, "/about")
        await app.wait_until_caught_up()
        # The page looks again by itself.
        await seen.text("#history-samples tbody tr", "looks-up.*'user0''/about'")
        await seen.page.set_viewport_size({"width": 375, "height": 740})
        assert await seen.page.evaluate("document.scrollingElement.scrollWidth") <= 375
        assert await seen.page.evaluate(BROKEN_WORDS) == []
        await seen.page.click("#sample-end")
        await seen.text("#history-samples p.faint", "^Off")
        assert await seen.page.locator("#history-samples tbody tr").count() == 0
    await log.close()
