"""`Allow`, `Deny` or `Ask` for one tool, from the operator's rules. Pure.

Deny beats approved beats ask beats allow; without `allow` everything is allowed. Rules are indexed when they
are read, so that a decision costs the same for a thousand of them as for one.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.settings import PolicyContext, PolicyRules, ToolSettings


class Declared(Protocol):
    """Annotations of a tool, `None` where nothing was declared."""

    @property
    def read_only(self) -> bool | None: ...
    @property
    def destructive(self) -> bool | None: ...
    @property
    def idempotent(self) -> bool | None: ...
    @property
    def open_world(self) -> bool | None: ...


@dataclass(frozen=True, slots=True)
class Effects:
    """Annotations with MCP's defaults filled in: destructive and open world unless declared otherwise."""

    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool

    @staticmethod
    def of(declared: Declared | None) -> Effects:
        """`None` for a tool whose annotations are not trusted."""
        if declared is None:
            return Effects(read_only=False, destructive=True, idempotent=False, open_world=True)
        read_only = declared.read_only is True
        return Effects(
            read_only=read_only,
            destructive=not read_only and declared.destructive is not False,
            idempotent=read_only or declared.idempotent is True,
            open_world=declared.open_world is not False,
        )


@dataclass(frozen=True, slots=True)
class Allow:
    pass


@dataclass(frozen=True, slots=True)
class Deny:
    reason: str


@dataclass(frozen=True, slots=True)
class Ask:
    reason: str


Decision = Allow | Deny | Ask

SOURCES: Final = ("mcp:", "plugin:", "core:", "client:")
"""Beginnings of ids."""

TOOL_MARK: Final = "tools/call:"
"""Prefix, within an id, of the name of an MCP tool that is called like an operation: `mcp:s:tools/call:prompts/get`."""

MAX_REMEMBERED: Final = 32_768
"""Decisions that one policy remembers; more are made again."""

_NOTHING_DECLARED = Effects(read_only=False, destructive=False, idempotent=False, open_world=False)
_ANNOTATIONS = {
    "readOnly": "read_only",
    "destructive": "destructive",
    "idempotent": "idempotent",
    "openWorld": "open_world",
}
_POSSIBLE = (
    *(Effects(read_only=True, destructive=False, idempotent=True, open_world=world) for world in (True, False)),
    *(Effects(False, *each) for each in product((True, False), repeat=3)),
)
"""All that a tool can be taken to do."""

_GRAM = 3
"""Characters. A glob is looked at only for ids that hold so many of its characters in a row."""


class Rules:
    """A list of rules in which the first one that applies is found without a look at each."""

    def __init__(self, rules: Iterable[str]) -> None:
        self.rules = tuple(rules)
        self.annotations: list[tuple[int, str]] = []
        self.globs = tuple(rule for rule in self.rules if rule not in _ANNOTATIONS)
        self._exact: dict[str, int] = {}
        self._prefixes: dict[str, int] = {}
        self._by_gram: dict[str, list[tuple[int, re.Pattern[str]]]] = {}
        self._others: list[tuple[int, re.Pattern[str]]] = []
        floating: list[tuple[int, str]] = []
        for number, rule in enumerate(self.rules):
            if rule in _ANNOTATIONS:
                self.annotations.append((number, _ANNOTATIONS[rule]))
            elif "*" not in rule and "?" not in rule:
                self._exact.setdefault(rule, number)
            elif "?" not in rule and rule.index("*") == len(rule.rstrip("*")):
                self._prefixes.setdefault(rule.rstrip("*"), number)
            else:
                floating.append((number, rule))
        self._lengths = sorted({len(prefix) for prefix in self._prefixes})
        # Each by the part of it that the fewest others have.
        used = Counter(gram for _, rule in floating for gram in _grams_of(rule))
        for number, rule in floating:
            rarest = min(_grams_of(rule), key=lambda gram: (used[gram], gram), default=None)
            where = self._others if rarest is None else self._by_gram.setdefault(rarest, [])
            where.append((number, glob_pattern(rule)))

    def __bool__(self) -> bool:
        return bool(self.rules)

    def first(self, tool_id: str, tool: Effects) -> str | None:
        """Return the first rule that applies to a tool."""
        number = min(self._matching(tool_id, tool), default=None)
        return None if number is None else self.rules[number]

    def all(self, tool_id: str, tool: Effects) -> list[str]:
        """Return every rule that applies, but of equal ones, and of those that differ in asterisks at their ends,
        one."""
        return [self.rules[number] for number in sorted(self._matching(tool_id, tool))]

    def _matching(self, tool_id: str, tool: Effects) -> Iterator[int]:
        for number, attribute in self.annotations:
            if getattr(tool, attribute):
                yield number
        found = self._exact.get(tool_id)
        if found is not None:
            yield found
        for length in self._lengths:
            if length > len(tool_id):
                break
            found = self._prefixes.get(tool_id[:length])
            if found is not None:
                yield found
        for number, pattern in self._others:
            if pattern.fullmatch(tool_id):
                yield number
        if self._by_gram:
            for gram in self._by_gram.keys() & _grams(tool_id):
                for number, pattern in self._by_gram[gram]:
                    if pattern.fullmatch(tool_id):
                        yield number


class Policy:
    """The rules for one kind of caller, ready to decide by.

    Attributes:
        rules: what it was made from.
        by_annotations: whether what a server says of its tools makes a difference.
    """

    def __init__(self, rules: PolicyRules) -> None:
        self.rules = rules
        self._deny, self._ask, self._approved = Rules(rules.deny), Rules(rules.ask), Rules(rules.approved)
        self._allow = None if rules.allow is None else Rules(rules.allow)
        self._server_allow = {server: Rules(allowed) for server, allowed in rules.server_allow}
        self._naming = Rules(
            rule for rule in (*(rules.allow or ()), *rules.ask, *rules.approved) if rule and rule.strip("*")
        )
        every = (self._deny, self._ask, self._approved, self._allow or Rules(()), *self._server_allow.values())
        self.by_annotations = rules.read_only or any(each.annotations for each in every)
        # What was decided, and found out, already.
        self._decided: dict[tuple[str, Effects], Decision] = {}
        self._admissible: dict[str, bool] = {}

    def __repr__(self) -> str:
        rules = self.rules
        return f"<Policy: {len(rules.allow or ())} allow, {len(rules.deny)} deny, {len(rules.ask)} ask>"

    def trusts(self, source_name: str) -> bool:
        """Return True if what this server says of its tools is believed."""
        return source_name not in self.rules.distrusted_servers

    def effects(self, source_name: str, declared: Declared) -> Effects:
        """Return what a tool is taken to do; a server that is not trusted has declared nothing."""
        return Effects.of(declared if self.trusts(source_name) else None)

    def decide(self, tool_id: str, tool: Effects) -> Decision:
        """Return True if a call of `tool_id` may happen."""
        key = tool_id, tool
        found = self._decided.get(key)
        if found is None:
            if len(self._decided) >= MAX_REMEMBERED:
                self._decided.clear()
            found = self._decided[key] = self._decide(tool_id, tool)
        return found

    def _decide(self, tool_id: str, tool: Effects) -> Decision:
        if self.rules.read_only and not tool.read_only:
            return Deny("only read-only tools are allowed")
        rule = _first(self._deny, tool_id, tool)
        if rule is not None:
            return Deny(f"denied by the rule {rule!r}")
        if not self._server_lists(tool_id, tool):
            return Deny("not among the tools allowed of this server")
        if self._approved.first(tool_id, tool) is not None:
            return Allow()
        rule = _first(self._ask, tool_id, tool)
        if rule is not None:
            return Ask(f"asked for by the rule {rule!r}")
        if self._allow is not None and self._allow.first(tool_id, tool) is None:
            return Deny("not among the allowed tools")
        return Allow()

    def server_admits(self, tool_id: str, tool: Effects) -> bool:
        """Return True if what no list of rules can lift lets a tool pass: read-only, and the allow list of its
        server."""
        return (tool.read_only or not self.rules.read_only) and self._server_lists(tool_id, tool)

    def _server_lists(self, tool_id: str, tool: Effects) -> bool:
        allowed = self._server_allow.get(_server_of(tool_id))
        return allowed is None or allowed.first(tool_id, tool) is not None

    def names(self, tool_id: str) -> bool:
        """Return True if an operator's rule admits this very tool: more than a rule for everything."""
        return self._naming.first(tool_id, _NOTHING_DECLARED) is not None

    def may_admit(self, prefix: str) -> bool:
        """Return True if any tool whose id begins so may be called, or asked for, whatever it is called and declares.

        `prefix` is a source, like `core:`, or one of those with a name, like `mcp:github:`. Where rules overlap in a
        way that is hard to see through, the answer is True.
        """
        found = self._admissible.get(prefix)
        if found is None:
            found = self._admissible[prefix] = self._may_admit(prefix)
        return found

    def _may_admit(self, prefix: str) -> bool:
        name = _server_of(prefix)
        possible = [
            each
            for each in ((Effects.of(None),) if name and not self.trusts(name) else _POSSIBLE)
            if (each.read_only or not self.rules.read_only) and not _applies(self._deny, each)
        ]
        if not possible:
            return False
        below = prefix + "*"
        if self._is_denied(below):
            return False
        among: Iterable[str] = (below,)
        allowed = self._server_allow.get(name)
        if allowed is not None and not any(_applies(allowed, each) for each in possible):
            among = [glob for glob in allowed.globs if reaches(glob, prefix) and not self._is_denied(glob)]
        for admitting in (self._approved, self._ask, self._allow):
            if admitting is None or any(_applies(admitting, each) for each in possible):
                if any(True for _ in among):
                    return True
                continue
            for glob in admitting.globs:
                if (
                    reaches(glob, prefix)
                    and any(may_overlap(glob, other) for other in among)
                    and not self._is_denied(glob)
                ):
                    return True
        return False

    def _is_denied(self, glob: str) -> bool:
        """Return True if one rule denies everything that a glob matches."""
        return any(covers(rule, glob) for rule in self._deny.all(glob, _NOTHING_DECLARED))


class Policies:
    """Policies of all callers: the rules of `tools`, and those of its contexts."""

    def __init__(self, tools: ToolSettings) -> None:
        self.default = _compiled(tools.policy)
        """Policy of callers in no context."""
        made = {tools.policy: self.default}
        for context in tools.contexts:
            made.setdefault(context.rules, _compiled(context.rules))
        self._contexts = tuple((context, made[context.rules]) for context in tools.contexts)

    @property
    def all(self) -> tuple[Policy, ...]:
        """Each once, the default first."""
        return tuple(dict.fromkeys((self.default, *(policy for _, policy in self._contexts))))

    def of(self, caller: Caller) -> Policy:
        """Return the rules of the first context that the caller belongs to, else those for everybody."""
        if not self._contexts:
            return self.default
        return next((policy for context, policy in self._contexts if belongs(caller, context)), self.default)

    def context_of(self, caller: Caller) -> PolicyContext | None:
        """Return the context whose rules count for the caller; None: those of `tools` do."""
        return next((context for context, _ in self._contexts if belongs(caller, context)), None)


@lru_cache(maxsize=16)
def _compiled(rules: PolicyRules) -> Policy:
    """Several rooms decide by the same rules: they are made ready once."""
    return Policy(rules)


def belongs(caller: Caller, context: PolicyContext) -> bool:
    """Return True if a context is for this caller."""
    return any(_is(caller, described) for described in context.callers)


def _is(caller: Caller, described: str) -> bool:
    kind, _, name = described.partition(":")
    match kind:
        case "stdio":
            return caller.kind == "stdio" and (not name or _fits(name, caller.principal))
        case "principal":
            return caller.kind == "http" and _fits(name, caller.principal)
        case "group":
            return any(_fits(name, group) for group in caller.groups)
        case "anonymous":
            return caller.kind == "http" and caller.principal is None
    return False


def _fits(glob: str, name: str | None) -> bool:
    return name is not None and glob_pattern(glob).fullmatch(name) is not None


def restricting_ids(tool_id: str) -> tuple[str, ...]:
    """Return the ids by which rules of `deny` and `ask` reach a tool.

    A tool that is called like an operation is reached by the operation's id too: a rule that was written for the tool's
    plain name still restricts it. Rules of `allow` and `approved` reach it by its own id alone.
    """
    head, mark, name = tool_id.partition(TOOL_MARK)
    return (tool_id, head + name) if mark and head == f"mcp:{_server_of(tool_id)}:" else (tool_id,)


def _first(rules: Rules, tool_id: str, tool: Effects) -> str | None:
    """Return the first rule of `deny` or `ask` that applies."""
    found = (rules.first(each, tool) for each in restricting_ids(tool_id))
    return next((rule for rule in found if rule is not None), None)


def matches(rule: str, tool_id: str, tool: Effects) -> bool:
    """Return True if one rule, an annotation test or a glob on ids (`*` and `?`), applies to a tool."""
    if rule in _ANNOTATIONS:
        return bool(getattr(tool, _ANNOTATIONS[rule]))
    return glob_pattern(rule).fullmatch(tool_id) is not None


def covers(glob: str, other: str) -> bool:
    """Return True if a glob matches everything that another one does. False where that is hard to see."""
    # Read as a text, the other's asterisks have to fall to asterisks.
    return glob_pattern(glob, "[^*]").fullmatch(other) is not None


def _applies(rules: Rules, tool: Effects) -> bool:
    """Return True if an annotation test among the rules applies."""
    return any(getattr(tool, attribute) for _, attribute in rules.annotations)


def _server_of(tool_id: str) -> str:
    """Return the name in an id of an MCP tool; of other ids, and of bare sources, nothing."""
    source, _, rest = tool_id.partition(":")
    return rest.partition(":")[0] if source == "mcp" else ""


def reaches(glob: str, prefix: str) -> bool:
    """Return True if a glob matches any id that begins with `prefix`."""
    head, star, _ = glob.partition("*")
    return (bool(star) or len(head) >= len(prefix)) and _agree(head, prefix)


def may_overlap(one: str, other: str) -> bool:
    """Return True if two globs may match the same id, by how they begin and end."""
    heads, tails = [glob.partition("*")[0] for glob in (one, other)], [glob.rpartition("*")[2] for glob in (one, other)]
    if "*" not in one and "*" not in other and len(one) != len(other):
        return False
    return _agree(*heads) and _agree(tails[0][::-1], tails[1][::-1])


def _agree(one: str, other: str) -> bool:
    return all(a == b or "?" in (a, b) for a, b in zip(one, other, strict=False))


@lru_cache(maxsize=16)  # of one id for list after list
def _grams(text: str) -> frozenset[str]:
    return frozenset(text[start : start + _GRAM] for start in range(len(text) - _GRAM + 1))


def _grams_of(rule: str) -> set[str]:
    return {gram for part in re.split(r"[*?]", rule) for gram in _grams(part)}


@lru_cache(maxsize=8192)
def glob_pattern(rule: str, one: str = ".") -> re.Pattern[str]:
    # Not fnmatch: a tool's name may hold brackets, and case matters on every system. Each part is looked for once, at
    # its first place, which is enough for globs: no name that a server chooses makes this slow.
    first, *parts = ("".join(one if c == "?" else re.escape(c) for c in part) for part in rule.split("*"))
    if not parts:
        return re.compile(first, re.DOTALL)
    *middle, last = parts
    between = "".join(f"(?>.*?{part})" for part in middle if part)
    return re.compile(f"{first}{between}.*{last}", re.DOTALL)
