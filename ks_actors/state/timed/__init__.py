"""Parts of window and session stores."""
