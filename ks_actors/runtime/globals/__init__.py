"""Global tables."""
