"""The answers of the instance to terminals, gathered from its applications."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from codemode_mcp.control import protocol
from codemode_mcp.control.servers import holders, merged_servers

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
            case "servers":
                return await self._merged_servers(line)
            case "logs" | "restart":
                return await self._of_server(line, request.server)
        # The application that has the run is asked first. Any of them can answer for runs in the store.
        for control in sorted(self._controls, key=lambda each: not each.has(request.run)):
            return await control.answer(line)
        return _NO_APPS

    async def _merged_servers(self, line: bytes) -> dict[str, Any]:
        """Return one answer with the servers of all applications."""
        answers = [await control.answer(line) for control in [*self._controls]]
        for answer in answers:
            if not answer.get("ok"):
                return answer
        servers = merged_servers(answer["servers"] for answer in answers)
        return {"ok": True, "server": answers[0]["server"] if answers else None, "servers": servers}

    async def _of_server(self, line: bytes, server: str) -> dict[str, Any]:
        """Have a request about one server answered by every application that has a server of this name.

        There are several only if they define it differently. The answer about the first one is returned.
        """
        answers = [await control.answer(line) for control in holders(self._controls, server)]
        if not answers and self._controls:
            return await self._controls[0].answer(line)  # the reason
        return answers[0] if answers else _NO_APPS

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
