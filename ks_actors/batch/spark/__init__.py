"""Spark sessions, called by the bridge actor."""
