"""A program: the app, its history, its event loop and its signals."""
