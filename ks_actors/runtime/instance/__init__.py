"""The instance actor, which starts and watches all others."""
