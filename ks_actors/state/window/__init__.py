"""Window stores."""
