"""The check of one program with an open compiler process. Blocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from codemode_mcp.extensions.type_check.problems import (
    Judge,
    async_callback,
    ignored_call,
    is_candidate,
    printed_promise,
)
from codemode_mcp.extensions.type_check.program_tree import ProgramTree
from codemode_mcp.program.syntax import TRANSPARENT, span_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language
    from codemode_mcp.extensions.type_check.declared import CheckedText, Declared, Variant
    from codemode_mcp.extensions.type_check.problems import TypeProblem
    from codemode_mcp.extensions.type_check.session import Diagnostic, Session

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
        """Return for each call the function of the catalog that it calls; None for other functions."""
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
    """Return the offset of the name by which a call names its function; None if it has no name."""
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
