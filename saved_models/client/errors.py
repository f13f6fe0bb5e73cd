"""Exceptions that the clients of exports raise."""


class Unavailable(ConnectionError):
    """Error of a temporarily unavailable server; a retry may succeed."""


class InvalidRequest(ValueError):
    """Error of a request with values that the model refuses."""
