"""Base of all packages: files, settings, command line, progress."""
