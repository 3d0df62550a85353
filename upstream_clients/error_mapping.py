"""The mapping from foreign exceptions to sentences for people.

The exceptions of httpx2 are known here, but httpx2 is not imported: a process that uses stdio only does not need it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from upstream_clients import jsonrpc
from upstream_clients.errors import LoginError, SessionLost, UpstreamCallError
from upstream_clients.redaction import cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx2

    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.token_store import Stamp


class InvalidAnswer(Exception):
    """A server's answer to the handshake cannot be used. The text says why."""


_FAULT_KEY = "upstream_clients/http"
_MAX_QUOTE = 500
_MAX_DATA = 4_000
"""Characters of the data of an error, as JSON."""


class HttpFault(Struct, frozen=True):
    """The reason why a POST got no MCP answer. It travels through the SDK as the `data` of a JSON-RPC error.

    Attributes:
        status: the HTTP status; None without an HTTP answer.
        sent: True if the request may have reached the server.
        answered: True if the error's code and message are the server's own JSON-RPC answer.
        session_lost: True if the server has lost the session. Unless `sent`, it has not handled the request.
        login: True if a person has to log in first (401), or again for more rights (403). The error's message says so.
        usable: True if other requests can still be sent over the connection.
    """

    status: int | None
    sent: bool
    answered: bool = False
    session_lost: bool = False
    login: bool = False
    usable: bool = False

    def to_data(self) -> dict[str, Any]:
        return {_FAULT_KEY: [self.status, self.sent, self.answered, self.session_lost, self.login, self.usable]}

    @staticmethod
    def of(error: jsonrpc.JsonRpcError) -> HttpFault | None:
        match error.data.get(_FAULT_KEY) if isinstance(error.data, dict) else None:
            case [int() | None as status, bool() as sent, bool() as answered, bool() as lost, bool() as login, usable]:
                return HttpFault(status, sent, answered, lost, login, usable is True)
            case _:
                return None


class HttpWatch(Struct):
    """The latest requests of an HTTP client, for the task that owns the connection.

    Attributes:
        on_doubt: called when the session may be lost, which another request will show.
        in_session: True if the latest POST belongs to a session of the server.
        refused_status: HTTP status of the latest POST, if it was refused.
        logged_out: True if the latest request was refused because a login is needed first.
        logged_in: True if the latest request was sent with a stored login.
        login: stamp of the login of the latest request. Another login is a reason to try again.
    """

    on_doubt: Callable[[], object] = lambda: None
    in_session: bool = False
    refused_status: int | None = None
    logged_out: bool = False
    logged_in: bool = False
    login: Stamp = None


def is_transport_failure(error: jsonrpc.JsonRpcError) -> bool:
    """Return True if the connection broke or was never made, so that the error is not the server's answer."""
    fault = HttpFault.of(error)
    if fault is not None:
        return fault.status is None and not fault.usable
    # The dispatcher fails all open requests with this error when the stream ends.
    return error.code == jsonrpc.CONNECTION_CLOSED and error.message == "Connection closed" and error.data is None


_BRIDGE_CODES = (jsonrpc.INVALID_REQUEST, -32001, 32600)
_SESSION_CODES = (None, jsonrpc.SERVER_ERROR, -32002, *_BRIDGE_CODES)
"""Codes of errors by which servers refuse a request whose session they do not know. Over stdio, only bridges to other
servers do so, and pass on the codes of common SDKs."""


def _set_of(words: str) -> frozenset[str]:
    return frozenset(words.split())


_ABOUT_SESSION = _set_of("session sessions sessionid session-id mcp-session-id initialized")
_IS_LOST = _set_of(
    "not no unknown invalid expired terminated closed lost gone ended missing doesn cannot inactive stale deleted "
    "removed uninitialized unrecognized nonexistent"
)
_OTHER_WORDS = _set_of(
    "mcp id the a this your is was has have been found exist exists does t or and valid active such provided given "
    "longer already could find bad request unauthorized error http server please reinitialize re-initialize "
    "initialize start new one again reconnect connect with for in of to on header restarted available"
)
_SEPARATORS = re.compile(r"[\s.,;:!?()\[\]{}<>=\"'`/_]+|(?<=[a-z])(?=[A-Z])")
"""Separators of words, also in names such as `SESSION_NOT_FOUND` and `SessionExpired`."""


def names_lost_session(text: str) -> bool:
    """Return True if an error says that the session of the connection is lost, and nothing else.

    A tool may have sessions of its own, whose loss is another matter: `browser session expired`.
    """
    words = {word.lower() for word in _SEPARATORS.split(text[:_MAX_QUOTE]) if word}
    unknown = words - _ABOUT_SESSION - _IS_LOST - _OTHER_WORDS
    is_said = not words.isdisjoint(_ABOUT_SESSION) and not words.isdisjoint(_IS_LOST)
    return is_said and all(any(map(str.isdigit, word)) for word in unknown)  # the id of the session, or a status


_JSON_TEXT = re.compile(r'"([^"\\]{1,500})"')


def is_session_refused(status: int, code: int | None, body: str) -> bool:
    """Return True if an HTTP error status, for a request with a session, says that the server has lost the session.

    The specification requires 404. Several servers use another status, and mention the session.

    Args:
        code: the code of the JSON-RPC error in the body; None without one.
    """
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE) and code in _SESSION_CODES:
        return True
    if status == HTTPStatus.BAD_REQUEST and "session" in body.lower():
        return True
    return any(map(names_lost_session, _JSON_TEXT.findall(body) or [body]))


def is_session_lost(error: jsonrpc.JsonRpcError, *, in_session: bool, is_process: bool = False) -> bool:
    """Return True if a legacy server has lost the session: it was restarted, or the session has expired.

    Args:
        in_session: True if the request belonged to a session.
    """
    fault = HttpFault.of(error)
    if fault is not None:
        return fault.session_lost
    codes = _BRIDGE_CODES if is_process else _SESSION_CODES
    said = f"{error.message} {error.data}" if isinstance(error.data, str) else error.message
    return in_session and error.code in codes and names_lost_session(said)


def is_logged_out(error: jsonrpc.JsonRpcError) -> bool:
    """Return True if the server requires a login before it handles any request."""
    fault = HttpFault.of(error)
    return fault is not None and fault.login and fault.status == HTTPStatus.UNAUTHORIZED


def login_needed(spec: UpstreamSpec) -> str:
    return f"server {spec.name!r} needs a login: run codemode-mcp login {shlex.quote(spec.name)}"


def more_rights_needed(spec: UpstreamSpec, scope: str | None) -> str:
    words = "" if scope is None else " ".join(word for word in scope.split() if word.isprintable())
    named = f" ({spec.redact(words)[:200]})" if words else ""
    return (
        f"server {spec.name!r} requires a login with more rights for this{named}: "
        f"run codemode-mcp login {shlex.quote(spec.name)}"
    )


def login_trouble(spec: UpstreamSpec, error: LoginError) -> str:
    return f"the login cannot be used now: {spec.redact(str(error))}"


def call_error(
    spec: UpstreamSpec, method: str, error: jsonrpc.JsonRpcError, *, session_lost: bool = False
) -> UpstreamCallError:
    """Return the error of a failed request for its caller. `session_lost`: see `is_session_lost`."""
    fault = HttpFault.of(error)
    server = f"server {spec.name!r}"
    said = spec.cut(spec.redact_learned(error.message), _MAX_QUOTE)
    if session_lost:
        status = f"error {error.code}" if fault is None else f"HTTP {fault.status}"
        answer = f"{status}: {_quoted(spec, error.message)}" if said else status
        if fault is not None and fault.sent:
            return UpstreamCallError(
                spec.name,
                f"{server} lost this session while it handled {method} ({answer}); it is being connected again, and it "
                "is unknown whether the server acted",
                dispatched=True,
            )
        return SessionLost(spec.name, answer)
    if fault is not None and fault.login:
        return UpstreamCallError(spec.name, error.message, dispatched=False, answered=True)
    if fault is not None and not fault.answered:
        what = (
            _quoted(spec, error.message)
            if fault.status is None
            else http_reason(spec, fault.status) + _words(spec, error)
        )
        answered = fault.sent or fault.status is not None
        return UpstreamCallError(spec.name, f"{server}: {what}", dispatched=fault.sent, answered=answered)
    if error.code == jsonrpc.HEADER_MISMATCH:
        return UpstreamCallError(
            spec.name,
            f"{server} has changed this tool since it was listed; it is being listed again, repeat the call",
            dispatched=False,
            code=error.code,
        )
    if is_transport_failure(error):
        return UpstreamCallError(
            spec.name,
            f"{server} closed the connection before it answered {method}; it is unknown whether the server acted on it",
            dispatched=True,
        )
    return UpstreamCallError(
        spec.name,
        f"{server} answered {method} with error {error.code}: {said}{_data_words(spec, error)}",
        dispatched=True,
        code=error.code,
        server_message=said,
        server_data=None if fault is not None else _small(spec.redact_learned_in(error.data)),
    )


_SESSION_ADVICE = "see its log, and if several processes answer its requests, let them share their sessions"
"""A next step if a server has lost a session that it has just begun."""


def lost_again(subject: str, error: SessionLost) -> UpstreamCallError:
    """Return the error of a call that the server has refused in a new session too. `subject`: the tool, in words."""
    return UpstreamCallError(
        error.server,
        f"server {error.server!r} has refused {subject} twice, because it does not know the session ({error.answer}), "
        f"although the second session was new; nothing was done; {_SESSION_ADVICE}",
        dispatched=False,
    )


def _words(spec: UpstreamSpec, error: jsonrpc.JsonRpcError) -> str:
    """Return the words in the body of an error status, which may repeat the credentials of the request."""
    return f"; it says: {_quoted(spec, error.message)}" if error.message else ""


def _data_words(spec: UpstreamSpec, error: jsonrpc.JsonRpcError) -> str:
    """Return the data of an error, which often has the reason. The addresses of questions are not for programs."""
    data = error.data
    if isinstance(data, dict):
        data = {name: each for name, each in data.items() if name != _FAULT_KEY}
        data = data["data"] if data.keys() == {"data"} else data
    text = "" if not data or error.code == jsonrpc.URL_ELICITATION_REQUIRED else jsonrpc.text_of(data)
    return f"; data: {spec.cut(spec.redact(text), _MAX_QUOTE)}" if text not in error.message else ""


def _small(data: Any) -> Any:
    try:
        return data if len(json.dumps(data)) <= _MAX_DATA else None
    except (ValueError, RecursionError):
        return None


def start_failure(
    spec: UpstreamSpec, cause: BaseException, said: str = "", exit_code: int | None = None, stray: str = ""
) -> str:
    """Return one sentence that says why a connection could not be made, with a next step.

    Args:
        said: the most useful line of the server's stderr.
        stray: the first line of the server's stdout that is not a message.
    """
    reasons = [_start_reason(spec, leaf, exit_code) for leaf in _leaves(cause)]
    reason = next((found for found in reasons if found is not None), None)
    if reason is None:
        leaf = next(_leaves(cause))
        reason = f"{type(leaf).__name__}: {_quoted(spec, str(leaf)) or 'no further details'}"
    return not_started(spec, reason) + _quote(said, stray)


def is_command_missing(spec: UpstreamSpec, cause: BaseException) -> bool:
    return spec.is_process and any(isinstance(leaf, FileNotFoundError | PermissionError) for leaf in _leaves(cause))


def not_started(spec: UpstreamSpec, reason: str) -> str:
    """Return the error for a server that did not start, with a reason in which texts of others are redacted."""
    return spec.redact_own(f"server {spec.name!r} did not start: {reason}")


def connect_timeout(spec: UpstreamSpec, said: str = "", stray: str = "") -> str:
    if spec.is_api:
        document = spec.redact(spec.document or "")
        return not_started(spec, f"its OpenAPI document {document!r} was not read within {spec.connect_timeout:g} s")
    where = f"command {spec.command!r}" if spec.is_process else spec.address
    reason = (
        f"no complete answer from {where} within {spec.connect_timeout:g} s; "
        f"check that it is an MCP server{' and speaks MCP on its stdout' if spec.is_process else ''}"
    )
    return not_started(spec, reason) + _quote(said, stray)


def lost(spec: UpstreamSpec, said: str = "") -> str:
    what = "its process ended" if spec.is_process else f"the connection to {spec.address} ended"
    return f"server {spec.name!r} is gone: {what}; it is being connected again" + _quote(said)


def _quote(said: str, stray: str = "") -> str:
    quoted = f"; its stdout, which must have MCP messages only, has this line: {stray}" if stray else ""
    return (f"; its stderr says: {cut(said, _MAX_QUOTE)}" if said else "") + quoted


def _quoted(spec: UpstreamSpec, text: str) -> str:
    """Return a text of others for a sentence of ours: without secrets, and cut."""
    return spec.cut(spec.redact(text), _MAX_QUOTE)


def _leaves(cause: BaseException) -> Iterator[BaseException]:
    if isinstance(cause, BaseExceptionGroup):
        for inner in cause.exceptions:
            yield from _leaves(inner)
    else:
        yield cause


def _start_reason(spec: UpstreamSpec, error: BaseException, exit_code: int | None) -> str | None:
    """Return the reason, or None for an exception that only followed from another one."""
    key = f"mcpServers.{spec.name}"
    # httpx2 can have raised the error only if it was imported.
    http: Any = sys.modules.get("httpx2")
    if http is not None and isinstance(error, http.HTTPStatusError):
        return http_reason(spec, error.response.status_code)
    if http is not None and isinstance(error, http.TransportError):
        return unreachable(spec, error)
    match error:
        case jsonrpc.JsonRpcError():
            return _refusal(spec, error, exit_code)
        case OSError() if spec.cwd is not None and not os.path.isdir(spec.cwd):
            return f'its working directory {spec.cwd!r} does not exist; check "cwd" of {key}'
        case FileNotFoundError() if (words := (spec.command or "").split())[1:]:
            args = ", ".join(json.dumps(word) for word in (*words[1:], *spec.args[:1]))
            more = ", ..." if len(spec.args) > 1 else ""
            return (
                f'"command" of {key} must be the program without its arguments, and there is no program '
                f'{spec.command!r}; write "command": {json.dumps(words[0])}, "args": [{args}{more}]'
            )
        case FileNotFoundError():
            where = "does not exist" if os.path.dirname(spec.command or "") else "was not found on PATH"
            return f'command {spec.command!r} {where}; check "command" of {key}'
        case PermissionError():
            return f'command {spec.command!r} may not be executed; check its permissions and "command" of {key}'
        case SessionLost():
            return f"it does not know the session that it has just begun ({error.answer}); {_SESSION_ADVICE}"
        case UpstreamCallError():
            return _quoted(spec, error.message.removeprefix(f"server {spec.name!r}").lstrip(": "))
        case InvalidAnswer():
            return f"{_quoted(spec, str(error))}; update the server or this client"
        case _:
            return None


def _refusal(spec: UpstreamSpec, error: jsonrpc.JsonRpcError, exit_code: int | None) -> str:
    if error.code == jsonrpc.CONNECTION_CLOSED and is_transport_failure(error):
        if spec.is_process:
            return f"it exited{_exit_words(exit_code)} before it answered; run the command by hand to see why"
        return f"{spec.address} closed the connection before it answered"
    fault = HttpFault.of(error)
    if fault is not None:
        if fault.status is None:
            return _quoted(spec, error.message)
        if not fault.answered or fault.status in (401, 403):
            return http_reason(spec, fault.status) + ("" if fault.answered else _words(spec, error))
    return f"it refused the MCP handshake with error {error.code}: {_quoted(spec, error.message)}"


def _exit_words(exit_code: int | None) -> str:
    if exit_code is None:
        return ""
    return f" with code {exit_code}" if exit_code >= 0 else f", ended by signal {-exit_code},"


def http_reason(spec: UpstreamSpec, status: int) -> str:
    key = f"mcpServers.{spec.name}"
    advice = {
        401: f'check "headers" or "auth" of {key}',
        403: f'check "headers" or "auth" of {key}',
        404: f'check the path in "url" of {key}',
        405: f'check "url" and "type" of {key}',
        408: "it did not get the whole request in time; try again",
        410: f'it no longer serves this address; look for its new one, for "url" of {key}',
        413: "the request is larger than it accepts; pass less at a time",
        429: "it allows fewer requests; try again later",
    }.get(status, f'check "url" of {key}' if status < 500 else "the server has a problem of its own; see its log")
    try:
        phrase = f" ({HTTPStatus(status).phrase})"
    except ValueError:
        phrase = ""
    return f"{spec.address} answered HTTP {status}{phrase}; {advice}"


def unreachable(spec: UpstreamSpec, error: httpx2.TransportError) -> str:
    if isinstance(error, sys.modules["httpx2"].LocalProtocolError):
        # The exception's text may quote a header's value.
        return f'the request to {spec.address} is not valid HTTP; check "headers" of mcpServers.{spec.name}'
    detail = spec.redact(str(error)) or type(error).__name__
    return f'{spec.address} cannot be reached ({detail}); check that it is running and "url" of mcpServers.{spec.name}'
