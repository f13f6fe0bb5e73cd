"""The ground floor of all packages: files, settings, command line, progress."""
