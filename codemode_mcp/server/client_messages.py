"""Messages of clients, and the errors for what is no message. Independent of the transport, and of the MCP SDK.

A client that waits for the answer to a malformed request would wait for ever. So each request gets an answer, with its
id where that can be read. Notifications and answers of clients get none.

Batches are refused, each request in them with its id. Only revision 2025-03-26 of MCP has batches, and no known client
sends them.

Source: https://www.jsonrpc.org/specification, sections 4 to 6.
"""

from __future__ import annotations

import json
import logging
import math
from codecs import BOM_UTF8
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import anyio

from upstream_clients import jsonrpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from pydantic import ValidationError


log = logging.getLogger("codemode_mcp.server")

MAX_ANSWERS: Final = 100
"""Requests of a batch that are refused one by one."""

MAX_PROBLEMS: Final = 3
"""Parameters that one error names."""

MAX_NAME: Final = 100
"""Characters of the name of a parameter in an error."""


class Refused(NamedTuple):
    """A text of a client that is no message.

    Attributes:
        ids: the ids of the errors that answer it: None where the id of a request cannot be read. Empty if the client
            expects no answer.
    """

    error: jsonrpc.JsonRpcError
    ids: tuple[Any, ...] = (None,)

    def answers(self) -> list[jsonrpc.Message]:
        return [{"jsonrpc": "2.0", "id": each, "error": self.error.as_json()} for each in self.ids]


async def read_or_refuse(line: str, send: Callable[[bytes], Awaitable[None]]) -> jsonrpc.Message | None:
    """Return the message in a line. If it has none, send the errors that answer it, and return None."""
    if not line.strip():
        return None
    message = read_message(line)
    if not isinstance(message, Refused):
        return message
    log.debug("a line of the client is not a message: %s", message.error.message)
    for answer in message.answers():
        with suppress(anyio.BrokenResourceError):  # the client has disconnected
            await send(json.dumps(answer).encode("ascii"))
    return None


def read_message(text: str) -> jsonrpc.Message | Refused:
    value = _value_of(text)
    return value if isinstance(value, Refused) else _usual_message(value)


def read_body(body: bytes) -> tuple[bytes, jsonrpc.Message] | Refused:
    """Return the body of a request over HTTP in the usual form, and its message."""
    body = body.removeprefix(BOM_UTF8)
    value = _value_of(body)
    message = value if isinstance(value, Refused) else _usual_message(value)
    if isinstance(message, Refused):
        return message
    return body if message is value else json.dumps(message).encode("ascii"), message


def _value_of(text: str | bytes) -> Any:
    try:
        return json.loads(text if isinstance(text, str) else text.decode())
    except RecursionError:
        return Refused(jsonrpc.JsonRpcError(jsonrpc.PARSE_ERROR, "Parse error: the message is nested too deeply"))
    except ValueError as error:
        found = f": {error.msg} at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        return Refused(jsonrpc.JsonRpcError(jsonrpc.PARSE_ERROR, f"Parse error: the message is not JSON{found}"))


def _usual_message(value: Any) -> jsonrpc.Message | Refused:
    """Return a JSON value as a message: the value itself, or a copy in the usual form."""
    if isinstance(value, list):
        return _refused_batch(value)
    if not isinstance(value, dict):
        return _refused("a message must be an object", None)
    message: jsonrpc.Message = jsonrpc.with_whole_id(value)
    if "method" not in message and not message.keys().isdisjoint(("result", "error")):
        return _usual_answer(message)
    is_request, number = "id" in message, message.get("id")
    ids = (_id_to_show(number),) if is_request else ()
    if not isinstance(message.get("method"), str):
        why = '"method" must be a string' if "method" in message else '"method" is missing'
        return _refused(why, *(ids or (None,)))
    if message.get("jsonrpc") != "2.0":
        return _refused('"jsonrpc" must be "2.0"', *ids)
    if is_request and not jsonrpc.is_id(number):
        return _refused('"id" must be a string or an integer', *ids)
    if not isinstance(message.get("params"), dict | None):
        return _refused('"params" must be an object', *ids)
    return message


def _usual_answer(answer: jsonrpc.Message) -> jsonrpc.Message | Refused:
    """Return an answer in the usual form, so that a question of ours does not wait for another one."""
    if not jsonrpc.is_id(answer.get("id")):
        return _refused('an answer has no "id"')
    if isinstance(answer.get("result"), dict):
        return answer if answer.get("jsonrpc") == "2.0" else {**answer, "jsonrpc": "2.0"}
    error = {"code": jsonrpc.INVALID_REQUEST, "message": "the result is not an object"}
    if answer.get("error") is not None:
        error = jsonrpc.readable_error(answer["error"])
        if error is answer["error"] and answer.get("jsonrpc") == "2.0":
            return answer
    return {"jsonrpc": "2.0", "id": answer["id"], "error": error}


def _refused_batch(batch: list[Any]) -> Refused:
    messages = [jsonrpc.with_whole_id(each) for each in batch if isinstance(each, dict)]
    ids = [_id_to_show(each["id"]) for each in messages if "method" in each and "id" in each]
    expects_answer = bool(ids) or not messages or len(messages) < len(batch)
    why = "batches are not supported; send each message alone"
    return _refused(why, *(ids if 0 < len(ids) <= MAX_ANSWERS else [None] if expects_answer else []))


def _refused(why: str, *ids: Any) -> Refused:
    return Refused(jsonrpc.JsonRpcError(jsonrpc.INVALID_REQUEST, f"Invalid request: {why}"), ids)


def _id_to_show(number: Any) -> Any:
    """Return the id of a request for the error that answers it; None if it cannot be an id in JSON-RPC."""
    return number if jsonrpc.is_id(number) or (isinstance(number, float) and math.isfinite(number)) else None


# The parameters of a request


NOT_INITIALIZED: Final = "Invalid request parameters: this session is not initialized; send initialize first"


def invalid_params(error: ValidationError, params: Mapping[str, Any]) -> jsonrpc.JsonRpcError:
    """Return the error for params that the SDK's models refuse, with the names of the wrong ones."""
    problems: dict[str, str] = {}
    for each in error.errors(include_url=False, include_input=False):
        names = _names_in(params, each["loc"])
        what = _PROBLEMS.get(each["type"]) or _PROBLEMS.get(each["type"].partition("_")[0], "is not valid")
        if each["type"] == "literal_error":
            what = f"must be {each['ctx']['expected']}"
        # The models of a union give a problem each.
        before = problems.get(names)
        problems[names] = what if before in (None, what) else f"{before} or {what.removeprefix('must be ')}"
    shown = [f"{names} {what}" for names, what in problems.items()][:MAX_PROBLEMS]
    more = ["..."] if len(problems) > MAX_PROBLEMS else []
    return jsonrpc.JsonRpcError(jsonrpc.INVALID_PARAMS, f"Invalid request parameters: {'; '.join(shown + more)}")


_PROBLEMS: Final = {
    "missing": "is missing",
    "string": "must be a string",
    "int": "must be an integer",
    "float": "must be a number",
    "bool": "must be true or false",
    "model": "must be an object",
    "dict": "must be an object",
    "list": "must be a list",
    "extra_forbidden": "is not known",
}
"""Words for a problem, by the type of the error of pydantic, or by the first word of that type."""


def _names_in(params: Mapping[str, Any], location: tuple[int | str, ...]) -> str:
    """Return the place of a parameter in words, without the names of models."""
    names: list[str] = []
    value: Any = params
    for part in location[1:] if location[:1] == ("params",) else location:
        if isinstance(value, dict) and isinstance(part, str):
            if part not in value and part is not location[-1]:
                break
            names.append(f".{part[:MAX_NAME]}" if names else part[:MAX_NAME])
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            names.append(f"[{part}]")
            value = value[part]
        else:
            break
    return "".join(names) or "params"
