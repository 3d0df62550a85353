"""The base of upstream servers of bare JSON lines, which start in 30 ms. With the SDK it takes a second."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

Answers = dict[str | None, Callable[[dict[str, Any], Any], dict[str, Any] | None] | None]

before = b""
"""Bytes in front of each message."""


class Refused(Exception):
    """The error that answers a request: its code, and its message."""


def send(**message: object) -> None:
    sys.stdout.buffer.write(before + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    sys.stdout.buffer.flush()


def text(said: str, **more: Any) -> dict[str, Any]:
    """Return the result of a tool."""
    return {"content": [{"type": "text", "text": said}], **more}


def progress(params: dict[str, Any], step: float, message: str, **more: object) -> None:
    """Report the progress of a call with these parameters, if the client asks for it."""
    token = (params.get("_meta") or {}).get("progressToken")
    if token is not None:
        told = {"progressToken": token, "progress": step, "message": message, **more}
        send(method="notifications/progress", params=told)


def note(path: Any, line: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(line + "\n")


def serve(name: str, answers: Answers, *, capabilities: object = None, version: str = "2025-06-18") -> None:
    """Answer messages until the input ends.

    Args:
        answers: by its method, the function that gets the parameters and the id of a message. It returns the result,
            or None if the answer comes later or never. The function for None gets whole responses. None in place of a
            function stands for a method that the server does not know.
    """
    about = {"capabilities": capabilities or {"tools": {}}, "serverInfo": {"name": name, "version": "1"}}
    known: Answers = {"initialize": lambda *_: {"protocolVersion": version, **about}, **answers}
    for line in sys.stdin:
        message = json.loads(line)
        method, request = message.get("method"), message.get("id")
        answer = known.get(method)
        try:
            if answer is None:
                raise Refused(-32601, "Method not found")
            result = answer(message if method is None else message.get("params") or {}, request)
        except Refused as error:
            if request is not None:
                send(id=request, error=dict(zip(("code", "message"), error.args, strict=True)))
            continue
        if result is not None and request is not None:
            send(id=request, result=result)
