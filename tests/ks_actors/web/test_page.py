"""The page of an app in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ks_actors import App, StreamsBuilder
from ks_actors.dsl import Consumed, Produced
from ks_actors.log import Fetched, Fetcher, IsolationLevel, Log, Outgoing, TopicPartition
from ks_actors.log._types import Outage
from ks_actors.records import Batch
from ks_actors.serdes import STRING
from ks_actors.topology import Topology
from ks_actors.web import PageServer, serve_page
from ks_actors.web._sampler import Sampler
from tests.ks_actors.web.browser import Seen, browsing
from tests.ks_actors.web.helpers import TOKEN, Visits, fresh_log, visit, visiting

pytestmark = pytest.mark.unmeasured
STUCK_MS = 500
COLORS = "(selectors) => new Set(selectors.map((one) => getComputedStyle(document.querySelector(one)).color)).size"


class Shown:
    """An app with its page in a browser."""

    def __init__(self, app: App, log: Log, visits: Visits, served: PageServer, seen: Seen) -> None:
        self.app = app
        self.log = log
        self.visits = visits
        self.served = served
        self.seen = seen
        self.page = seen.page


@asynccontextmanager
async def shown(
    tmp_path: Path, *, token: str | None = TOKEN, browser: dict[str, Any] | None = None, visits: Visits | None = None, **settings: Any
) -> AsyncIterator[Shown]:
    log, visits = await fresh_log(), visits or Visits()
    async with visiting(log, tmp_path, visits, **settings) as app, serve_page(app, token=token) as served:
        try:
            async with browsing(served.link, **(browser or {})) as seen:
                yield Shown(app, log, visits, served, seen)
        finally:
            visits.gate.set()
    await log.close()


async def test_the_page_shows_an_app_that_runs_and_updates_each_second(tmp_path: Path) -> None:
    """Name, health, figures, the drawn topology and all tasks; the token leaves the address at once."""
    async with shown(tmp_path) as here:
        await here.seen.text("#application", "^site$")
        await here.seen.text("#health", "^ready · RUNNING$")
        await here.seen.text("#topology", "visits.*looks-up")
        await here.seen.text("#figures div", "^Guaranteeat least once$")
        await here.seen.text("#more", "^4 tasks · no standbys · 1 worker · 1 instance")
        # A topic and its source or sink are one box, and a node without a name has that of its operation.
        boxes = await here.page.locator("#topology g text:not(.small)").all_text_contents()
        assert sorted(boxes) == ["aggregate"] * 2 + [
            "by-page",
            "by-page-repartition-filter",
            "looks-up",
            "per-minute",
            "per-page",
            "seen",
            "site-by-page-repartition",
            "visits",
        ]
        assert await here.page.locator("#tasks tbody tr").count() == 4
        assert TOKEN not in here.page.url
        await visit(here.log, *["/"] * 200)
        await here.seen.text("#figures div:first-child dd", r"^[1-9]\d*(\.\d)?/s$")
        await here.seen.text("#topology .topic", r"visits.*lag 0")
        assert await here.page.locator("#figures .trend").count() == 4
        await here.page.wait_for_selector("#figures .trend path[d^=M]", state="attached")
        # The arrow out of the topic has its rate.
        await here.seen.text("#topology .edge.flows + text", r"^[1-9]\d*(\.\d)?/s$")
        await here.seen.views(3)


async def test_an_app_that_drops_its_input_is_red(tmp_path: Path) -> None:
    """All records go to the dead letters: the figure of those that are dropped is marked, and the app is not ready."""
    async with shown(tmp_path) as here:
        await here.seen.text("#health", "^ready")
        await visit(here.log, *["bad"] * 40)
        await here.seen.text("#problems li", "^dropping: exception handlers have dropped 40 of 40 records of the last minute")
        await here.seen.text("#figures div.bad dt", "^Dropped$")
        await here.seen.text("#health", "^not ready · RUNNING$")


@pytest.mark.extended
async def test_a_growing_lag_is_seen_on_the_topic_and_in_the_figures(tmp_path: Path) -> None:
    """Paused by its button, the app is not ready and its lag grows; resumed, it goes back to 0."""
    async with shown(tmp_path) as here:
        await here.page.click("#pause")
        await here.seen.text("#health", "^paused")
        for lag in (30, 60):
            await visit(here.log, *["/"] * 30)
            await here.seen.text("#topology .topic", rf"visits.*lag {lag}\b")
            await here.seen.text("#lag tbody tr", rf"^visits.*{lag}$")
        await here.page.click("#resume")
        await here.seen.text("#topology .topic", r"visits.*lag 0\b")
        await here.seen.text("#health", "^ready")


async def test_a_call_that_does_not_return_is_red_with_its_reason(tmp_path: Path) -> None:
    """The row of its task and the box of its node are marked, and name the call; others go on. Afterwards nothing is marked."""
    async with shown(tmp_path, stall_warning_ms=STUCK_MS) as here:
        here.visits.gate.clear()
        await visit(here.log, "/", "stuck")
        await here.seen.text("#tasks tr.stuck", "0_0.*async call for .*looks-up has not returned")
        await here.seen.text("#topology .stuck", "looks-up.*stuck · 1 call$")
        assert await here.page.locator("#tasks tr.stuck").count() == 1
        color = await here.page.locator("#tasks tr.stuck td").first.evaluate("(cell) => getComputedStyle(cell).color")
        assert color == "rgb(179, 38, 30)"
        await here.seen.text("#problems li", "stalled: visits-0")
        here.visits.gate.set()
        await here.seen.gone("#tasks tr.stuck")
        await here.seen.gone("#topology .stuck")
        await here.seen.text("#health", "^ready")


@pytest.mark.extended
async def test_back_pressure_is_amber_on_nodes_topics_and_arrows(tmp_path: Path) -> None:
    """A node with as many calls as it may have, the topic whose records wait for it, and the arrow between; in red once it is stuck."""
    async with shown(tmp_path) as here:
        here.visits.gate.clear()
        await visit(here.log, *["stuck"] * 50)
        await here.seen.text("#topology .processor.pressure", "looks-up.*20 calls in flight")
        await here.seen.text("#topology .topic.pressure", "visits")
        await here.page.wait_for_selector("#topology .edge.pressure", state="attached")
        here.visits.gate.set()
        await here.seen.gone("#topology .pressure")


async def test_a_dead_letter_is_shown_and_redriven(tmp_path: Path) -> None:
    """With its error and its record; the button writes it back, and then it says so and is gone. Names stay text."""
    bad = 'bad <img src=x onerror="window.broken = 1">'
    async with shown(tmp_path) as here:
        await visit(here.log, "/", bad)
        await here.app.wait_until_caught_up()
        await here.page.click("#letters-again")
        await here.seen.text("#letters > li", r"ValueError . 1 visits.*no page bad <img")
        assert await here.page.locator("#letters img").count() == 0
        assert not await here.page.locator("#letters pre").first.is_visible()
        await here.page.click("#letters > li > details > summary")
        await here.page.click("#letters ul summary")
        here.visits.mended = True
        await here.page.click("#letters ul button")
        await here.seen.text("#letters ul", "written back to its source")
        assert not await here.page.locator("#letters button:visible").count()
        await here.app.wait_until_caught_up()
        assert await here.app.store("per-page").get(bad) == 1
        await here.page.select_option("#store", "per-page")
        await here.page.fill("#key", bad)
        await here.page.press("#key", "Enter")
        await here.seen.text("#rows tbody tr", r"bad <img.*1$")
        assert await here.page.evaluate("window.broken") is None


async def test_letters_of_one_error_and_topic_are_one_line_and_go_back_together(tmp_path: Path) -> None:
    """With their number, beyond those that are listed; the button asks, and writes back all that the line has counted."""
    async with shown(tmp_path, browser={"viewport": {"width": 1440, "height": 900}}) as here:
        await visit(here.log, *[f"bad {number}" for number in range(60)])
        await here.app.wait_until_caught_up()
        await here.seen.text("#letters-again", "^Refresh: 60 dropped since$")
        await here.page.click("#letters-again")
        await here.seen.text("#letters-about", "^50 of 60 in dead$")
        await here.seen.text("#letters > li", "^ValueError . 60 visits")
        assert await here.page.locator("#letters > li").count() == 1
        assert await here.page.locator("#letters ul li").count() == 50
        # Trouble comes first, and the topology is beside it.
        letters = await here.page.locator("#letters").bounding_box()
        drawing = await here.page.locator("#drawing").bounding_box()
        assert letters is not None
        assert drawing is not None
        assert letters["x"] + letters["width"] < drawing["x"]
        here.visits.mended = True
        await here.page.click("#letters > li > button")
        await here.seen.text("#letters > li", "all written back")
        assert here.seen.asked == ["Write 60 records back to visits?"]
        await here.app.wait_until_caught_up()
        assert await here.app.store("per-page").get("bad 59") == 1


class ThreeQueries(Visits):
    """Visits that are looked up by one query, and read by two others."""

    def topology(self) -> Topology:
        builder = StreamsBuilder()
        with builder.query("stats"):
            builder.stream("visits", Consumed(STRING, STRING)).map_values(self.look_up, max_in_flight=20).to("seen", Produced(STRING, STRING))
        for query, topic in (("fraud", "seen"), ("trends", "dead")):
            with builder.query(query):
                builder.stream(topic, Consumed(STRING, STRING)).foreach(lambda *_: None)
        return builder.build()


async def test_a_paused_app_and_its_paused_queries_have_a_state_of_their_own(tmp_path: Path) -> None:
    """Pause asks once; pill and banner have one color, which is not that of trouble; the banner names the button that resumes.

    Each paused query has one line, after any number of views, with a button that resumes it alone. Trouble beside it is not blue.
    """
    async with shown(tmp_path, visits=ThreeQueries()) as here:
        await here.page.click("#pause")
        await here.seen.text("#problems li", "^paused: the app is paused; the Resume button resumes it$")
        await here.seen.text("#health", "^paused · RUNNING$")
        assert len(here.seen.asked) == 1
        assert await here.page.evaluate(COLORS, ["#health", "#problems li"]) == 1
        assert await here.page.locator("#health").evaluate("(pill) => getComputedStyle(pill).color") == "rgb(29, 79, 184)"
        await here.page.click("#resume")
        await here.seen.text("#health", "^ready")
        for query in ("stats", "trends"):
            await here.app.pause(query=query)
        await here.seen.text("#problems li", "^paused: the query trends is paused; the Resume button resumes it Resume$")
        await here.seen.text("#health", "^paused")
        await here.seen.views(2)
        assert await here.page.locator("#problems li.paused").count() == 2
        assert await here.page.locator("#pause").is_visible()
        assert not await here.page.locator("#resume").is_visible()
        await here.page.evaluate(
            """() => import("./static/dom.js").then(({ keep, make }) => {
                const list = make("ul");
                for (let view = 0; view < 3; view += 1) keep(list, [1, 1], (one) => one, () => make("li"), () => {});
                document.body.dataset.kept = list.children.length;
            })"""
        )
        assert await here.page.evaluate("document.body.dataset.kept") == "2"
        await here.page.click("#problems button[aria-label='Resume stats']")
        await here.seen.gone("#problems button[aria-label='Resume stats']")
        await here.seen.text("#problems li", "the query trends is paused")
        await visit(here.log, *["bad"] * 40)
        await here.seen.text("#problems li.warn", "^dropping")
        await here.seen.text("#health", "^not ready")
        assert await here.page.locator("#problems li.paused").count() == 1


async def test_the_query_box_shows_rows_and_errors(tmp_path: Path) -> None:
    """All rows up to the limit, with a word when there are more; none; and the reason when a question makes no sense."""
    async with shown(tmp_path) as here:
        await visit(here.log, "/", "/about", "/shop")
        await here.app.wait_until_caught_up()
        await here.page.select_option("#store", "per-page")
        await here.seen.text("#store-about", "^Rows by key; keys STRING, values LONG; ")
        await here.page.fill("#limit", "2")
        await here.page.click("#query button")
        await here.seen.text("#query-error", "there are more rows")
        assert await here.page.locator("#rows tbody tr").count() == 2
        await here.page.fill("#key", "/nowhere")
        await here.page.click("#query button")
        await here.seen.text("#query-error", "^no rows$")


@pytest.mark.extended
async def test_an_instance_that_joins_and_leaves_is_seen(tmp_path: Path) -> None:
    """It is in the list with its tasks, and both happenings are among the events."""
    async with shown(tmp_path) as here:
        await here.seen.text("#members li", "site-a.*this instance, 4 tasks")
        async with visiting(here.log, tmp_path, here.visits, "site-a-b"):  # its name begins like that of the other one
            await here.seen.text("#members li", "site-a-b.*in this process, 2 tasks")
            await here.seen.text("#members li", "site-a.*this instance, 2 tasks")
            await here.seen.text("#events li", "site-a-b.* has joined the group")
        await here.seen.text("#events li", "site-a-b.* has left the group")
        await here.seen.text("#members li", "site-a.*this instance, 4 tasks")
        assert await here.page.locator("#members li").count() == 1


class _SlowFetcher:
    """A reader of changelogs that stops in the middle, until it is let go on."""

    def __init__(self, inner: Fetcher, gate: asyncio.Event) -> None:
        self._inner = inner
        self._gate = gate
        self._fetched = 0
        self._again = asyncio.Event()

    def assign(self, positions: Mapping[TopicPartition, int], /) -> None:
        # Records that are on their way are dropped.
        self._fetched = 0
        self._again.set()
        self._inner.assign(positions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def fetch(self, *, max_wait_ms: int, max_records: int = 10_000) -> list[Fetched]:
        while self._fetched >= 40 and not self._gate.is_set():
            self._again.clear()
            either = [asyncio.ensure_future(each.wait()) for each in (self._gate, self._again)]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for each in either:
                each.cancel()
        found = await self._inner.fetch(max_wait_ms=max_wait_ms, max_records=max_records if self._gate.is_set() else 40)
        self._fetched += sum(len(one.batch) for one in found)
        return list(found)


class _SlowRestores:
    """A log whose readers, but for those of inputs, stop in the middle."""

    def __init__(self, inner: Log, gate: asyncio.Event) -> None:
        self._inner = inner
        self._gate = gate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def fetcher(self, *, client_id: str, isolation: IsolationLevel = IsolationLevel.READ_COMMITTED) -> Any:
        inner = self._inner.fetcher(client_id=client_id, isolation=isolation)
        return _SlowFetcher(inner, self._gate) if "restore" in client_id else inner


@pytest.mark.extended
async def test_a_restore_has_a_bar(tmp_path: Path) -> None:
    """While changelogs are read, the bars say how far; the app is not ready, and is when they are gone."""
    log, visits, gate = await fresh_log(), Visits(), asyncio.Event()
    async with visiting(log, tmp_path, visits) as before:
        await visit(log, *[f"/{number}" for number in range(400)])
        await before.wait_until_caught_up()
    app = visiting(_SlowRestores(log, gate), tmp_path / "fresh", visits)
    async with serve_page(app) as served, browsing(served.link) as seen:
        starting = asyncio.ensure_future(app.start())
        await seen.text("#tasks [role=progressbar] + *, #tasks div", r"site-per-page-changelog-\d: \d+ of \d+, [1-9]\d? %")
        bars = seen.page.locator("#tasks [role=progressbar]")
        shares = await bars.evaluate_all(
            "(bars) => bars.map((bar) => [Number(bar.getAttribute('aria-valuenow')), bar.firstElementChild.style.width])"
        )
        assert shares
        assert all(width == f"{share}%" for share, width in shares)
        assert any(0 < share < 100 for share, _ in shares)
        await seen.text("#problems li", r"^restoring: the stores of task 1_\d")
        gate.set()
        await starting
        await seen.gone("#tasks [role=progressbar]")
        await seen.text("#health", "^ready")
        await app.close()
        await seen.text("#health", "^not live · NOT_RUNNING")
    await log.close()


@pytest.mark.extended
async def test_a_page_without_a_token_changes_nothing(tmp_path: Path) -> None:
    """It has no buttons for it; with a wrong token the reason is shown, and the right one may be typed."""
    async with shown(tmp_path, token=None) as here:
        await here.seen.views(1)
        for selector in ("#pause", "#resume", "#snapshot", "#token-box"):
            assert not await here.page.locator(selector).is_visible()
    async with shown(tmp_path / "other", snapshot_uri=f"file://{tmp_path}/snapshots") as here:
        await here.page.fill("#token", "wrong")
        await here.page.click("#snapshot")
        await here.seen.text("#notice", "needs the token of the page")
        here.seen.errors.clear()  # the browser notes each answer of 401
        await here.page.fill("#token", TOKEN)
        await here.page.click("#snapshot")
        await here.seen.text("#snapshots li", r"4 tasks, \d+ rows")


@pytest.mark.extended
async def test_an_instance_that_goes_away_is_told(tmp_path: Path) -> None:
    """The page says that nobody answers, shows the figures as old and takes no orders, until the instance is back at the same address."""
    log, visits = await fresh_log(), Visits()
    async with visiting(log, tmp_path, visits) as app, serve_page(app) as first, browsing(first.link) as seen:
        port = int(first.url.rstrip("/").rpartition(":")[2])
        await first.close()
        await seen.text("#health", r"^no answer · as of .*\d:\d\d:\d\d")
        assert await seen.page.evaluate(COLORS, ["#health", "#notice"]) == 1
        await seen.text("#notice", r"^the instance does not answer; all below is as of .*\d:\d\d:\d\d.*, its last answer")
        for part in ("#figures", "#more", "main"):
            assert await seen.page.locator(part).evaluate("(part) => getComputedStyle(part).opacity") == "0.45"
        assert await seen.page.locator("#pause").is_disabled()
        async with serve_page(app, port=port):
            await seen.text("#health", "^ready")
            assert not await seen.page.locator("#notice").is_visible()
            assert await seen.page.locator("#figures").evaluate("(part) => getComputedStyle(part).opacity") == "1"
            assert await seen.page.locator("#pause").is_enabled()
            seen.errors.clear()  # the browser notes each refused connection
    await log.close()


@pytest.mark.extended
async def test_figures_of_a_frozen_instance_are_shown_as_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection stays, and no views come: after some seconds the page says so, until the next view."""
    async with shown(tmp_path) as here:
        await here.page.clock.install()
        await here.page.reload()
        await here.seen.views(1)
        with monkeypatch.context() as patch:
            patch.setattr(Sampler, "look", lambda _: 1 / 0)
            await here.page.clock.fast_forward(6_000)
            await here.seen.text("#notice", "^the instance does not answer; all below is as of ")
            assert await here.page.locator("#pause").is_disabled()
        await here.seen.text("#health", "^ready")
        assert await here.page.locator("#pause").is_enabled()


class _Away:
    """A log that does not answer while `gone`, by its own account."""

    def __init__(self, inner: Log) -> None:
        self._inner = inner
        self.gone = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def outages(self) -> tuple[Outage, ...]:
        return (Outage(9.0, "the broker does not answer"),) if self.gone else ()


async def test_a_lag_that_is_not_known_is_a_question_mark_everywhere(tmp_path: Path) -> None:
    """In the figures, on the topic and at the task, while the log does not answer; else it is a number."""
    log, visits = await fresh_log(), Visits()
    away: Any = _Away(log)
    async with visiting(away, tmp_path, visits) as app, serve_page(app) as served, browsing(served.link) as seen:
        for away.gone, lag in ((False, "0"), (True, r"\?"), (False, "0")):
            await seen.text("#figures div", rf"^Lag here{lag}")
            await seen.text("#topology .topic", rf"visits.*lag {lag}$")
            await seen.text("#tasks tbody tr td[data-label=Lag]", rf"^{lag}$")
    await log.close()


@pytest.mark.extended
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_follows_the_scheme(tmp_path: Path, scheme: str) -> None:
    """At 360 px nothing is wider than the screen, but for what scrolls by itself; the ground is light or dark as the reader likes."""
    browser = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme, "has_touch": True, "is_mobile": True}
    async with shown(tmp_path, browser=browser) as here:
        await visit(here.log, "/", "bad " * 100)
        await here.app.wait_until_caught_up()
        await here.page.click("#letters-again")
        await here.seen.text("#letters li", "no page bad")
        await here.page.click("#letters summary")
        await here.page.click("#letters ul summary")
        await here.seen.views(1)
        assert await here.page.evaluate("document.scrollingElement.scrollWidth") <= 360
        ground = await here.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 29)"}[scheme]


@pytest.mark.extended
async def test_it_works_with_a_keyboard_alone(tmp_path: Path) -> None:
    """Tab reaches the skip link, then the orders; Enter gives one; the focus is seen, and stays where it is at each update."""
    async with shown(tmp_path) as here:
        keyboard = here.page.keyboard
        await here.seen.text("#pause", "Pause")
        await here.page.wait_for_selector("#pause", state="visible")
        await keyboard.press("Tab")
        assert await here.page.evaluate("document.activeElement.className") == "skip"
        await keyboard.press("Tab")
        assert await here.page.evaluate("document.activeElement.id") == "pause"
        assert await here.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        await here.seen.views(2)
        assert await here.page.evaluate("document.activeElement.id") == "pause"
        await keyboard.press("Enter")
        await here.seen.text("#problems li", "^paused: ")
        assert here.seen.asked == ["Pause this instance? Its tasks stay here, and their records wait until it is resumed."]


async def test_values_of_records_are_never_read_as_html(tmp_path: Path) -> None:
    """Headers, keys and values of records, and names of nodes, are shown as the text that they are."""
    evil = '"><script>window.broken = 1</script>'
    async with shown(tmp_path) as here:
        producer = await here.log.producer(client_id="evil")
        batch = Batch([evil.encode()], [f"bad{evil}".encode()], [1], [((evil, evil.encode()),)])
        await producer.send([Outgoing(TopicPartition("visits", 0), batch)])
        await producer.close()
        await here.app.wait_until_caught_up()
        await here.page.click("#letters-again")
        await here.seen.text("#letters pre", "<script>")
        assert await here.page.locator("main script").count() == 0
        assert await here.page.evaluate("window.broken") is None
