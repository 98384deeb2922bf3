"""The poller: fetching and group membership."""
