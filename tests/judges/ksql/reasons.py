"""The error that says why a case cannot be judged."""

from __future__ import annotations


class LeftOut(Exception):
    """A case that the translator cannot tell apart from a wrong one, and why."""


class Unreadable(Exception):
    """A record that ksql cannot read: it logs the record, and skips it."""
