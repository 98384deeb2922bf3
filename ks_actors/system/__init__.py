"""The platform: file locks, open files, supported versions."""
