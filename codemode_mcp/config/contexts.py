"""`tools.contexts` and `tools.budgets`: rules and budgets for some callers. A mistake makes the file invalid."""

from __future__ import annotations

from typing import Any

from codemode_mcp.config.expose import read_expose
from codemode_mcp.config.nodes import Node, array_of, clamps, did_you_mean, quote
from codemode_mcp.config.patterns import RULES
from codemode_mcp.settings import BUDGET_CLAMPS, BudgetSettings, ExposeSettings, PolicyContext, PolicyRules

_KINDS = ("stdio", "principal", "group", "anonymous")
_ALLOWED = 'allowed: "stdio", "stdio:<login name>", "principal:<name>", "group:<name>" and "anonymous"'


def read_contexts(node: Node, base: PolicyRules) -> tuple[PolicyContext, ...]:
    """Return the contexts in the order of the file. Rules that a context does not set are those of `tools`."""
    if node.value is None:
        return ()
    return tuple(_context(name, entry, base) for name, entry in node.entries().items())


def read_budgets(node: Node) -> tuple[BudgetSettings, ...]:
    """Return the budgets in the order of the file."""
    if node.value is None:
        return ()
    return tuple(_budget(name, entry) for name, entry in node.entries('{"hourly": {"calls": 1000}}').items())


def _budget(name: str, node: Node) -> BudgetSettings:
    if not name.strip() or not name.isprintable():
        node.fail("the name of a budget must not be blank or have control characters")
    given = node.settings({"server": Node.nonblank, "for": array_of(_caller), **clamps(BUDGET_CLAMPS)})
    if isinstance(node.value, dict) and not given.keys() & {"calls", "bytes", "running_ms"}:
        node.fail("needs at least one of `calls`, `bytes` and `runningMs`")
    return BudgetSettings(name, callers=given.pop("for", ()), **given)


def _context(name: str, node: Node, base: PolicyRules) -> PolicyContext:
    if not name.strip() or not name.isprintable():
        node.fail("the name of a context must not be blank or have control characters")
    own = node.settings({"for": array_of(_caller), **RULES, "readOnly": Node.flag, "expose": read_expose})
    if "for" not in own and isinstance(node.value, dict):
        node.fail(f"needs `for`, the callers that get these rules; {_ALLOWED}; [] if only `serve --context` chooses it")
    callers, read_only = own.pop("for", ()), own.pop("read_only", False)
    expose = own.pop("expose", ExposeSettings())
    rules: dict[str, Any] = {key: getattr(base, key) for key in RULES} | own
    rules["deny"] = (*base.deny, *own.get("deny", ()))
    return PolicyContext(name, callers, PolicyRules(**rules, read_only=read_only), frozenset(own), expose)


def _caller(node: Node) -> str:
    """Return a kind of caller. Some kinds are followed by a name or a glob on names, as in `principal:ann`."""
    caller = node.nonblank()
    if not node.valid:
        return caller
    kind, colon, name = caller.partition(":")
    if kind not in _KINDS:
        node.fail(f"{quote(caller)} is not a kind of caller{did_you_mean(kind, _KINDS)}; {_ALLOWED}")
    elif kind == "anonymous" and colon:
        node.fail('"anonymous" takes no name: it is every caller over HTTP without credentials')
    elif kind in ("principal", "group") and not name.strip():
        node.fail(f'needs a name: "{kind}:<name>"')
    elif kind == "stdio" and colon and not name.strip():
        node.fail('needs a name after the colon, or no colon: "stdio" is the user who started this server')
    return caller
