"""Producing."""
