"""The state manager and the restorer."""
