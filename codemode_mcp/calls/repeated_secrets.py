"""Secret values of overrides that a server repeats: they are replaced in all that it sends for a call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.catalog.entries import mcp_id
from upstream_clients import redaction

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.tool_override import ToolOverride
    from upstream_clients.tools import AskFn, JsonObject, ProgressFn, Question, ToolOutcome


class RepeatedSecrets:
    """The secret values that overrides set for any tool of one server.

    The server may remember a value, and repeat it when another one of its tools is called.
    """

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._secrets = redaction.secrets_of(texts)

    def hide(self, value: Any) -> Any:
        """Return JSON data with `***` for each secret value."""
        return self._secrets.hide_in(value)

    def hide_in_outcome(self, outcome: ToolOutcome) -> ToolOutcome:
        """Return the end of a call with `***` for each secret value in its result and its notes."""
        result = self._secrets.hide_in(outcome.result, outcome.text)
        text = outcome.text if result is outcome.result else None
        return replace(outcome, result=result, notes=tuple(map(self.hide, outcome.notes)), text=text)

    def hide_in_progress(self, on_progress: ProgressFn) -> ProgressFn:
        """Return a function that passes on progress with `***` for each secret value in its message."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            await on_progress(progress, total, self.hide(message))

        return report

    def hide_in_questions(self, ask: AskFn) -> AskFn:
        """Return a function that passes on questions with `***` for each secret value."""

        def ask_without(question: Question) -> Any:
            params: JsonObject = self.hide(question.params)
            return ask(replace(question, params=params))

        return ask_without


def secrets_of(server: str, overrides: Mapping[str, ToolOverride]) -> RepeatedSecrets | None:
    """Return the secret values for a server; None if there are none. `overrides`: by the id of the tool."""
    prefix = mcp_id(server, "")
    texts = {text for each, override in overrides.items() if each.startswith(prefix) for text in override.secret_texts}
    return RepeatedSecrets(tuple(sorted(texts, key=len, reverse=True))) if texts else None
