"""Tests of backfills and of their handover."""
