"""Snapshots, and the bootstrap from them."""
