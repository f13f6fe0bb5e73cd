"""Exceptions that the clients of exports raise."""


class Unavailable(ConnectionError):
    """Error for a temporarily unavailable server; a retry may succeed."""


class InvalidRequest(ValueError):
    """Error for a request with values that the model refuses."""
