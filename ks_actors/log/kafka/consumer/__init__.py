"""Fetching."""
