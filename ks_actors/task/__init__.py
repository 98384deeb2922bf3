"""One task at work: sources, operators, sinks and their context; no actor."""
