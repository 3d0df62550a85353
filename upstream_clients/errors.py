"""Errors of upstreams. `error_mapping` makes them from foreign exceptions."""

from __future__ import annotations

from typing import Any


class UpstreamClientError(Exception):
    """The base class of errors of a server. The message is for a person or a model, without secrets and tracebacks."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(message)
        self.server = server
        self.message = message


class UpstreamUnavailable(UpstreamClientError):
    """The server is not connected; nothing was sent."""


class UpstreamCallError(UpstreamClientError):
    """A call got no answer from its tool.

    Attributes:
        dispatched: True if the request may have reached the server.
        code: the JSON-RPC error code, if the server answered with an error.
        answered: True if the server has answered, also with an HTTP status or with what is no message of MCP, or has
            broken off a request over HTTP.
        server_message, server_data: the message and the data of that error, without tokens of logins; empty and None
            without them, or if the data is large.
    """

    def __init__(
        self,
        server: str,
        message: str,
        *,
        dispatched: bool,
        code: int | None = None,
        answered: bool = False,
        server_message: str = "",
        server_data: Any = None,
    ) -> None:
        super().__init__(server, message)
        self.dispatched = dispatched
        self.code = code
        self.answered = answered or code is not None
        self.server_message = server_message
        self.server_data = server_data


class SessionLost(UpstreamCallError):
    """A server has refused a request because it has lost the session. It is connected again, so the call is repeated.

    Attributes:
        answer: the server's answer in short.
    """

    def __init__(self, server: str, answer: str) -> None:
        super().__init__(
            server,
            f"server {server!r} has lost this session ({answer}); it is being connected again",
            dispatched=False,
        )
        self.answer = answer


class TaskLost(UpstreamCallError):
    """The end of a task cannot be found out, so it is unknown whether the tool has acted."""

    def __init__(self, server: str, message: str) -> None:
        super().__init__(server, message, dispatched=True)


class QuestionRefused(Exception):
    """A question of the server gets no answer. The text says why, and is sent to the server."""


class LoginError(Exception):
    """A login or its renewal has failed. The text is for a person and has no secrets."""


class LoginRefused(LoginError):
    """The authorization server does not accept the credentials."""


class StoreError(LoginError):
    """Logins cannot be stored or read. The text says what to do."""
