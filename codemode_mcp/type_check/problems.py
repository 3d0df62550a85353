"""Type errors of a program, from the compiler's diagnostics: which of them are certain, and in which words. Pure.

TypeScript also reports much that runs: a variable that takes another type later, an object that grows, a field that the
program only tests for. Such an error is never certain. Only certain errors may refuse a program. They are about a call
of the catalog or about a value that it has returned:

* a member of an object of the catalog that does not exist, and that the program neither tests for nor sets itself;
* an argument of a call that no value of its type can satisfy. A `string` where one of some literals is expected may be
  right, a `number` may not. What the schema accepts beyond its type is not certain either, such as an undeclared
  argument of an open schema, unless its name is a misspelt one, with which the call would be refused;
* a promise that is used as if it were its value, or is ignored.

In doubt, an error is not certain. The texts of messages are part of the pinned version.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from codemode_mcp.did_you_mean import misspells
from codemode_mcp.program.syntax import span_of
from codemode_mcp.type_check.assignability import PRIMITIVES, base_of, is_no_object, never_fits
from codemode_mcp.type_check.phrases import clipped, quoted_names, short_source, suggested
from codemode_mcp.type_check.type_text import (
    MAX_MEMBERS,
    NamedTypes,
    are_literals,
    content_of_result,
    is_literal,
    is_promise,
    union_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from tree_sitter import Node

    from codemode_mcp.type_check.declared import Leeway
    from codemode_mcp.type_check.diagnostics import Diagnostic
    from codemode_mcp.type_check.program_tree import Callback, ProgramTree

Kind = Literal["await", "member", "argument", "result", "other"]

_ACCESS: Final = frozenset((2339, 2551))
_ITERATION: Final = frozenset((2461, 2488, 2495, 2504, 2548, 2549))
_ARGUMENTS: Final = frozenset((2322, 2345, 2353, 2554, 2555, 2559, 2561, 2739, 2740, 2741, 2769, 2820))
_CALLED: Final = 2349
_COMPARED: Final = frozenset((2367, 2678))
_AWAIT_HINT: Final = 2773
_REPORTED: Final = _ACCESS | _ITERATION | _ARGUMENTS | _COMPARED | {_CALLED}

_NO_MEMBER: Final = re.compile(r"Property '(.+?)' does not exist on type '(.*?)'\.(?: Did you mean '(.+?)'\?)?")
_UNKNOWN: Final = re.compile(
    r"Object literal may only specify known properties, (?:and|but) '(.+?)' does not exist in type '(.*?)'\."
    r"(?: Did you mean to write '(.+?)'\?)?"
)
_MISMATCH: Final = re.compile(
    r"(?:Type|Argument of type) '(.*?)' is not assignable to (?:type|parameter of type) '(.*?)'\."
    r"(?: Did you mean '(.+?)'\?)?"
)
_MISSING: Final = re.compile(r"Property '(.+?)' is missing in type '(.*?)' but required in type '(.*)'\.")
_MISSING_MANY: Final = re.compile(
    r"Type '(.*?)' is missing the following properties from type '(.*?)': (.*?)(?:, and \d+ more\.)?"
)
_NOT_ITERABLE: Final = re.compile(r"Type '(.*?)' (?:must have|is not an array)")
_NO_OVERLAP: Final = re.compile(
    r".*because the types '(.*?)' and '(.*?)' have no overlap\.|Type '(.*?)' is not comparable to type '(.*?)'\."
)
_UNCERTAIN: Final = re.compile(r"Property '.+?' is optional in type |.* is 'readonly' and cannot be assigned ")
"""Reasons of mismatches that may run: the value is usually there, and what is sent is not changed."""
_INTEGERS: Final = frozenset(("int", "bigint"))
_NO_SIGNATURE: Final = re.compile(r"Type '(.*?)' has no call signatures\.")
_COUNT: Final = re.compile(r"Expected (.+) arguments?, but got (\d+)\.")


@dataclass(frozen=True, slots=True)
class TypeProblem:
    """One type error of a program.

    Attributes:
        at: its offset in the checked body.
        text: a sentence without a full stop.
        certain: True if the program cannot be right. Only such an error may refuse it.
        call: the function of the catalog that is called wrongly, such as `MCP.github.createIssue`.
    """

    at: int
    kind: Kind
    text: str
    certain: bool
    call: str | None = None

    @property
    def rank(self) -> tuple[int, int]:
        """The order of errors, the worst first."""
        return (_RANKS[self.kind] if self.certain else len(_RANKS)), self.at


_RANKS: Final[dict[Kind, int]] = {"await": 0, "member": 1, "argument": 2, "result": 3, "other": 4}


_MAX_TEXT: Final = 50_000
"""Maximum length of a message that is judged. The types in longer messages are far longer than a reader can use."""


def is_candidate(diagnostic: Diagnostic) -> bool:
    """Return True if a diagnostic may be about the catalog."""
    return diagnostic.code in _REPORTED and len(diagnostic.text) <= _MAX_TEXT


@dataclass(frozen=True)
class Judge:
    """Facts with which diagnostics are judged.

    Attributes:
        opened, untyped: the offsets and codes of the diagnostics in these variants of the declarations.
        members: the names after `MCP.<server>.`, by server.
        literals: all string literals of the declarations.
        types: the named types of the declarations.
        function_of: returns the function of the catalog that a call calls; None for other functions.
        leeway: returns what the schema of a function accepts beyond its type.
    """

    tree: ProgramTree
    opened: Collection[tuple[int, int]]
    untyped: Collection[tuple[int, int]]
    members: Mapping[str, Collection[str] | None]
    literals: Collection[str]
    types: NamedTypes
    function_of: Callable[[Node], str | None]
    leeway: Callable[[str], Leeway]
    retyped: set[str] = field(default_factory=set)
    """The variables that get a value of another type later. Their types are those of their first values only."""

    def problems(self, diagnostics: Sequence[Diagnostic]) -> list[TypeProblem]:
        """Return the type errors about the catalog."""
        tested = set[str]()
        self.retyped.update(
            name
            for each in diagnostics
            if each.code in _ARGUMENTS and (name := self.tree.assigned_variable(self.tree.path(each.pos))) is not None
        )
        for each in diagnostics:
            match = _NO_MEMBER.fullmatch(each.text) if each.code in _ACCESS else None
            if match is not None and not is_promise(match[2]) and self.tree.is_tested(self.tree.path(each.pos)):
                tested.add(match[1])
        judged = (self._judge(each, tested) for each in diagnostics)
        return [each for each in judged if each is not None]

    def _judge(self, found: Diagnostic, tested: Collection[str]) -> TypeProblem | None:
        waits = any(each.code == _AWAIT_HINT for each in found.relatedInformation)
        key = (found.pos, found.code)
        if not waits and key in self.untyped:
            return None
        path = self.tree.path(found.pos)
        if self.retyped and (
            found.code not in _ARGUMENTS or not self.retyped.isdisjoint(self.tree.names(found.pos, found.end))
        ):
            return None
        if found.code in _ACCESS:
            return self._access(found, path, tested)
        if found.code in _ITERATION:
            match = _NOT_ITERABLE.match(found.text)
            if match is None or len(union_of(match[1])) > 1:
                return None
            if is_promise(match[1]):
                return self._unawaited(found.pos, self._source(path))
            text = f"`{self._source(path)}` is no array: it is {self._described(match[1])}"
            return TypeProblem(found.pos, "result", text, certain=True)
        if found.code == _CALLED:
            match = next((m for text in found.texts() if (m := _NO_SIGNATURE.fullmatch(text))), None)
            if match is None or len(union_of(match[1])) > 1:
                return None
            text = f"`{self._source(path)}` is no function: it is {self._described(match[1])}"
            return TypeProblem(found.pos, "member", text, certain=not self.tree.is_tested(path))
        if found.code in _COMPARED:
            return self._comparison(found, path)
        return self._argument(found, path)

    # members

    def _access(self, found: Diagnostic, path: list[Node], tested: Collection[str]) -> TypeProblem | None:
        match = _NO_MEMBER.fullmatch(found.text)
        if match is None:
            return None
        name, type_, near = match.groups()
        if name in self.tree.assigned:
            return None
        if is_promise(type_):
            return self._unawaited(found.pos, self._object(path))
        if name in tested or type_ == "never":
            return None
        if type_.startswith("typeof "):
            return self._namespace(found, path, name, type_.removeprefix("typeof "))
        own = (found.pos, found.code) not in self.opened
        if not own and not (type_ in PRIMITIVES or is_literal(type_) or type_.endswith("[]")):
            return None
        if own and not self.types.lacks(type_, name):
            return None
        return TypeProblem(found.pos, "result", self._no_member(path, name, type_, near), certain=True)

    def _no_member(self, path: list[Node], name: str, type_: str, near: str | None) -> str:
        source = self._object(path)
        content = content_of_result(type_)
        if content is not None and not self.types.lacks(content, name):
            return (
                f"a result has no `{name}`; its content is in structuredContent: write "
                f"{source or 'result'}.structuredContent.{name}, or unwrap({source or 'result'}).{name}"
            )
        where = f" of `{source}`" if source else ""
        text = f"there is no `{name}`{where}"
        if type_.endswith("[]"):
            element = type_[:-2]
            if element in PRIMITIVES:
                return f"{text}: it is an array of type {type_}"
            inside = not self.types.lacks(element, name)
            return f"{text}: it is an array" + (f", and its elements have `{name}`" if inside else "")
        if type_ in PRIMITIVES or is_literal(type_):
            return f"{text}: it is a {type_ if type_ in PRIMITIVES else base_of(type_)}"
        members = self.types.members_of(union_of(type_)[0]) or []
        deeper = self._deeper(name, type_, source)
        if deeper:
            return f"{text}; write {deeper}"
        return text + suggested(name, members, near)

    def _deeper(self, name: str, type_: str, source: str) -> str:
        """Return the expression for a member of the only member that has it; empty if there is none."""
        inside = [
            match[1]
            for match in re.finditer(r"([\w$]+)\??: (\{[^{}]*\})", type_)
            if re.search(rf"[{{;] {re.escape(name)}\??:", match[2])
        ]
        return f"{source}.{inside[0]}.{name}" if len(inside) == 1 and source else ""

    def _namespace(self, found: Diagnostic, path: list[Node], name: str, server: str) -> TypeProblem | None:
        server = server.rpartition(".")[2]
        if server == "globalThis":
            return None
        names = self.members if server == "MCP" else self.members.get(server)
        if names is None or name in names:
            return None
        source = self._object(path) or f"MCP.{server}"
        destructured = path[-1].type == "shorthand_property_identifier_pattern"
        if destructured and (self.tree.is_tested(path) or not self.tree.is_only_called(name)):
            return None
        probed = (
            self.tree.is_tested(path) or re.search(rf"""["'`]{re.escape(name)}["'`]""", self.tree.units) is not None
        )
        only_reported = not probed and self.tree.only_reports_failure(path)
        if source.startswith("MCP") and not destructured and not only_reported:
            return None  # `program.members` has decided about it, and knows what the program tests for
        known = [each for each in names if "." not in each]
        text = f"`{source}.{name}` does not exist{suggested(name, known, None)}"
        return TypeProblem(found.pos, "member", text, certain=True)

    # arguments

    def _argument(self, found: Diagnostic, path: list[Node]) -> TypeProblem | None:
        # A call that is the argument itself does not count.
        around = (each for each in self.tree.calls_around(path) if span_of(each[0]).end > found.end)
        call, given = next(around, (None, False))
        if call is None or (not given and found.code not in (2554, 2555)):
            return TypeProblem(found.pos, "other", clipped(found.text), certain=False)
        function = self.function_of(call)
        mismatch = [match for text in found.texts() if (match := _MISMATCH.fullmatch(text))]
        if any(match[1] in _INTEGERS and "number" in union_of(match[2]) for match in mismatch):
            return None  # most integers that may be bigints are none
        one, several = _MISSING.fullmatch(found.text), _MISSING_MANY.fullmatch(found.text)
        given_type = mismatch[0][1] if mismatch else one[2] if one is not None else several[1] if several else ""
        if is_promise(given_type) and (function is not None or (mismatch and mismatch[0][2] in PRIMITIVES)):
            return self._unawaited(found.pos, self._source(path), function)
        if function is None or function in ("unwrap", "text", "json"):
            return TypeProblem(found.pos, "other", clipped(found.text), certain=False)
        text, certain = self._wrong_argument(found, path, mismatch, self.leeway(function))
        certain = certain and not self.tree.expects_failure(path)
        return TypeProblem(found.pos, "argument", f"{function}: {text}", certain, function)

    def _wrong_argument(
        self, found: Diagnostic, path: list[Node], mismatch: list[re.Match[str]], leeway: Leeway
    ) -> tuple[str, bool]:
        texts = list(found.texts())
        unknown = _UNKNOWN.fullmatch(found.text)
        if unknown is not None:
            name, type_, near = unknown.groups()
            members = self.types.members_of(type_) or []
            is_argument = path[-4:-3] and path[-4].type == "arguments"
            is_open = (leeway.arguments if is_argument else leeway.members) and not type_.endswith("[]")
            # As the check of the call itself, which refuses a misspelt argument.
            certain = not is_open or any(misspells(name, each) for each in [near, *members] if each)
            return f"there is no argument `{name}`" + suggested(name, members, near), certain
        text, certain = self._wrong_value(found, path, texts, mismatch)
        return text, certain and not leeway.kinds

    def _wrong_value(
        self, found: Diagnostic, path: list[Node], texts: list[str], mismatch: list[re.Match[str]]
    ) -> tuple[str, bool]:
        count = _COUNT.fullmatch(found.text)
        if count is not None:
            if count[2] == "0":
                return "takes an object of arguments, got nothing", True
            return f"takes one object of arguments and options, got {count[2]} arguments", True
        node = self.tree.value_at(path, found.pos, found.end)
        fixed = node is not None and (
            self.tree.is_plain_object(node) or (node.type == "identifier" and self.tree.fixed_object(node))
        )
        missing = next((match for text in texts if (match := _MISSING.fullmatch(text))), None)
        if missing is not None:
            certain = fixed or is_no_object(missing[2])
            if is_no_object(missing[2]):
                return f"takes an object with `{missing[1]}`, got {self._described(missing[2])}", True
            return f"`{missing[1]}` is missing", certain
        several = next((match for text in texts if (match := _MISSING_MANY.fullmatch(text))), None)
        if several is not None:
            if is_no_object(several[1]):
                return f"takes an object with {several[3]}, got {self._described(several[1])}", True
            return f"{quoted_names(several[3])} are missing", fixed
        if mismatch:
            certain = all(never_fits(match[1], match[2]) for match in mismatch) and not any(
                _UNCERTAIN.match(text) for text in texts
            )
            at = next((m[1] for text in texts if (m := _PROPERTY.fullmatch(text))), None)
            source, target = mismatch[-1][1], mismatch[-1][2]
            what = f"`{at or self._named(path)}`" if at or self._named(path) else "the argument"
            near = f"; did you mean {mismatch[-1][3]}?" if mismatch[-1][3] else ""
            return f"{what} takes {self.types.shortened(target)}, not {self._described(source)}{near}", certain
        return clipped(found.text), False

    def _named(self, path: list[Node]) -> str:
        """Return the name of the property that a place is the name or the value of."""
        for node in reversed(path[-3:]):
            if node.type == "pair":
                key = node.child_by_field_name("key")
                return "" if key is None else self.tree.text(key)
            if node.type == "shorthand_property_identifier":
                return self.tree.text(node)
        return ""

    # the rest

    def _comparison(self, found: Diagnostic, path: list[Node]) -> TypeProblem | None:
        match = _NO_OVERLAP.fullmatch(found.text)
        if match is None:
            return None
        one, another = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
        known, other = (one, another) if is_literal(another) else (another, one)
        if not is_literal(other) or not other.startswith('"') or not are_literals(known):
            return None
        # A type that is declared as it is has not been narrowed, so that the literal cannot come back.
        if other in self.literals and frozenset(union_of(known)) not in self.types.unions:
            return None
        at = next((node for node in path if span_of(node) == (found.pos, found.end)), None)
        user = path[path.index(at) - 1] if at is not None and at in path[1:] else None
        if user is not None and any(child.type == "||" for child in user.children):
            return None
        return TypeProblem(
            found.pos, "result", f"this is never {other}: it is {self.types.shortened(known)}", certain=True
        )

    def _unawaited(self, at: int, source: str, function: str | None = None) -> TypeProblem:
        shown = f"`{source}`" if source else "this"
        text = f"{shown} is a promise: `await` is missing before it"
        if source and function is None:
            text = f"{shown} is a promise; write (await {source})"
        return TypeProblem(at, "await", text, certain=True)

    def _described(self, type_: str) -> str:
        if type_.endswith("[]"):
            return "an array"
        names = self.types.members_of(type_)
        return "an object with " + ", ".join(names[:MAX_MEMBERS]) if names else self.types.shortened(type_)

    def _object(self, path: list[Node]) -> str:
        """Return the text of the object of the member access at a place; empty if it is long or is none."""
        access = next((node for node in reversed(path[-3:]) if node.type == "member_expression"), None)
        object_ = None if access is None else access.child_by_field_name("object")
        return "" if object_ is None else short_source(self.tree.text(object_))

    def _source(self, path: list[Node]) -> str:
        """Return the text of the largest expression that begins at a place."""
        start, best = span_of(path[-1]).start, path[-1]
        for node in reversed(path):
            if span_of(node).start != start or node.type not in _EXPRESSIONS:
                break
            best = node
        return short_source(self.tree.text(best))


_EXPRESSIONS: Final = frozenset(("identifier", "member_expression", "call_expression", "subscript_expression"))
_PROPERTY: Final = re.compile(r"Types of property '(.+?)' are incompatible\.")


def ignored_call(function: str, call: Node) -> TypeProblem:
    """Return the type error of a call of the catalog whose promise is ignored."""
    at = span_of(call).start
    return TypeProblem(at, "await", f"{function}(...) is not awaited; write await {function}(...)", True, None)


def async_callback(callback: Callback) -> TypeProblem:
    """Return the type error of an async function that is given to a method which does not wait for it."""
    if callback.method in ("forEach", "map"):
        text = f"{callback.method}(...) does not wait for an async function; write for (const item of list) {{ ... }}"
    else:
        text = (
            f"{callback.method}(...) does not wait for an async function, and a promise is always true; await the "
            "answers first, as in await Promise.all(list.map(...))"
        )
    return TypeProblem(span_of(callback.node).start, "await", text, certain=True)


def printed_promise(source: str, value: Node) -> TypeProblem:
    """Return the type error of a promise that is printed, or read, as if it were its value."""
    shown = short_source(source) or "this value"
    return TypeProblem(span_of(value).start, "await", f"`{shown}` is a promise; write await {shown}", certain=True)
