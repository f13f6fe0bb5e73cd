"""Errors of the clients."""


class Unavailable(ConnectionError):
    """Error of a server that is unavailable now; a retry may succeed."""


class InvalidRequest(ValueError):
    """Error of a request with values that a model refuses."""
