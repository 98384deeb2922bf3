"""Stateless operators."""
