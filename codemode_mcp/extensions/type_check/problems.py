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

from codemode_mcp.extensions.type_check.declared import CheckedText, entry_of
from codemode_mcp.extensions.type_check.program_tree import ProgramTree
from codemode_mcp.program.inspection import CELL_FILES
from codemode_mcp.program.syntax import TRANSPARENT, span_of
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.extensions.type_check.declared import CheckedText, Declared, Leeway, Variant
    from codemode_mcp.extensions.type_check.program_tree import Callback
    from codemode_mcp.extensions.type_check.session import Diagnostic, Session

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


MAX_JUDGED: Final = 50
"""Maximum number of diagnostics of one program that are judged."""


def find_problems(session: Session, declared: Declared, text: CheckedText) -> list[TypeProblem] | None:
    """Return the type errors of a program, by position; None if the compiler cannot read its syntax.

    Raises:
        CompilerFailed: the process has to be ended.
    """
    tree = text.tree
    if tree is None:
        return None
    return _Inspection(session, declared, text, ProgramTree(text.units, tree.root_node)).problems()


class _Inspection:
    def __init__(self, session: Session, declared: Declared, text: CheckedText, tree: ProgramTree) -> None:
        self._session = session
        self._declared = declared
        self._text = text
        self._tree = tree
        self._exact = session.open(declared, "exact")

    @property
    def _language(self) -> Language:
        return self._text.language

    def problems(self) -> list[TypeProblem] | None:
        self._session.put(self._exact, self._text, self._language)
        try:
            if self._session.syntax_errors(self._exact, self._language):
                return None
            diagnostics = [each for each in self._type_errors(self._exact) if is_candidate(each)][:MAX_JUDGED]
            found = self._judged(diagnostics) + self._unawaited()
        finally:
            self._session.put(self._exact, None, self._language)
        first = {each.at: each for each in reversed(found)}
        return [first[at] for at in sorted(first)]

    def _judged(self, diagnostics: list[Diagnostic]) -> list[TypeProblem]:
        if not diagnostics:
            return []
        calls = [call for each in diagnostics for call, _ in self._tree.calls_around(self._tree.path(each.pos))]
        functions = dict(zip([call.id for call in calls], self._functions(calls), strict=True))
        return Judge(
            self._tree,
            self._keys("open"),
            self._keys("untyped"),
            lambda call: functions.get(call.id),
            self._declared.leeway,
        ).problems(diagnostics)

    def _unawaited(self) -> list[TypeProblem]:
        """Return the calls whose promises are ignored, and the promises that are printed."""
        ignored, printed = self._tree.ignored_calls(), self._tree.printed()
        found = [
            ignored_call(function, call)
            for call, function in zip(ignored, self._functions(ignored), strict=True)
            if function is not None and function not in ("unwrap", "text", "json")
        ]
        if len(found) == 1 and not self._tree.waits and not self._tree.is_repeated(found[0].at):
            found = []  # a program without any `await` may send its only call on purpose, and not wait for it
        called = [node for node in printed if node.type == "call_expression"]
        of_catalog = {
            node.id
            for node, function in zip(called, self._functions(called), strict=True)
            if function is not None and function not in ("unwrap", "text", "json")
        }
        named = [node for node in printed if node.type == "identifier"]
        types = self._session.type_texts(self._exact, self._language, [self._at(span_of(each).start) for each in named])
        promises = [
            node
            for node, type_ in zip(named, types, strict=True)
            if type_.startswith("Promise<") and type_.endswith(">")
        ]
        printed = [each for each in called if each.id in of_catalog or self._tree.calls_async_function(each)]
        found += [
            printed_promise(self._tree.text(node), node) for node in [*promises, *printed, *self._tree.async_conditions]
        ]
        callbacks = self._tree.async_callbacks()
        declared = self._session.declaration_files(
            self._exact, self._language, [self._at(each.method_at) for each in callbacks]
        )
        return found + [
            async_callback(callback)
            for callback, of in zip(callbacks, declared, strict=True)
            if of is None or not of[1].endswith(("cell.js", "cell.ts"))
        ]

    def _functions(self, calls: Sequence[Node]) -> list[str | None]:
        offsets = [self._at(offset) for offset in _callee_offsets(calls)]
        declared = self._session.declaration_files(self._exact, self._language, offsets)
        return [_called_function(each, call, self._tree) for each, call in zip(declared, calls, strict=True)]

    def _keys(self, variant: Variant) -> set[tuple[int, int]]:
        """Return the offsets and codes of the diagnostics in another variant of the declarations."""
        folder = self._session.open(self._declared, variant)
        self._session.put(folder, self._text, self._language)
        try:
            # Inference from `any` gives `unknown` in some places, which says nothing about the program. The promise of
            # a function that waits for calls stays a promise.
            return {
                (each.pos, each.code)
                for each in self._type_errors(folder)
                if variant != "untyped" or not each.text.endswith(("'unknown'.", "'Promise<any>'."))
            }
        finally:
            self._session.put(folder, None, self._language)

    def _type_errors(self, folder: str) -> list[Diagnostic]:
        """Return the diagnostics with offsets in the body of the text."""
        shift, end = len(self._text.before), len(self._text.units)
        moved = (each.moved(-shift) for each in self._session.type_errors(folder, self._language))
        return [each for each in moved if 0 <= each.pos < end]

    def _at(self, offset: int) -> int:
        return offset + len(self._text.before)


def _called_function(declared: tuple[str, str] | None, call: Node, tree: ProgramTree) -> str | None:
    """Return the function of the catalog that a call calls, as programs write it; None for other functions.

    Args:
        declared: the name and the file of the declaration of the called symbol.
    """
    if declared is None:
        return None
    name, file = declared
    if file == "guest.d.ts":
        return name if name in ("unwrap", "text", "json") else None
    if file.endswith(("cell.js", "cell.ts")) or file.startswith("/"):
        return None
    function = call.child_by_field_name("function")
    source = "" if function is None else tree.text(function)
    if source == name or re.fullmatch(r"(?:MCP|tools|programs)(?:\.[\w$]+)+", source):
        return source  # a variable of the program with the function, or the function itself
    if file.startswith("mcp/"):
        return f"MCP.{file.removeprefix('mcp/').removesuffix('.d.ts')}.{name}"
    return f"tools.{name}" if file == "tools.d.ts" else name


def _callee_offsets(calls: Sequence[Node]) -> list[int]:
    """Return the offset of the called name of each call; that of the call itself if it has no name."""
    return [span_of(call).start if (at := _callee_offset(call)) is None else at for call in calls]


def _callee_offset(call: Node) -> int | None:
    function = call.child_by_field_name("function")
    while function is not None and function.type in TRANSPARENT and function.named_children:
        function = function.named_children[0]
    if function is None:
        return None
    if function.type == "member_expression":
        function = function.child_by_field_name("property")
    elif function.type == "subscript_expression":
        index = function.child_by_field_name("index")
        return None if index is None or index.type != "string" else span_of(index).start + 1
    return None if function is None else span_of(function).start


MAX_SHOWN: Final = 5
"""Maximum number of errors in a message."""

_MAX_SIGNATURE: Final = 1_000

_SHOWN_TEXT: Final = 500


def lines(text: CheckedText, problems: Sequence[TypeProblem], signature: Callable[[str], str]) -> list[str]:
    """Return a line for each of the first errors with its position, and the signatures of the functions in them.

    Args:
        signature: returns the signature of a function; empty if it is unknown.
    """
    shown = []
    for each in problems[:MAX_SHOWN]:
        line, column = text.position(each.at)
        shown.append(f"- {escape_line(each.text, _SHOWN_TEXT)} ({CELL_FILES[text.language]}:{line}:{column})")
    if len(problems) > MAX_SHOWN:
        shown.append(f"- … and {len(problems) - MAX_SHOWN} more")
    calls = dict.fromkeys(each.call for each in problems[:MAX_SHOWN] if each.call is not None)
    known = [found for call in calls if (found := signature(call))]
    return [*shown, *(f"Signature: {each}" for each in known if len(each) <= _MAX_SIGNATURE)]


def positions(
    text: CheckedText, problems: Sequence[TypeProblem], file: str, signature: Callable[[str], str]
) -> list[str]:
    shown = []
    for each in problems:
        line, column = text.position(each.at)
        known = "" if each.call is None else signature(each.call)
        end = "" if not known else f" Signature: {known}" if each.text.endswith("?") else f". Signature: {known}"
        shown.append(f"{file}:{line}:{column}: {escape_line(each.text, _SHOWN_TEXT)}{end}")
    return shown


def signatures(catalog: Catalog) -> Callable[[str], str]:
    """Return a function that returns the signature of a function of the catalog; empty if it is unknown."""

    def signature(call: str) -> str:
        entry = entry_of(catalog, call)
        return "" if entry is None else catalog.signature(entry)

    return signature
