"""Backfills from history."""
