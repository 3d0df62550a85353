"""The sections `tools`, `expose` and `clients`, and the contexts and budgets of callers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.base.settings import (
    UI_TOOLS,
    ApprovalSettings,
    BudgetSettings,
    CodeModeSettings,
    DuplicateSettings,
    ExposeSettings,
    PolicyContext,
    PolicyRules,
    Profile,
    ProfileOverride,
    ToolSettings,
    ranges,
)
from codemode_mcp.config import nodes

if TYPE_CHECKING:
    from codemode_mcp.config.expand import Expander


def read_tools(node: nodes.Node, expander: Expander) -> ToolSettings:
    readers = nodes.readers_of(
        ToolSettings,
        code_mode=_code_mode,
        contexts=lambda node: node,  # read below, because contexts begin with the rules of `tools`
        duplicates=lambda node: nodes.section(node, DuplicateSettings),
        budgets=read_budgets,
        approval=lambda node: nodes.section(node, ApprovalSettings, notify=_command_line),
        esbuild=expander.unexpanded_path,
    )
    given = node.settings({**readers, **nodes.RULES})
    policy = PolicyRules(**{key: given.pop(key) for key in nodes.RULES if key in given})
    if "contexts" in given:
        given["contexts"] = read_contexts(given["contexts"], policy)
    return ToolSettings(policy=policy, **given)


def _check(node: nodes.Node) -> str | None:
    """Read `check`, and say what to write instead of a value of the past."""
    if node.value != "refuse":
        return node.choice("off", "note")
    node.fail('"refuse" is not available; use "note", and codemode-mcp run --check to fail on type errors')
    return None


def _code_mode(node: nodes.Node) -> CodeModeSettings:
    """Read `tools.codeMode`: an object, or a boolean for its `enabled`."""
    if isinstance(node.value, bool):
        return CodeModeSettings(enabled=node.value)
    if not isinstance(node.value, dict):
        node.fail_type("an object, true or false")
        return CodeModeSettings()
    settings = nodes.section(node, CodeModeSettings, languages=_languages, check=_check)
    if settings.timeout_ms > settings.max_request_ms:
        node.note(f"timeoutMs is larger than maxRequestMs; {settings.max_request_ms} is used")
        settings = replace(settings, timeout_ms=settings.max_request_ms)
    if settings.search_default_limit > settings.max_search_limit:
        node.note(f"searchDefaultLimit is larger than maxSearchLimit; {settings.max_search_limit} is used")
        settings = replace(settings, search_default_limit=settings.max_search_limit)
    return settings


def _languages(node: nodes.Node) -> tuple[str | None, ...]:
    languages = tuple(dict.fromkeys(nodes.array_of(nodes.one_of("javascript", "typescript"))(node)))
    if not languages and node.valid:
        node.fail('must not be empty; allowed: "javascript", "typescript"')
    return languages


def _command_line(node: nodes.Node) -> tuple[str, ...]:
    words = list(node.items())
    if not words and node.valid:
        node.fail("must not be empty; the first string is the program to run")
    return tuple(word.text() if number else word.nonblank() for number, word in enumerate(words))


# `tools.contexts` and `tools.budgets`: rules and budgets for some callers. A mistake makes the file invalid.


_KINDS = ("stdio", "principal", "group", "anonymous")
_ALLOWED = 'allowed: "stdio", "stdio:<login name>", "principal:<name>", "group:<name>" and "anonymous"'


def read_contexts(node: nodes.Node, base: PolicyRules) -> tuple[PolicyContext, ...]:
    """Return the contexts in the order of the file. Rules that a context does not set are those of `tools`."""
    if node.value is None:
        return ()
    return tuple(_context(name, entry, base) for name, entry in node.entries().items())


def read_budgets(node: nodes.Node) -> tuple[BudgetSettings, ...]:
    """Return the budgets in the order of the file."""
    if node.value is None:
        return ()
    return tuple(_budget(name, entry) for name, entry in node.entries('{"hourly": {"calls": 1000}}').items())


def _budget(name: str, node: nodes.Node) -> BudgetSettings:
    if not name.strip() or not name.isprintable():
        node.fail("the name of a budget must not be blank or have control characters")
    given = node.settings(nodes.readers_of(BudgetSettings, server=nodes.Node.nonblank, callers=nodes.array_of(_caller)))
    if isinstance(node.value, dict) and not given.keys() & {"calls", "bytes", "running_ms"}:
        node.fail("needs at least one of `calls`, `bytes` and `runningMs`")
    return BudgetSettings(name, callers=given.pop("for", ()), **given)


def _context(name: str, node: nodes.Node, base: PolicyRules) -> PolicyContext:
    if not name.strip() or not name.isprintable():
        node.fail("the name of a context must not be blank or have control characters")
    readers = nodes.readers_of(PolicyContext, callers=nodes.array_of(_caller), expose=read_expose)
    own = node.settings({**readers, **nodes.RULES, "readOnly": nodes.Node.flag})
    if "for" not in own and isinstance(node.value, dict):
        node.fail(f"needs `for`, the callers that get these rules; {_ALLOWED}; [] if only `serve --context` chooses it")
    callers, read_only = own.pop("for", ()), own.pop("read_only", False)
    expose = own.pop("expose", ExposeSettings())
    rules: dict[str, Any] = {key: getattr(base, key) for key in nodes.RULES} | own
    rules["deny"] = (*base.deny, *own.get("deny", ()))
    return PolicyContext(name, callers, PolicyRules(**rules, read_only=read_only), frozenset(own), expose)


def _caller(node: nodes.Node) -> str:
    """Return a kind of caller. Some kinds are followed by a name or a glob on names, as in `principal:ann`."""
    caller = node.nonblank()
    if not node.valid:
        return caller
    kind, colon, name = caller.partition(":")
    if kind not in _KINDS:
        node.fail(f"{nodes.quote(caller)} is not a kind of caller{nodes.did_you_mean(kind, _KINDS)}; {_ALLOWED}")
    elif kind == "anonymous" and colon:
        node.fail('"anonymous" takes no name: it is every caller over HTTP without credentials')
    elif kind in ("principal", "group") and not name.strip():
        node.fail(f'needs a name: "{kind}:<name>"')
    elif kind == "stdio" and colon and not name.strip():
        node.fail('needs a name after the colon, or no colon: "stdio" is the user who started this server')
    return caller


# `expose`: what clients see directly, in the file, in contexts, in profiles of clients and in server entries.


def _pattern(node: nodes.Node) -> str:
    return UI_TOOLS if node.value == UI_TOOLS else nodes.id_pattern(node)


def read_expose(node: nodes.Node) -> ExposeSettings:
    return nodes.section(node, ExposeSettings, direct=nodes.array_of(_pattern))


def read_server_expose(node: nodes.Node) -> ExposeSettings:
    """Read `expose` of a server entry: whether its prompts and resources are listed."""
    items = {"prompts": nodes.Node.flag, "resources": nodes.Node.flag}
    return ExposeSettings() if node.value is None else ExposeSettings(**node.settings(items))


def _limit(node: nodes.Node) -> int | None:
    """Return a number of bytes. Null removes the limit of a profile."""
    return None if node.value is None else node.clamped(ranges(Profile)["maxOutputBytes"], "an integer or null")


def read_clients(node: nodes.Node) -> tuple[ProfileOverride, ...]:
    """Return the entries in the order of the file. The first entry that matches a client is used."""
    if node.value is None:
        return ()
    return tuple(_override(glob, entry) for glob, entry in node.entries().items())


def _override(glob: str, node: nodes.Node) -> ProfileOverride:
    if not glob.strip() or not glob.isprintable():
        node.fail("the key must be the name of a client, or a glob such as claude-*; codemode-mcp clients lists names")
    given = node.settings(
        {
            **nodes.readers_of(Profile, max_output_bytes=_limit, adds_arguments=nodes.array_of(nodes.Node.nonblank)),
            "expose": read_expose,
        }
    )
    expose = given.pop("expose", ExposeSettings())
    return ProfileOverride(glob, tuple(given.items()), expose)
