"""The task manager and the workers."""
