"""The session of one client, as its relay keeps it across instances. Pure.

A relay passes lines on and reads them only as far as it must: it has to know which requests are open, so that it can
bring them to the next instance, or answer them if there is none. The state is:

- the open requests of the client, in order;
- the open questions: requests of the present instance to the client;
- the lines that begin the session, and the latest level of log messages, which the next instance gets too.

When an instance has ended, its questions are withdrawn. Requests that only read are repeated. So is a call of a tool
whose line did not reach the instance. Any other call of a tool is reported as interrupted, because it may have had
effects: the next instance looks its run up in the store.

Two instances may use the same id for different questions. A late answer to the first question must not be taken for an
answer to the second one. So the client sees the ids of the second and later instances with a prefix.

A line is passed on unread if it is no JSON-RPC message, such as a batch. Long lines are not parsed if their beginning,
or beginning and end, have one of the usual forms.
"""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8
from typing import Any, Final, NamedTuple

from codemode_mcp.process.instance import wire

_GREETING: Final = ("initialize", "logging/setLevel")
"""Requests on which the rest of the session depends. Every instance gets the latest one of each."""

MAX_ATTEMPTS: Final = 3
"""Instances that may end while a request is open. After that, the request has an error for an answer."""

LONG_LINE: Final = 4096
"""Bytes from which a line is not parsed if its form is usual."""

INTERNAL_ERROR: Final = -32603
"""The code of JSON-RPC for an internal error."""

# An id in JSON, as in a line without blanks. The end of a valid line is never part of a string that began before.
_ID: Final = rb'("(?:[^"\\]|\\.){0,500}"|-?\d{1,30})'
_KIND: Final = rb'"(?:(?:result|error)"|method":"(?P<method>[^"\\]{0,200})")'
_ID_FIRST: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":' + _ID + rb"," + _KIND)
_METHOD_FIRST: Final = re.compile(rb'\{(?:"jsonrpc":"2\.0",)?' + _KIND)
_ID_LAST: Final = re.compile(rb'[\]}"],"jsonrpc":"2\.0","id":' + _ID + rb"\}\s*\Z")
_TAIL_BYTES: Final = 600


class Outgoing(NamedTuple):
    """A line for an instance.

    Attributes:
        key: the key of the request in the line; None for other messages.
    """

    line: bytes
    key: str | None


class RelayedSession:
    """The state of a session between a client and a series of instances. One method is used at a time.

    Attributes:
        answered: the number of requests of the client that instances have answered.
    """

    def __init__(self) -> None:
        self.answered = 0
        self._instances = 0  # that have ended
        self._requests: dict[str, _Request] = {}
        self._questions: dict[str, object] = {}  # the ids that the instance has given them, by the keys of shown ids
        self._greeting: dict[str, bytes] = {}  # by method: those of `_GREETING`, `notifications/initialized`

    @property
    def awaits_answers(self) -> bool:
        return any(not request.hidden for request in self._requests.values())

    def from_client(self, line: bytes) -> Outgoing | None:
        """Take a line of the client. Return what the instance gets; None if it gets nothing."""
        line = line.removeprefix(BOM_UTF8)  # before anything else, since a mark behind it must not pass either
        if not line or line.startswith(wire.MARK) or line.isspace():
            return None
        form = _form_of(line)
        if form is None:
            return Outgoing(line, None)
        method, number, message = form
        if method is None:
            return self._answer(line, number, message)
        if method == "notifications/initialized" or (method in _GREETING and number is not _ABSENT):
            self._greeting[method] = line
        if isinstance(number, bool | list | dict):
            return Outgoing(line, None)  # the instance refuses it, and cannot send this id back
        if number is not _ABSENT:
            key = _key(number)
            self._requests[key] = _Request(line, method)
            return Outgoing(line, key)
        if method == "notifications/cancelled":
            # The client expects no answer any more. If there is one, it is passed on nevertheless.
            self._requests.pop(_key(_params(message, line).get("requestId")), None)
        return Outgoing(line, None)

    def sent(self, key: str | None) -> None:
        if key is not None and (request := self._requests.get(key)) is not None:
            request.sent = True

    def from_instance(self, line: bytes) -> bytes | None:
        """Take a line of an instance that is no note. Return what the client gets; None if it gets nothing."""
        form = _form_of(line, parse_notifications=False)
        if form is None:
            return line
        method, number, message = form
        if method is None:
            request = self._requests.pop(_key(number), None)
            if request is None:
                return line
            self.answered += not request.hidden
            return None if request.hidden else line
        if number is not _ABSENT:
            return self._question(line, number, message)
        if method == "notifications/cancelled":
            return self._cancelled(line, _params(message, line))
        if method == "notifications/subscriptions/acknowledged":
            return self._acknowledged(line, _params(message, line))
        return line

    def note(self, note: dict[str, Any]) -> None:
        match note:
            case {"progress": number, "run": str() | None as run, "dispatched": bool() as dispatched}:
                request = self._requests.get(_key(number))
                if request is not None:
                    request.run = run or request.run
                    request.dispatched = request.dispatched or dispatched

    def instance_ended(self) -> list[bytes]:
        """Withdraw the questions of an instance that has ended. Return lines for the client."""
        self._instances += 1
        questions, self._questions = self._questions, {}
        lines = []
        for key in questions:
            params = {"requestId": json.loads(key), "reason": "the server process that asked has ended"}
            lines.append(_encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))
        return lines

    def replay(self) -> tuple[list[Outgoing], list[bytes]]:
        """Return the lines for the next instance, and answers for the client to requests that have failed too often."""
        lines = []
        for key in [key for key, request in self._requests.items() if request.hidden]:
            del self._requests[key]
        for method, line in self._greeting.items():
            form = _form_of(line)
            if method in _GREETING and form is not None:
                key = _key(form[1])
                # The client sees the answer only if it still waits for it.
                self._requests.setdefault(key, _Request(line, method, hidden=True))
            lines.append(Outgoing(line, None))
        answers = []
        for key, request in list(self._requests.items()):
            if request.hidden:
                continue
            request.attempts += 1
            if request.attempts > MAX_ATTEMPTS:
                answers.append(_failure(key, request, f"{MAX_ATTEMPTS} server processes have ended while it was open"))
                # The greeting is repeated nevertheless, and a late answer to it must stay hidden.
                request.hidden = request.method in _GREETING
                if not request.hidden:
                    del self._requests[key]
            elif request.method not in _GREETING:
                lines.append(Outgoing(request.replayed(), key))
        return lines, answers

    def give_up(self, why: str) -> list[bytes]:
        """Return answers to all open requests, for the client: there is no other instance.

        Args:
            why: a reason without a full stop.
        """
        requests, self._requests = self._requests, {}
        why = f"the server process has ended, and no other one could be started: {why}"
        return [_failure(key, request, why) for key, request in requests.items() if not request.hidden]

    def _answer(self, line: bytes, number: object, message: Any) -> Outgoing | None:
        """Return the answer to a question, with the question's own id; None if the question is withdrawn."""
        if number is None:
            return Outgoing(line, None)
        key = _key(number)
        if key not in self._questions and isinstance(number, str):
            key = number  # some clients answer `7` as `"7"`
        if key not in self._questions:
            return None
        own = self._questions.pop(key)
        return Outgoing(line if _key(own) == key else _encode({**_message(message, line), "id": own}), None)

    def _question(self, line: bytes, number: object, message: Any) -> bytes:
        shown = self._shown_id(number)
        self._questions[_key(shown)] = number
        return line if shown is number else _encode({**_message(message, line), "id": shown})

    def _shown_id(self, number: object) -> object:
        return number if self._instances == 0 else f"{self._instances}:{_key(number)}"

    def _cancelled(self, line: bytes, params: dict[str, Any]) -> bytes:
        number = params.get("requestId")
        shown = self._shown_id(number)
        if _key(shown) in self._questions:
            del self._questions[_key(shown)]
            if shown is not number:
                params = {**params, "requestId": shown}
                return _encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        else:
            self._requests.pop(_key(number), None)  # a subscription of the client, which the instance ends
        return line

    def _acknowledged(self, line: bytes, params: dict[str, Any]) -> bytes | None:
        """Return the line that confirms a subscription, unless the client had one from an earlier instance."""
        meta = params.get("_meta")
        number = meta.get("io.modelcontextprotocol/subscriptionId") if isinstance(meta, dict) else None
        request = self._requests.get(_key(number))
        if request is None:
            return line
        known, request.acknowledged = request.acknowledged, True
        return None if known else line


class _Request:
    """An open request of the client.

    Attributes:
        hidden: the relay has sent it, and the client does not get its answer.
        sent: its whole line was sent to an instance.
        run: the id of its run, as far as an instance has told.
        dispatched: some of its calls may have been sent to tools.
        attempts: instances that have ended while it was open.
        acknowledged: the client knows that its subscription has begun.
    """

    __slots__ = ("acknowledged", "attempts", "dispatched", "hidden", "line", "method", "run", "sent")

    def __init__(self, line: bytes, method: str, *, hidden: bool = False) -> None:
        self.line = line
        self.method = method
        self.hidden = hidden
        self.sent = False
        self.run: str | None = None
        self.dispatched = False
        self.attempts = 0
        self.acknowledged = False

    def replayed(self) -> bytes:
        if self.method != "tools/call" or not self.sent:
            return self.line
        facts = json.dumps({"run": self.run, "dispatched": self.dispatched})
        # The message may be long, so it is not parsed.
        return wire.MARK + facts[:-1].encode("ascii") + b', "interrupted": ' + self.line.strip() + b"}"


_ABSENT: Final = object()


def _form_of(line: bytes, *, parse_notifications: bool = True) -> tuple[str | None, object, Any] | None:
    """Return the method, the id and the message of a line; None if the line is no JSON-RPC message.

    The method is None for an answer, the id is `_ABSENT` for a notification, and the message is None if it was not
    parsed.

    Args:
        parse_notifications: parse short lines too if they begin as most notifications do.
    """
    if len(line) >= LONG_LINE or not parse_notifications:
        head = _ID_FIRST.match(line)
        number = None if head is None else head[1]
        if head is None and (head := _METHOD_FIRST.match(line)) is not None:
            tail = _ID_LAST.search(line[-_TAIL_BYTES:])
            number = None if tail is None else tail[1]
        if head is not None:
            method = None if head["method"] is None else head["method"].decode("utf-8", "replace")
            if number is not None:
                try:
                    return method, json.loads(number), None
                except ValueError:
                    return None
            if not parse_notifications and method is not None and method.startswith("notifications/"):
                return method, _ABSENT, None
    message = _parse(line)
    if message is None:
        return None
    method, number = message.get("method"), message.get("id", _ABSENT)
    if "method" in message:
        return (method, number, message) if isinstance(method, str) else None
    is_answer = number is not _ABSENT and ("result" in message or "error" in message)
    return (None, number, message) if is_answer else None


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        message = json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return message if isinstance(message, dict) else None


def _message(message: Any, line: bytes) -> dict[str, Any]:
    return message if message is not None else _parse(line) or {}


def _params(message: Any, line: bytes) -> dict[str, Any]:
    params = _message(message, line).get("params")
    return params if isinstance(params, dict) else {}


def _key(number: object) -> str:
    # Some clients write `1` as `1.0`. The instance answers it as `1`.
    return json.dumps(int(number) if isinstance(number, float) and number.is_integer() else number)


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def _failure(key: str, request: _Request, why: str) -> bytes:
    text = why
    if request.method == "tools/call":
        if request.dispatched:
            text += ". Some calls to tools were sent, and their results are unknown: look at what they have done"
        else:
            text += ". No call to a tool was sent"
        if request.run is not None:
            text += f". When the server runs again, call wait with runId {request.run}"
        elif not request.dispatched:
            text += ", so make the same request again when the server runs again"
    error = {"code": INTERNAL_ERROR, "message": text}
    return _encode({"jsonrpc": "2.0", "id": json.loads(key), "error": error})
