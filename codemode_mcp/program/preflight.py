"""The inspection of a program before it runs: the uses of modules, `MCP` and globals. Pure.

tree-sitter serves to find things, never to judge syntax, since it rejects some valid code; the engine or esbuild
reports syntax errors. Nothing here is a security boundary: text that does not parse is let through, and the sandbox
refuses access at run time.

Alternatives that were rejected: queries with `Node.parent`, where each step up starts at the root again, so that
hostile nesting makes them quadratic; UTF-8 offsets, which would have to be converted to JavaScript's UTF-16 units.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program import global_uses, syntax
from codemode_mcp.program.global_uses import LOADERS, WORDS, ModuleAccess, ProgramUses
from codemode_mcp.program.inspection import CELL_FILES, RETURN, Called, Insertion, Preflight, returned_span
from codemode_mcp.program.mcp_uses import McpUses
from codemode_mcp.program.program_form import CALL, whole_function

if TYPE_CHECKING:
    from tree_sitter import Node, Tree

    from codemode_mcp.base.settings import Language
    from codemode_mcp.program.inspection import MemberCall, ProgramCall


_ODD_SPACE = re.compile("[\v\f\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff]")
_LONE_RETURN = re.compile("\r(?!\n)")
"""White space of JavaScript that the parser does not know. Its replacement has the same length."""


def parse_program(units: str) -> Tree | None:
    """Parse a program that `utf16_units` has returned, with white space that the parser does not know."""
    return syntax.parse(_ODD_SPACE.sub(" ", _LONE_RETURN.sub("\n", units)))


def inspect(source: str, language: Language) -> Preflight:
    """Parse a program, and return all findings about it.

    Raises:
        ProgramError: `module_access_denied` with the position of the first access to a module.
    """
    units = syntax.utf16_units(source)
    tree = parse_program(units)
    if tree is None:
        return Preflight(source, None, None, (), broken=True, intl=WORDS.search(units) is not None)
    finder = UseFinder(units)
    finder.read(tree)
    called = _called(units, tree.root_node, finder)
    finder.refuse_module_access(CELL_FILES[language])
    span = None if finder.returns else returned_span(units, tree.root_node)
    returning = None
    if span is not None:
        returning = f"{units[: span.start]}{RETURN}{units[span.start : span.end]}){units[span.end :]}"
    return Preflight(
        source=source,
        returning=None if returning is None else syntax.from_utf16_units(returning),
        servers=finder.servers(),
        member_calls=finder.member_calls(),
        returned_at=None if span is None else finder.position(span.start),
        broken=tree.root_node.has_error,
        called=called,
        program_calls=finder.program_calls(),
        rounded=_rounded(finder, CELL_FILES[language]),
        intl=finder.intl,
    )


_MAX_SHOWN = 40


def _rounded(finder: UseFinder, file: str) -> str:
    if not finder.rounded:
        return ""
    written, at = finder.rounded[0]
    line, column = finder.position(at)
    shown, exact = (
        (written, f"{written}n") if len(written) <= _MAX_SHOWN else (f"{written[:_MAX_SHOWN]}…", "an n behind it")
    )
    more = "" if len(finder.rounded) == 1 else f" ({len(finder.rounded)} integers of this program are)"
    return (
        f"JavaScript rounds {shown} ({file}:{line}:{column}), because it is beyond 2^53{more}; write {exact} to keep "
        "all digits"
    )


def uses_intl(source: str) -> bool:
    if WORDS.search(source) is None:
        return False
    units = syntax.utf16_units(source)
    tree = parse_program(units)
    if tree is None:
        return True
    finder = UseFinder(units)
    finder.read(tree)
    return finder.intl


def _called(units: str, root: Node, finder: UseFinder) -> Called | None:
    """Return the program with a call of the function that it is or ends with, or None for an ordinary program."""
    found = None if finder.returns else whole_function(units, root)
    if found is None or (found.exported is not None and not finder.permit(found.statement, found.exported)):
        return None
    finder.bind_globals(found.node)
    return Called(
        text=syntax.from_utf16_units(found.called(units)),
        plain=syntax.from_utf16_units(found.plain(units)),
        inserted=Insertion(*finder.position(found.value.start), len(CALL)),
        note=found.note,
    )


_WORDS = re.compile(
    r"(?<![\w$])(?:MCP|API|programs|eval|Function|globalThis|return|import|export"
    r"|require|createRequire|importScripts|define|System|module|exports|process)(?![\w$])"
)

_ESCAPED = re.compile(
    r"(?<![\w$\\])(?=[\w$]{0,13}\\u)(?:[\w$]|\\u(?:[0-9a-fA-F]{4}|\{0*+[1-9a-fA-F][0-9a-fA-F]{0,5}\}))++"
)
"""A name with an escape in its first characters; none of the words is longer."""

_MAX_DIGITS = 300
"""Digits beyond which every integer counts as rounded: longer ones are infinite."""
_LONG_INTEGER = re.compile(r"(?<![\w$.])[1-9](?:_?[0-9]){15,}(?![\w$.])")

_REACHES_MCP = syntax.words("MCP API eval Function")
_NAMES = syntax.words(
    "identifier property_identifier shorthand_property_identifier shorthand_property_identifier_pattern"
)
"""Types of leaves that are names of values."""

_DECLARATION_FILE = re.compile(r"mcp/([^/]+)\.d\.ts")


class UseFinder:
    """Collects the uses of one program.

    Declarations are hoisted, so uses of names that the program declares itself are left out of the results only after
    the whole program was read.

    Attributes:
        returns: whether the program has a `return` at its top level.
        rounded: the integers that the program writes and a Number does not hold, with their offsets.
        intl: whether the program needs the image with `Intl`.
    """

    def __init__(self, units: str) -> None:
        self.returns = False
        self.rounded: list[tuple[str, int]] = []
        self.intl = False
        self._passes_globals = False
        self._units = units
        self._modules = ModuleAccess(units)
        self._mcp = McpUses(units, functools.partial(self._is_shadowed, "MCP"))
        self._programs = ProgramUses(units, functools.partial(self._is_shadowed, "programs"))
        self._declared: dict[str, list[syntax.Span]] = {}

    def read(self, tree: Tree) -> None:
        """Collect the uses in a tree. Called once, before the results are read."""
        hits = [match.start() for match in _WORDS.finditer(self._units)]
        if "\\u" in self._units:
            escaped = (
                match for match in _ESCAPED.finditer(self._units) if _WORDS.fullmatch(syntax.unescaped(match[0]))
            )
            hits = sorted({*hits, *(match.start() for match in escaped)})
        long = {match.start(): match[0] for match in _LONG_INTEGER.finditer(self._units)}
        if long:
            hits = sorted({*hits, *long})
        locales = [match.start() for match in global_uses.WORDS.finditer(self._units)]
        if locales:
            self.intl = global_uses.names_as_text(self._units)
            hits = sorted({*hits, *locales})
        if not hits:
            return
        for path, scope in syntax.leaves(tree.root_node, hits):
            leaf = path[-1]
            if locales and not self.intl and leaf.type in _NAMES and global_uses.WORDS.fullmatch(self._name(leaf)):
                self.intl = global_uses.is_beyond_prelude(self._units, path)
            match leaf.type:
                case "return":
                    self.returns = self.returns or scope.function is None
                case "number" if _is_rounded(written := long.get(syntax.span_of(leaf).start, "0")):
                    self.rounded.append((written, syntax.span_of(leaf).start))
                case "import" | "export":
                    self._modules.add_syntax(path, scope)
                case "identifier" | "type_identifier" | "shorthand_property_identifier_pattern":
                    if scope.declares is not None:
                        self._declared.setdefault(self._name(leaf), []).append(scope.declares)
                    elif leaf.type == "identifier":
                        self._add_reference(path, scope)
                case "shorthand_property_identifier" if self._name(leaf) in _REACHES_MCP:
                    self._mcp.add(syntax.span_of(leaf).start, None)
                case "shorthand_property_identifier" if self._name(leaf) in LOADERS:
                    self._modules.add_read(syntax.span_of(leaf).start, self._name(leaf), self._name(leaf))

    # results

    def refuse_module_access(self, file: str) -> None:
        """Raise `ProgramError` (`module_access_denied`) for the first access to a module."""
        for at, name, wording in self._modules.found():
            if not self._is_shadowed(name, at):
                line, column = self.position(at)
                raise ProgramError(
                    "module_access_denied",
                    f"{wording} is not available ({file}:{line}:{column}): a program has no modules. "
                    "Use the globals MCP, tools and API, and the JavaScript built-ins.",
                )

    def permit(self, at: int, name: str) -> bool:
        """Permit the export that begins at an offset.

        Args:
            name: the name that the export reads.

        Returns:
            False if the program declares the name itself, so that this is not an export.
        """
        if any(span.start <= at < span.end for span in self._declared.get(name, ())):
            return False
        self._modules.permit(at)
        return True

    def bind_globals(self, function: Node) -> None:
        """Record that a function is called with the object of the globals as its argument.

        A parameter such as `{ MCP }` then names the global itself, so it does not shadow it.
        """
        pattern = next(iter(syntax.parameters(function)), None)
        if pattern is None:
            return
        parts = pattern.named_children if pattern.type == "object_pattern" else [pattern]
        for part in parts:
            match part.type:
                case "shorthand_property_identifier_pattern" | "object_assignment_pattern":
                    name = part if part.type == "shorthand_property_identifier_pattern" else part.children[0]
                    spans = self._declared.get("MCP", [])
                    if self._name(name) == "MCP" and syntax.span_of(function) in spans:
                        spans.remove(syntax.span_of(function))
                case "comment":
                    continue
                case "pair_pattern" if self._name(part.children[0]) not in _REACHES_MCP:
                    continue
                case "identifier" if self._name(part) == "MCP":
                    continue  # its members are globals, not servers
                case _:
                    self._passes_globals = True

    def servers(self) -> frozenset[str] | None:
        return None if self._passes_globals else self._mcp.servers()

    def members(self) -> frozenset[tuple[str, str | None]] | None:
        """Return the servers and their members that the program reads; see `McpUses.members`."""
        return None if self._passes_globals else self._mcp.members()

    def member_calls(self) -> tuple[MemberCall, ...]:
        return self._mcp.calls(self.position)

    def program_calls(self) -> tuple[ProgramCall, ...]:
        return () if self._passes_globals else self._programs.calls(self.position)

    def position(self, at: int) -> tuple[int, int]:
        """Return the 1-based line and column of an offset."""
        return self._lines.position(at)

    @functools.cached_property
    def _lines(self) -> syntax.Lines:
        return syntax.Lines(self._units)

    def _is_shadowed(self, name: str, at: int) -> bool:
        spans = self._shadows.get(name)
        if spans is None:
            return False
        nearest = bisect_right(spans, at, key=lambda span: span.start) - 1
        return nearest >= 0 and at < spans[nearest].end

    @functools.cached_property
    def _shadows(self) -> dict[str, list[syntax.Span]]:
        """The outermost spans in which each declared name hides the global one, sorted."""
        merged: dict[str, list[syntax.Span]] = {}
        for name, spans in self._declared.items():
            outermost: list[syntax.Span] = []
            for span in sorted(spans, key=lambda span: (span.start, -span.end)):
                if not outermost or span.start >= outermost[-1].end:
                    outermost.append(span)
            merged[name] = outermost
        return merged

    # references

    def _add_reference(self, path: list[Node], scope: syntax.Scope) -> None:
        leaf, parent = path[-1], path[-2]
        name, at = self._name(leaf), syntax.span_of(leaf).start
        is_object = parent.type in syntax.MEMBER_ACCESS and parent.start_byte == leaf.start_byte
        member = syntax.member_of(self._units, parent) if is_object else None
        match name:
            case "MCP":
                self._mcp.add_reference(path, scope)
            case "programs":
                self._programs.add_reference(path, at, scope)
            case "API":
                self._mcp.add(at, self._server_of_read(path) if member == "read" else None)
            case "eval" | "Function":
                self._mcp.add(at, None)
            case "globalThis":
                if not is_object or member is None or member in _REACHES_MCP:
                    self._mcp.add(at, None)
                elif member == "require":
                    self._modules.add_load(at, name, "require")
                elif member in LOADERS and syntax.is_target(path, len(path) - 2):
                    self._declared.setdefault(member, []).append(syntax.span_of(path[0]))
            case _ if self._modules.add_reference(path, name, member):
                # Assigning to the name of a loader declares it.
                self._declared.setdefault(name, []).append(syntax.span_of(path[0]))

    def _server_of_read(self, path: list[Node]) -> str | None:
        """Return the server whose declarations `API.read("mcp/x.d.ts")` reads; None for the index and unknown files."""
        call = path[-3]
        arguments = call.child_by_field_name("arguments") if call.type == "call_expression" else None
        if arguments is None or arguments.named_child_count != 1:
            return None
        literal = syntax.literal_of(self._units, arguments.named_children[0])
        file = _DECLARATION_FILE.fullmatch(literal) if literal is not None else None
        return file[1] if file is not None and file[1] != "index" else None

    def _name(self, node: Node) -> str:
        return syntax.name_of(self._units, node)


def _is_rounded(written: str) -> bool:
    """Return True for an integer that a Number does not hold exactly."""
    digits = written.replace("_", "")
    return len(digits) > _MAX_DIGITS or int(digits) != int(float(digits))
