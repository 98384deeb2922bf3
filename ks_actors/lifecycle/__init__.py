"""Start, wait, retry, shield and end."""
