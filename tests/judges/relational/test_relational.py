"""Kafka's RelationalSmokeTest, in short: `make judge-relational` does long runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.judges.drivers.needed import require_drivers
from tests.judges.relational.app import Article, Comment, read_article, read_comment, write_article, write_comment
from tests.judges.relational.judge import RelationalOptions, judge


@pytest.mark.extended
@pytest.mark.heavy("brokers, members and a judge in Java")
@pytest.mark.unmeasured
async def test_kafkas_own_relations_hold_after_kills_and_a_restart_of_the_broker(tmp_path: Path) -> None:
    """Exactly once, whatever befalls members and the broker, Kafka's own verifier finds each comment with its article, and each article's count."""
    require_drivers()
    options = RelationalOptions(
        members=2, workers=2, standbys=1, kills=2, broker_restarts=1, session_timeout=3, articles=100, comments=1000, seconds=11, max_verify=60
    )
    verdict = await judge(options, tmp_path)
    told = (
        f"seed {options.seed}, exit codes {verdict.outcome.exits}, {verdict.outcome.unexpected} ended by themselves:\n{verdict.outcome.said[-4000:]}"
    )
    assert verdict.ok, told
    assert verdict.outcome.done == {"kill": 2, "broker": 1}
    assert verdict.outcome.said.count("PASSED") == 2


@pytest.mark.parametrize("article", [Article(1, -5, b""), Article(2**31 - 1, 2**62, b"text", 0), Article(-1, 0, b"\x00" * 9, 7)])
def test_articles_keep_their_bytes(article: Article) -> None:
    """An article is read as it was written, counted or not."""
    assert read_article(write_article(article)) == article


@pytest.mark.parametrize("comment", [Comment(1, -5, b"", 3), Comment(0, 2**62, b"text", -1, b""), Comment(-1, 0, b"\x00" * 9, 7, b"prefix")])
def test_comments_keep_their_bytes(comment: Comment) -> None:
    """A comment is read as it was written, joined or not."""
    assert read_comment(write_comment(comment)) == comment
