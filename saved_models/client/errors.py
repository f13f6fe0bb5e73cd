"""Errors of the clients."""


class Unavailable(ConnectionError):
    """The server cannot answer now; a later attempt may succeed."""
