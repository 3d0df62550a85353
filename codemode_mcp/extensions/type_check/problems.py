"""Type errors of a program, from the compiler's diagnostics. Pure.

TypeScript also reports much that runs: a variable that takes another type later, an object that grows, a field that the
program only tests for. A diagnostic counts if its code, the other variants of the declarations and the place in the
program say that it is about a call of the catalog or about a value that it has returned. The compiler's own sentence
says the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from codemode_mcp.program.syntax import span_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tree_sitter import Node

    from codemode_mcp.extensions.type_check.declared import Leeway
    from codemode_mcp.extensions.type_check.program_tree import Callback, ProgramTree
    from codemode_mcp.extensions.type_check.session import Diagnostic

_ACCESS: Final = frozenset((2339, 2551))
_USES: Final = frozenset((2349, 2461, 2488, 2495, 2504, 2548, 2549))
"""A value that is called, or iterated over."""
_COMPARED: Final = frozenset((2367, 2678))
_UNKNOWN: Final = frozenset((2353, 2561))
_COUNT: Final = frozenset((2554, 2555))
_ARGUMENTS: Final = frozenset((2322, 2345, 2559, 2739, 2740, 2741, 2769, 2820)) | _UNKNOWN | _COUNT
_REPORTED: Final = _ACCESS | _USES | _COMPARED | _ARGUMENTS
_AWAIT_HINT: Final = 2773
_OF_LANGUAGE: Final = re.compile(r".* on type '(?:typeof [\w$.]+|string|number|boolean|\".*\"|Promise<.*>|.*\[\])'\..*")
"""A member that a type of the language, or a namespace, does not have. Only objects of the catalog are opened."""
_MAY_FIT: Final = re.compile(
    r"Type 'string' is not assignable to type '(?:.* \| )?\".*"
    r"|Type 'number' is not assignable to type '(?:.* \| )?-?\d.*"
    r"|Type '(?:int|bigint)' is not assignable to type '(?:.* \| )?number.*"
    r"|[^']*'(?:Date|URL|[^|'{\"]* \| [^'{\"]*)' is not assignable .*"
    r"|Property '.+' is optional in .*|.* is 'readonly' .*"
)
"""A reason that says little: a text may be one of some literals, and few integers that may be bigints are some."""
_LONG_TYPE: Final = re.compile(r"'([^']{80})[^']*'")
_MAX_TEXT: Final = 50_000
"""Maximum length of a message that is judged."""


class TypeProblem(Struct, frozen=True):
    """One type error of a program.

    Attributes:
        at: its offset in the checked body.
        text: a sentence without a full stop.
        call: the function of the catalog that is called wrongly, such as `MCP.github.createIssue`.
    """

    at: int
    text: str
    call: str | None = None


def is_candidate(diagnostic: Diagnostic) -> bool:
    """Return True if a diagnostic may be about the catalog."""
    return diagnostic.code in _REPORTED and len(diagnostic.text) <= _MAX_TEXT


@dataclass(frozen=True)
class Judge:
    """Facts with which diagnostics are judged.

    Attributes:
        opened, untyped: the offsets and codes of the diagnostics in these variants of the declarations.
        function_of: returns the function of the catalog that a call calls; None for other functions.
        leeway: returns what the schema of a function accepts beyond its type.
    """

    tree: ProgramTree
    opened: Collection[tuple[int, int]]
    untyped: Collection[tuple[int, int]]
    function_of: Callable[[Node], str | None]
    leeway: Callable[[str], Leeway]
    retyped: set[str] = field(default_factory=set)
    """The variables that get a value of another type later. Their types are those of their first values only."""

    def problems(self, diagnostics: Sequence[Diagnostic]) -> list[TypeProblem]:
        tested = set[str]()
        for each in diagnostics:
            path = self.tree.path(each.pos)
            if each.code in _ARGUMENTS and (name := self.tree.assigned_variable(path)) is not None:
                self.retyped.add(name)
            if each.code in _ACCESS and self.tree.is_tested(path):
                tested.add(self._name(each))
        judged = (self._judge(each, tested) for each in diagnostics)
        return [each for each in judged if each is not None]

    def _name(self, found: Diagnostic) -> str:
        return self.tree.units[found.pos : found.end]

    def _judge(self, found: Diagnostic, tested: Collection[str]) -> TypeProblem | None:
        waits = any(each.code == _AWAIT_HINT for each in found.relatedInformation)
        key, path = (found.pos, found.code), self.tree.path(found.pos)
        if key in self.untyped and not waits:
            return None
        if not self.retyped.isdisjoint(self.tree.names(found.pos, found.end)):
            return None
        if self.retyped and found.code not in _ARGUMENTS:
            return None
        if waits:
            return TypeProblem(found.pos, "this is a promise: `await` is missing before it")
        if found.code in _ACCESS:
            return self._access(found, path, tested)
        if found.code in _COMPARED and (
            " | " not in found.text or any(each.type == "||" for node in path[-3:] for each in node.children)
        ):
            return None
        if found.code in _ARGUMENTS:
            return self._argument(found, path)
        if found.code in _USES and " | " in _sentence(found):
            return None
        return TypeProblem(found.pos, _sentence(found))

    def _access(self, found: Diagnostic, path: list[Node], tested: Collection[str]) -> TypeProblem | None:
        name = self._name(found)
        if name in self.tree.assigned or name in tested or found.messageChain:
            return None
        if "} | {" in found.text:
            return None  # an object of several types
        if " on type 'typeof " in found.text and not self._is_wrong_name(name, path):
            return None
        if (found.pos, found.code) in self.opened and _OF_LANGUAGE.fullmatch(found.text) is None:
            return None
        text = _sentence(found)
        if " on type 'McpToolResult<" in found.text:
            text += "; its content is in structuredContent, which unwrap(result) returns"
        return TypeProblem(found.pos, text)

    def _is_wrong_name(self, name: str, path: list[Node]) -> bool:
        """Return True for a name that a namespace lacks, and that the program does not test for.

        `program.mcp_uses` has decided about `MCP.server.name`, unless a `try` around it may be such a test.
        """
        if re.search(rf"""["'`]{name}["'`]""", self.tree.units):
            return False
        if path[-1].type == "shorthand_property_identifier_pattern":
            return self.tree.is_only_called(name)
        return not self.tree.text(path[-2]).startswith("MCP.") or self.tree.only_reports_failure(path)

    def _argument(self, found: Diagnostic, path: list[Node]) -> TypeProblem | None:
        # A call that is the argument itself does not count.
        around = (each for each in self.tree.calls_around(path) if span_of(each[0]).end > found.end)
        call, given = next(around, (None, False))
        if call is None or not (given or found.code in _COUNT) or self.tree.expects_failure(path):
            return None
        function = self.function_of(call)
        if function is None or function in ("unwrap", "text", "json"):
            return None
        leeway = self.leeway(function)
        if found.code in _UNKNOWN:
            is_argument = path[-4:-3] and path[-4].type == "arguments"
            is_open = leeway.arguments if is_argument else leeway.members
            if is_open and "[]'." not in found.text and "Did you mean" not in found.text:
                return None
        elif found.code not in _COUNT and (leeway.kinds or not self._is_fixed(found, path)):
            return None
        return TypeProblem(found.pos, f"{function}: {_sentence(found)}", function)

    def _is_fixed(self, found: Diagnostic, path: list[Node]) -> bool:
        """Return True if the program says what the value at a place is, and nothing in it is added later."""
        node = self.tree.value_at(path, found.pos, found.end)
        if node is None:
            return False
        if node.type == "identifier" and "missing" in found.text:
            return self.tree.fixed_object(node)
        if node.type == "object" and "missing" in found.text:
            return self.tree.is_plain_object(node)
        return node.type == "string" or not any(map(_MAY_FIT.fullmatch, found.texts()))


def _sentence(found: Diagnostic) -> str:
    """Return the message of the compiler as the end of a sentence, with its innermost reason."""
    *_, last = found.texts()
    text = found.text if last == found.text else f"{found.text} {last}"
    return _LONG_TYPE.sub(r"'\1…'", text).rstrip(".")


def ignored_call(function: str, call: Node) -> TypeProblem:
    return TypeProblem(span_of(call).start, f"{function}(...) is not awaited; write await {function}(...)")


def async_callback(callback: Callback) -> TypeProblem:
    """Return the type error of an async function that is given to a method which does not wait for it."""
    text = f"{callback.method}(...) does not wait for an async function; "
    if callback.method in ("forEach", "map"):
        text += "write for (const item of list) { ... }"
    else:
        text += "a promise is always true, so await the answers first, as in await Promise.all(list.map(...))"
    return TypeProblem(span_of(callback.node).start, text)


def printed_promise(source: str, value: Node) -> TypeProblem:
    shown = source if len(source) <= 60 and "\n" not in source else ""
    text = f"`{shown}` is a promise; write await {shown}" if shown else "this value is a promise; await it"
    return TypeProblem(span_of(value).start, text)
