"""Errors of the clients."""


class Unavailable(ConnectionError):
    """The server cannot answer now; a later attempt may succeed."""


class InvalidRequest(ValueError):
    """A request whose values a model refuses; others may be answered."""
