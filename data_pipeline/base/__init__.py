"""Base modules of all packages: files, settings, command line, progress."""
