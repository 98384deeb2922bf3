"""The watchdog: records that wait, and their reasons."""
