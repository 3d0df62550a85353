"""The answers of the instance to terminals, gathered from its applications."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from codemode_mcp.control import protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from codemode_mcp.control.answers import Control


class Reports:
    """The answers to requests on the control socket, as `control.server.Answering`.

    Args:
        facts: returns facts about the instance, as JSON.
        leave: ends the instance, for a reason.
    """

    def __init__(self, facts: Callable[[], Awaitable[dict[str, Any]]], leave: Callable[[str], None]) -> None:
        self._facts = facts
        self._leave = leave
        self._controls: list[Control] = []

    @asynccontextmanager
    async def listen(self, control: Control) -> AsyncIterator[None]:
        """Let terminals reach one application for the duration of the context."""
        self._controls.append(control)
        try:
            yield
        finally:
            self._controls.remove(control)

    async def answer(self, line: bytes) -> dict[str, Any]:
        """Return the answer to a request. Raise nothing."""
        try:
            request = protocol.decode_request(line)
        except protocol.BadMessage as error:
            return {"ok": False, "error": str(error)}
        match request.operation:
            case "instance":
                return {"ok": True, "instance": await self._facts()}
            case "stop":
                self._leave("a terminal has stopped it")
                return {"ok": True}
            case "ui":
                return {"ok": False, "error": "the shared instance opens its page for codemode-mcp ui, which attaches"}
            case "list":
                return await self._merged(line, "runs")
            case "clients":
                return await self._merged(line, "clients")
        # The application that has the run is asked first. Any of them can answer for runs in the store.
        for control in sorted(self._controls, key=lambda each: not each.has(request.run)):
            return await control.answer(line)
        return _NO_APPS

    async def _merged(self, line: bytes, key: str) -> dict[str, Any]:
        """Return one answer with the items of all applications."""
        answers = [await control.answer(line) for control in [*self._controls]]
        merged: dict[str, Any] | None = None
        for answer in answers:
            if not answer.get("ok"):
                return answer
            if merged is None:
                merged = answer
                continue
            # A run of the store is reported by every application; the one that has it comes first.
            known = {each.get("id"): each for each in merged[key] if "id" in each}
            for each in answer[key]:
                other = known.get(each.get("id"))
                if other is None:
                    merged[key].append(each)
                elif each.get("where") == "here":
                    merged[key][merged[key].index(other)] = each
        return {"ok": True, "server": None, key: []} if merged is None else merged


_NO_APPS = {"ok": False, "error": "the shared instance has no clients yet"}
