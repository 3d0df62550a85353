"""The section `tools`: code mode, rules, duplicate calls, budgets and approval."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from codemode_mcp.config.contexts import read_budgets, read_contexts
from codemode_mcp.config.nodes import Node, array_of, clamps, one_of
from codemode_mcp.config.patterns import RULES
from codemode_mcp.settings import (
    CLAMPS,
    DUPLICATE_CLAMPS,
    ApprovalSettings,
    CodeModeSettings,
    DuplicateSettings,
    PolicyRules,
    ToolSettings,
)

if TYPE_CHECKING:
    from codemode_mcp.config.expand import Expander


def read_tools(node: Node, expander: Expander) -> ToolSettings:
    """Read the section."""
    given = node.settings(
        {
            "codeMode": _code_mode,
            **RULES,
            "contexts": lambda node: node,  # read below, because contexts begin with the rules of `tools`
            "resultFormat": one_of("markdown", "plain"),
            "duplicates": _duplicates,
            "budgets": read_budgets,
            "approval": _approval,
            "esbuild": expander.unexpanded_path,
        }
    )
    policy = PolicyRules(**{key: given.pop(key) for key in RULES if key in given})
    if "contexts" in given:
        given["contexts"] = read_contexts(given["contexts"], policy)
    return ToolSettings(policy=policy, **given)


def _check(node: Node) -> str | None:
    """Read `check`, and say what to write instead of a value of the past."""
    if node.value != "refuse":
        return node.choice("off", "note")
    node.fail('"refuse" is not available; use "note", and codemode-mcp run --check to fail on type errors')
    return None


def _code_mode(node: Node) -> CodeModeSettings:
    """Read `tools.codeMode`: an object, or a boolean for its `enabled`."""
    if isinstance(node.value, bool):
        return CodeModeSettings(enabled=node.value)
    if not isinstance(node.value, dict):
        node.fail_type("an object, true or false")
        return CodeModeSettings()
    given = node.settings(
        {
            "enabled": Node.flag,
            "runtime": one_of("quickjs-wasi"),
            "mode": one_of("only"),
            "languages": _languages,
            **clamps(CLAMPS),
            "check": _check,
            "onOutputLimit": one_of("offload", "fail"),
            "savePrograms": Node.flag,
            "telemetry": one_of("meta", "result", "off"),
        }
    )
    # `runtime` and `mode` each have one possible value, so the settings do not need them.
    settings = CodeModeSettings(**{key: value for key, value in given.items() if key not in ("runtime", "mode")})
    if settings.timeout_ms > settings.max_request_ms:
        node.note(f"timeoutMs is larger than maxRequestMs; {settings.max_request_ms} is used")
        settings = replace(settings, timeout_ms=settings.max_request_ms)
    if settings.search_default_limit > settings.max_search_limit:
        node.note(f"searchDefaultLimit is larger than maxSearchLimit; {settings.max_search_limit} is used")
        settings = replace(settings, search_default_limit=settings.max_search_limit)
    return settings


def _languages(node: Node) -> tuple[str | None, ...]:
    languages = tuple(dict.fromkeys(array_of(one_of("javascript", "typescript"))(node)))
    if not languages and node.valid:
        node.fail('must not be empty; allowed: "javascript", "typescript"')
    return languages


def _duplicates(node: Node) -> DuplicateSettings:
    if node.value is None:
        return DuplicateSettings()
    numbers = clamps(DUPLICATE_CLAMPS)
    actions = one_of("warn", "deny", "off")
    return DuplicateSettings(**node.settings({"max": numbers["max"], "action": actions, **numbers}))


def _approval(node: Node) -> ApprovalSettings:
    if node.value is None:
        return ApprovalSettings()
    return ApprovalSettings(**node.settings({"via": one_of("client", "terminal", "auto"), "notify": _command_line}))


def _command_line(node: Node) -> tuple[str, ...]:
    """Read a program and its arguments."""
    words = list(node.items())
    if not words and node.valid:
        node.fail("must not be empty; the first string is the program to run")
    return tuple(word.text() if number else word.nonblank() for number, word in enumerate(words))
