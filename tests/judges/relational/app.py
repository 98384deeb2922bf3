"""The application of Kafka's RelationalSmokeTest as one of ours: two tables, a count, and a join by a foreign key. One process is one member.

Runs until SIGTERM, which closes it: exit code 0.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ks_actors import App, Consumed, Grouped, Materialized, Produced, StreamsBuilder
from ks_actors.serdes import INTEGER, SHORT, Serde
from ks_actors.topology import Topology
from tests.judges.drivers.member import config

_PREFIX = 10
_HEAD, _NUMBER, _COUNT = struct.Struct(">iqi"), struct.Struct(">i"), struct.Struct(">q")


class Article(NamedTuple):
    """A text; `comments` is None where they are not counted."""

    key: int
    timestamp: int
    text: bytes
    comments: int | None = None


class Comment(NamedTuple):
    """A text about an article; `prefix` is the beginning of the article's text, None in a comment as it was written."""

    key: int
    timestamp: int
    text: bytes
    article: int
    prefix: bytes | None = None


def _head(key: int, timestamp: int, text: bytes) -> bytes:
    return _HEAD.pack(key, timestamp, len(text)) + text


def _read_head(data: bytes) -> tuple[int, int, bytes, bytes]:
    key, timestamp, length = _HEAD.unpack_from(data)
    end = _HEAD.size + length
    return key, timestamp, data[_HEAD.size : end], data[end:]


def write_article(article: Article) -> bytes:
    """Return the bytes of ArticleSerializer, or of AugmentedArticleSerializer."""
    counted = b"" if article.comments is None else _COUNT.pack(article.comments)
    return _head(*article[:3]) + counted


def read_article(data: bytes) -> Article:
    key, timestamp, text, rest = _read_head(data)
    return Article(key, timestamp, text, *_COUNT.unpack(rest)) if rest else Article(key, timestamp, text)


def write_comment(comment: Comment) -> bytes:
    """Return the bytes of CommentSerializer, or of AugmentedCommentSerializer."""
    prefix = b"" if comment.prefix is None else _NUMBER.pack(len(comment.prefix)) + comment.prefix
    return _head(*comment[:3]) + _NUMBER.pack(comment.article) + prefix


def read_comment(data: bytes) -> Comment:
    key, timestamp, text, rest = _read_head(data)
    (article,) = _NUMBER.unpack_from(rest)
    prefix = rest[2 * _NUMBER.size :] if len(rest) > _NUMBER.size else None
    return Comment(key, timestamp, text, article, prefix)


ARTICLE = Serde.of(write_article, read_article, immutable=True)
COMMENT = Serde.of(write_comment, read_comment, immutable=True)


def topology() -> Topology:
    """Return the topology of RelationalSmokeTest."""
    builder = StreamsBuilder()
    articles = builder.table("in-article", Consumed(INTEGER, ARTICLE))
    comments = builder.table("in-comment", Consumed(INTEGER, COMMENT))
    counts = comments.group_by(lambda key, comment: (comment.article, 1), Grouped(INTEGER, SHORT)).count()
    counted = articles.left_join(counts, lambda article, count: article._replace(comments=count or 0), Materialized(value=ARTICLE))
    counted.to_stream().to("out-augmented-article", Produced(INTEGER, ARTICLE))
    joined = comments.join(
        articles,
        lambda comment, article: comment._replace(prefix=article.text[:_PREFIX]),
        foreign_key=lambda comment: comment.article,
        materialized=Materialized(value=COMMENT),
    )
    joined.to_stream().to("out-augmented-comment", Produced(INTEGER, COMMENT))
    return builder.build()


def main() -> None:
    # The time between commits is that of Kafka's own application: a kill undoes a second of work.
    App(topology(), config(__doc__, "relational", commit_interval_ms=1000)).main()


if __name__ == "__main__":
    main()
