"""The key `override` of a server entry: changes to what programs see of the server's tools."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.catalog.entries import mcp_id
from codemode_mcp.config.nodes import Node, array_of, quote, text_that
from codemode_mcp.did_you_mean import normalize_name
from codemode_mcp.tool_override import ToolOverride, leaves_of, texts_in
from upstream_clients.secret_values import is_named_secret
from upstream_clients.tools import Annotations

if TYPE_CHECKING:
    from collections.abc import Callable

    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.secret_values import SecretValues

    SetArgument = Callable[[str, Literal["fixed", "default"], str, str], None]
    """A function that takes the id of a tool, `fixed` or `default`, the name of an argument, and its value."""

_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""A name of a tool (MCP 2025-11-25, server/tools)."""

_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")

_EXAMPLE = '{"create_issue": {"arguments": {"fixed": {"owner": "acme"}}}}'


def read_overrides(
    node: Node, server: str, expander: Expander, secrets: SecretValues, set_argument: SetArgument
) -> dict[str, ToolOverride]:
    """Return the overrides of a server, by the id of the tool.

    Args:
        expander: the expander of the entry. Secret values are added to its `used`.
        set_argument: called by `secrets` with each value that is known only later.
    """
    node = replace(node, secret=False)
    overrides: dict[str, ToolOverride] = {}
    renamed: dict[str, str] = {}
    members = node.entries(_EXAMPLE)
    for tool, item in members.items():
        if not tool.strip():
            item.fail("needs the name of a tool")
        tool_id = mcp_id(server, tool)
        override = _Reader(item, expander, secrets, partial(set_argument, tool_id)).override()
        overrides[tool_id] = override
        if override.name is not None:
            first = renamed.setdefault(normalize_name(override.name) or override.name, tool)
            if first != tool:
                item.fail(f"gives the tool the same name as the override of {quote(first)}; choose another `name`")
    unnamed = {normalize_name(tool): tool for tool in members if overrides[mcp_id(server, tool)].name is None}
    for spelling, tool in renamed.items():
        if spelling in unnamed:
            other = quote(unnamed[spelling])
            members[tool].fail(f"gives the tool the name of the tool {other}; choose another `name`")
    return overrides


class _Reader:
    """The reader of the override of one tool."""

    def __init__(
        self,
        node: Node,
        expander: Expander,
        secrets: SecretValues,
        set_argument: Callable[[Literal["fixed", "default"], str, str], None],
    ) -> None:
        self._node = node
        self._expander = expander
        self._secrets = secrets
        self._set_argument = set_argument
        self._secret: set[str] = set()

    def override(self) -> ToolOverride:
        """Return the override. Report problems."""
        given = self._node.settings(
            {
                "name": text_that(_NAME.fullmatch, "expected 1 to 128 letters, digits, `_`, `-`, `.` and `/`"),
                "title": Node.nonblank,
                "description": Node.text,
                "annotations": _annotations,
                "arguments": self._arguments,
            }
        )
        arguments = given.pop("arguments", {})
        return ToolOverride(**given, **arguments)

    def _arguments(self, node: Node) -> dict[str, Any]:
        given = node.settings(
            {
                "fixed": partial(self._values, "fixed"),
                "default": partial(self._values, "default"),
                "hidden": array_of(Node.nonblank),
            }
        )
        places: dict[str, str] = {}
        for place, names in given.items():
            for name in names:
                if name in places:
                    node.fail(
                        f"the argument {quote(name)} is in `{places[name]}` and in `{place}`; keep it in one of them. "
                        "An argument in `fixed` is hidden too"
                    )
                places.setdefault(name, place)
        return {**given, "secret": frozenset(self._secret)}

    def _take(self, table: Literal["fixed", "default"], name: str, _: Node, text: str) -> None:
        self._set_argument(table, name, text)

    def _values(self, table: Literal["fixed", "default"], node: Node) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, item in replace(node, secret=True).entries().items():
            if isinstance(item.value, dict) and len(item.value) == 1 and item.value.keys() & {"command", "keyring"}:
                self._secret.add(name)
                values[name] = ""  # until `set_argument` is called
                self._secrets.read(item, self._expander, partial(self._take, table, name))
                continue
            before = len(self._expander.used)
            values[name] = value = self._expander.value(item)
            texts = list(texts_in(value))
            if not all(map(_is_finite, leaves_of(value))):
                item.fail("NaN and Infinity are not JSON")
            if len(self._expander.used) > before or any(
                is_named_secret(name, text) or without_tokens(text) != text for text in texts
            ):
                self._secret.add(name)
                self._expander.used.extend(texts)
        return values


def _annotations(node: Node) -> Annotations:
    given = node.settings(dict.fromkeys(_HINTS, Node.flag))
    values = {key.removesuffix("_hint"): value for key, value in given.items()}
    if values.get("read_only") and values.get("destructive"):
        node.fail("`readOnlyHint` and `destructiveHint` contradict each other; keep one")
    return Annotations(**values)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
