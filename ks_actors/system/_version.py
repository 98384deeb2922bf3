"""The version; the build takes it from here."""

VERSION = "0.1.0.dev0"
