"""Committed rows of a store, for snapshots."""
