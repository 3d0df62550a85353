"""Errors of upstreams. Foreign exceptions are mapped to these once, in `error_mapping`."""

from __future__ import annotations


class UpstreamClientError(Exception):
    """Base; the message is for a person or a model and holds no secret and no traceback."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server
        self.message = message


class UpstreamUnavailable(UpstreamClientError):
    """The server is not connected; nothing was sent."""


class UpstreamCallError(UpstreamClientError):
    """A call did not get an answer from its tool.

    Attributes:
        dispatched: whether the request may have reached the server.
        code: the JSON-RPC error code when the server answered with one.
    """

    def __init__(self, server: str, message: str, *, dispatched: bool, code: int | None = None) -> None:
        super().__init__(server, message)
        self.dispatched = dispatched
        self.code = code


class QuestionRefused(Exception):
    """A question of the server gets no answer; the text says why, fit for the server to read."""


class LoginError(Exception):
    """A login, or the renewal of one, did not succeed; the text is for a person and holds no secret."""


class LoginRefused(LoginError):
    """The authorization server has looked at what was presented and does not accept it (any more)."""


class StoreError(LoginError):
    """Logins cannot be kept or read; the text says what to do."""
