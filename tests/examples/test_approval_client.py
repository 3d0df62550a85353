"""The client of `examples/approval` that cannot ask: it says once what a person has to approve."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

CLIENT = Path(__file__).parents[2] / "examples" / "approval" / "client.py"


def answer(status: str, text: str) -> Any:
    return SimpleNamespace(content=[SimpleNamespace(text=text)], structured_content={"status": status, "runId": "r"})


class Server:
    """A client object whose tools answer from a list."""

    def __init__(self, *_: object, **__: object) -> None:
        self._answers = [answer("waiting", f"please approve, {n} s") for n in range(5)] + [answer("completed", "done")]

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Any:
        return self._answers.pop(0)


def test_a_program_that_waits_for_a_person_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = importlib.util.spec_from_file_location("approval_client", CLIENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "Client", Server)
    anyio.run(module.main, True)
    assert capsys.readouterr().out.splitlines() == ["please approve, 0 s", "done"]
