"""Uses of modules, of `MCP` and of its servers in a program's syntax tree. Pure."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codemode_mcp.errors import ProgramError
from codemode_mcp.program.inspection import MemberCall
from codemode_mcp.program.members import GROUPS, OBJECT_PROTOTYPE
from codemode_mcp.program.program_form import parameters
from codemode_mcp.program.scopes import MEMBER_ACCESS, PATTERNS, Scope, leaves
from codemode_mcp.program.syntax import (
    Lines,
    Span,
    span_of,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from tree_sitter import Node, Tree


_WORDS = re.compile(
    r"(?<![\w$])(?:MCP|API|eval|Function|globalThis|return|import|export"
    r"|require|createRequire|importScripts|define|System|module|exports|process)(?![\w$])"
)


_ESCAPED = re.compile(
    r"(?<![\w$\\])(?=[\w$]{0,13}\\u)(?:[\w$]|\\u(?:[0-9a-fA-F]{4}|\{0*+[1-9a-fA-F][0-9a-fA-F]{0,5}\}))++"
)
"""A name with escapes near its start: none of the words is longer."""


_ESCAPE = re.compile(r"\\u(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{4}))")


_STRAY_IMPORT = re.compile(r"""import\s*(?:[({*"']|\.\s*meta\b|[\w$]+\s*(?:from\b|[,=]))""")


_STRAY_EXPORT = re.compile(
    r"export\s*(?:[{*=]|(?:default|const|let|var|function|class|async|type|interface|enum|abstract|declare)\b)"
)


_REACHES_MCP = words("MCP API eval Function")


_LOADER_MEMBERS: dict[str, frozenset[str]] = {
    "require": words("resolve cache main extensions"),
    "module": words("exports require createRequire"),
    "process": words("binding getBuiltinModule mainModule"),
}


_LOADER_CALLS = words("require createRequire importScripts")


_LOADERS = words("require define System module")
"""Names of module loaders: any read is refused that no declaration makes the program's own."""


_DECLARATION_FILE = re.compile(r"mcp/([^/]+)\.d\.ts")


_NO_READ = words("ERROR nested_identifier type_predicate asserts import_alias")
"""Parents of names that are no values; in what the parser cannot read a word may be anything."""


_TESTING_OPERATORS = frozenset(("&&", "||", "??", "==", "===", "!=", "!==", "instanceof"))


_TRANSPARENT = words("parenthesized_expression as_expression non_null_expression satisfies_expression")


_CONDITIONAL_STATEMENTS = words("if_statement while_statement do_statement")


@dataclass(frozen=True, slots=True)
class _Use:
    """`MCP` at one place."""

    at: int
    server: str | None
    """`None`: it cannot be told which."""
    member: str | None = None
    operation: str | None = None
    checked: bool = False
    """True if the program relies on its existence."""


class Finder:
    """Collects what one program uses; names that it declares itself are sorted out afterwards, as they are hoisted."""

    def __init__(self, units: str) -> None:
        self.returns = False
        self._is_passed_on = False  # all globals are, as one object
        self._units = units
        self._loads: list[tuple[int, str, str]] = []  # position, name that a declaration would shadow, wording
        self._reads: list[tuple[int, str, str]] = []  # of loaders, as values
        self._asked: set[str] = set()  # loaders that the code asks for with `typeof`
        self._uses: list[_Use] = []
        self._probed: set[tuple[str, str | None]] = set()  # server, or one member of it, that the code tests for
        self._inspected: set[str] = set()  # servers whose members the code looks at by itself
        self._declared: dict[str, list[Span]] = {}

    def read(self, tree: Tree) -> None:
        hits = [match.start() for match in _WORDS.finditer(self._units)]
        if "\\u" in self._units:
            escaped = (match for match in _ESCAPED.finditer(self._units) if _WORDS.fullmatch(_unescaped(match[0])))
            hits = sorted({*hits, *(match.start() for match in escaped)})
        if not hits:
            return
        for path, scope in leaves(tree.root_node, hits):
            leaf = path[-1]
            match leaf.type:
                case "return":
                    self.returns = self.returns or scope.function is None
                case "import" | "export":
                    self._module_syntax(path, scope)
                case "identifier" | "type_identifier" | "shorthand_property_identifier_pattern":
                    if scope.declares is not None:
                        self._declared.setdefault(self._name(leaf), []).append(scope.declares)
                    elif leaf.type == "identifier":
                        self._reference(path, scope)
                case "shorthand_property_identifier" if self._name(leaf) in _REACHES_MCP:
                    self._uses.append(_Use(span_of(leaf).start, None))
                case "shorthand_property_identifier" if self._name(leaf) in _LOADERS:
                    self._reads.append((span_of(leaf).start, self._name(leaf), f"`{self._name(leaf)}`"))

    # Results

    def refuse_module_access(self, file: str) -> None:
        # A program that asks for `typeof define` reads it only where it is there; `require` is refused all the same.
        reads = [read for read in self._reads if read[1] == "require" or read[1] not in self._asked]
        for at, name, wording in sorted(self._loads + reads):
            if not self._is_shadowed(name, at):
                line, column = self.position(at)
                raise ProgramError(
                    "module_access_denied",
                    f"{wording} is not available ({file}:{line}:{column}): a program has no modules. "
                    "Use the globals MCP, tools and API, and the JavaScript built-ins.",
                )

    def permit(self, at: int, name: str) -> bool:
        """Let the export pass that begins at `at`. False where its `name` is the program's own, so that it is none."""
        if any(span.start <= at < span.end for span in self._declared.get(name, ())):
            return False
        self._loads = [load for load in self._loads if load[0] != at]
        return True

    def receive(self, function: Node) -> None:
        """Take what a function is called with, one object of the globals, for the globals."""
        pattern = next(iter(parameters(function)), None)
        if pattern is None:
            return
        parts = pattern.named_children if pattern.type == "object_pattern" else [pattern]
        for part in parts:
            match part.type:
                case "shorthand_property_identifier_pattern" | "object_assignment_pattern":
                    name = part if part.type == "shorthand_property_identifier_pattern" else part.children[0]
                    spans = self._declared.get("MCP", [])
                    if self._name(name) == "MCP" and span_of(function) in spans:
                        spans.remove(span_of(function))
                case "comment":
                    continue
                case "pair_pattern" if self._name(part.children[0]) not in _REACHES_MCP:
                    continue
                case "identifier" if self._name(part) == "MCP":
                    continue  # what is a member of it is no server
                case _:
                    self._is_passed_on = True

    def servers(self) -> frozenset[str] | None:
        if self._is_passed_on:
            return None
        names = {use.server for use in self._own_uses()}
        return None if None in names else frozenset(name for name in names if name is not None)

    def member_calls(self) -> tuple[MemberCall, ...]:
        calls = []
        for use in self._own_uses():
            server, member = use.server, use.member
            if server is None or not use.checked or (server, None) in self._probed or (server, member) in self._probed:
                continue
            if use.operation is not None and (server, f"{member}.{use.operation}") in self._probed:
                continue
            line, column = self.position(use.at)
            inspected = server in self._inspected
            calls.append(MemberCall(server, None if inspected else member, line, column, use.operation))
        return tuple(calls)

    def _own_uses(self) -> Iterator[_Use]:
        return (use for use in self._uses if not self._is_shadowed("MCP", use.at))

    def _is_shadowed(self, name: str, at: int) -> bool:
        spans = self._shadows.get(name)
        if spans is None:
            return False
        nearest = bisect_right(spans, at, key=lambda span: span.start) - 1
        return nearest >= 0 and at < spans[nearest].end

    @functools.cached_property
    def _shadows(self) -> dict[str, list[Span]]:
        """Return where each declared name hides the global one: scopes nest, so the outermost suffice, sorted."""
        merged: dict[str, list[Span]] = {}
        for name, spans in self._declared.items():
            outermost: list[Span] = []
            for span in sorted(spans, key=lambda span: (span.start, -span.end)):
                if not outermost or span.start >= outermost[-1].end:
                    outermost.append(span)
            merged[name] = outermost
        return merged

    def position(self, at: int) -> tuple[int, int]:
        return self._lines.position(at)

    @functools.cached_property
    def _lines(self) -> Lines:
        return Lines(self._units)

    # Modules

    def _module_syntax(self, path: list[Node], scope: Scope) -> None:
        leaf, parent = path[-1], path[-2].type
        if parent == "import":  # the keyword as an expression is a node of its own
            parent = path[-3].type
        start, _ = span_of(leaf)
        if parent == "export_statement" or parent == "import_alias":
            if scope.namespace and path[-2].child_by_field_name("source") is None:
                return
            wording = f"`{leaf.type}`"
        elif parent == "import_statement":
            wording = "`import`"
        elif parent == "call_expression":
            wording = "`import()`"
        elif parent == "meta_property":
            wording = "`import.meta`"
        else:
            # The tree is broken here: only what reads like a declaration counts.
            stray = _STRAY_IMPORT if leaf.type == "import" else _STRAY_EXPORT
            before = self._units[max(0, start - 80) : start].rstrip()
            if before.endswith(".") or stray.match(self._units, start) is None:
                return
            wording = f"`{leaf.type}`"
        self._loads.append((start, leaf.type, wording))

    # References

    def _reference(self, path: list[Node], scope: Scope) -> None:
        leaf, parent = path[-1], path[-2]
        name, at = self._name(leaf), span_of(leaf).start
        is_object = parent.type in MEMBER_ACCESS and parent.start_byte == leaf.start_byte
        member = self._member(parent) if is_object else None
        match name:
            case "MCP":
                self._mcp(path, scope)
            case "API":
                server = self._declarations_read(path) if member == "read" else None
                self._uses.append(_Use(at, server))
            case "eval" | "Function":
                self._uses.append(_Use(at, None))
            case "globalThis":
                if not is_object or member is None or member in _REACHES_MCP:
                    self._uses.append(_Use(at, None))
                elif member == "require":
                    self._loads.append((at, name, "`require`"))
                elif member in _LOADERS and _is_target(path, len(path) - 2):
                    self._declared.setdefault(member, []).append(span_of(path[0]))
            case "exports":
                if is_object and path[-3].type == "assignment_expression" and path[-3].start_byte == leaf.start_byte:
                    self._loads.append((at, name, "`exports`"))
            case _ if name in _LOADER_CALLS and _is_callee(leaf, parent):
                self._loads.append((at, name, f"`{name}()`"))
            case _ if member is not None and member in _LOADER_MEMBERS.get(name, ()):
                self._loads.append((at, name, f"`{name}.{member}`"))
            case _ if name in _LOADERS:
                self._loader(path, name, member)

    def _loader(self, path: list[Node], name: str, member: str | None) -> None:
        """Take in a loader's name that is used as a value. Assigning to it makes it the program's own, as declaring
        does."""
        parent = path[-2]
        if name != "require" and (
            (parent.type == "assignment_expression" and _is_target(path, len(path) - 1))
            or (parent.type == "for_in_statement" and parent.child_by_field_name("left") == path[-1])
        ):
            self._declared.setdefault(name, []).append(span_of(path[0]))
            return
        around = path[_outermost(path, len(path) - 1, _TRANSPARENT) - 1]
        if self._operator(around) == "typeof":
            self._asked.add(name)
        elif parent.type not in _NO_READ and parent.type not in PATTERNS:
            wording = f"{name}()" if _is_callee(path[-1], parent) else name if member is None else f"{name}.{member}"
            self._reads.append((span_of(path[-1]).start, name, f"`{wording}`"))

    def _declarations_read(self, path: list[Node]) -> str | None:
        """Return the server whose declarations `API.read("mcp/x.d.ts")` asks for; no server's is the index, or
        unknown."""
        call = path[-3]
        arguments = call.child_by_field_name("arguments") if call.type == "call_expression" else None
        if arguments is None or arguments.named_child_count != 1:
            return None
        literal = self._literal(arguments.named_children[0])
        file = _DECLARATION_FILE.fullmatch(literal) if literal is not None else None
        return file[1] if file is not None and file[1] != "index" else None

    def _mcp(self, path: list[Node], scope: Scope) -> None:
        at, parent = span_of(path[-1]).start, path[-2]
        if parent.type in MEMBER_ACCESS and parent.start_byte == path[-1].start_byte:
            server = self._member(parent)
            if server is None or server == "$api" or server in OBJECT_PROTOTYPE:
                self._uses.append(_Use(at, None))
            else:
                self._server(path, scope, at, server)
        elif parent.type == "variable_declarator":
            self._destructured(parent, at, scope)
        elif self._operator(parent) == "in":
            server = self._literal(parent.children[0])
            self._uses.append(_Use(at, server))
            if server is not None:
                self._probed.add((server, None))
        elif self._operator(parent) != "typeof":
            self._uses.append(_Use(at, None))

    def _server(self, path: list[Node], scope: Scope, at: int, server: str) -> None:
        """`MCP.<server>` was read; look at what is done with it."""
        index = _outermost(path, len(path) - 2, {"non_null_expression"})
        optional = _is_optional(path[-2])
        user = path[index - 1]
        if user.type in MEMBER_ACCESS and user.start_byte == path[index].start_byte:
            optional = optional or _is_optional(user)
            member = self._member(user)
            index = _outermost(path, index - 1, {"non_null_expression"})
            if member in GROUPS and self._operation(path, scope, at, (server, member), index, optional):
                return
            if _is_callee(path[index], path[index - 1]):
                guarded = optional or _is_optional(path[index - 1])
            else:
                guarded = optional or self._is_tested(path, index) or _is_target(path, index)
                if guarded and member is not None:
                    self._probed.add((server, member))
                member = None
        else:
            member = None
            guarded = optional or self._is_tested(path, index) or _is_target(path, index)
            if self._operator(user) == "in":
                guarded = True
                tested = self._literal(user.children[0])
                if tested is None:
                    self._inspected.add(server)
                else:
                    self._probed.add((server, tested))
            elif guarded:
                self._probed.add((server, None))
            elif user.type in {"arguments", "spread_element", "for_in_statement"}:
                self._inspected.add(server)
        if optional:
            self._probed.add((server, None))
        self._uses.append(_Use(at, server, member, checked=not (guarded or scope.caught)))

    def _operation(
        self, path: list[Node], scope: Scope, at: int, group: tuple[str, str], index: int, optional: bool
    ) -> bool:
        """`MCP.<server>.resources` was read; whether what is done with it is that it is called by a member of its own,
        or that one is asked about."""
        user = path[index - 1]
        server, member = group
        if self._operator(user) == "in" and user.start_byte != path[index].start_byte:
            tested = self._literal(user.children[0])
            self._probed.add((server, member if tested is None else f"{member}.{tested}"))
            self._probed.add((server, member))
            self._uses.append(_Use(at, server))
            return True
        if user.type not in MEMBER_ACCESS or user.start_byte != path[index].start_byte:
            return False
        guarded = optional or _is_optional(user)
        if guarded:
            self._probed.add(group)
        if optional:
            self._probed.add((server, None))
        operation = self._member(user)
        index = _outermost(path, index - 1, {"non_null_expression"})
        if _is_callee(path[index], path[index - 1]):
            guarded = guarded or _is_optional(path[index - 1])
        elif self._is_tested(path, index) or _is_target(path, index):
            guarded = True
            if operation is not None:
                self._probed.add((server, f"{member}.{operation}"))
        else:
            operation = None
        self._uses.append(_Use(at, server, member, operation, checked=not (guarded or scope.caught)))
        return True

    def _destructured(self, declarator: Node, at: int, scope: Scope) -> None:
        """`const { github } = MCP`."""
        pattern = declarator.child_by_field_name("name")
        if pattern is None or pattern.type != "object_pattern":
            self._uses.append(_Use(at, None))
            return
        for part in pattern.named_children:
            name: str | None = None
            has_default = False
            match part.type:
                case "shorthand_property_identifier_pattern":
                    name = self._text(part)
                case "object_assignment_pattern":
                    name, has_default = self._text(part.children[0]), True
                case "pair_pattern":
                    key, value = part.children[0], part.child_by_field_name("value")
                    name = self._text(key) if key.type == "property_identifier" else self._literal(key)
                    has_default = value is not None and value.type == "assignment_pattern"
                case "comment":
                    continue
            if name == "$api":
                name = None
            self._uses.append(_Use(at, name, checked=not (has_default or scope.caught)))

    # Reading the tree

    def _text(self, node: Node) -> str:
        start, end = span_of(node)
        return self._units[start:end]

    def _name(self, node: Node) -> str:
        """Return the name of an identifier, without escapes."""
        return _unescaped(self._text(node))

    def _member(self, access: Node) -> str | None:
        """Return the static name in `x.name`, `x["name"]` or a template without parts."""
        if access.type == "member_expression":
            name = access.child_by_field_name("property")
            return self._name(name) if name is not None and name.type == "property_identifier" else None
        index = access.child_by_field_name("index")
        return self._literal(index) if index is not None else None

    def _literal(self, node: Node) -> str | None:
        text = self._text(node)
        if node.type not in {"string", "template_string"} or "\\" in text or "${" in text:
            return None
        return text[1:-1]

    def _operator(self, node: Node) -> str | None:
        operator = node.child_by_field_name("operator")
        return operator.type if operator is not None else None

    def _is_tested(self, path: list[Node], index: int) -> bool:
        """Return True if the expression at `path[index]` is only asked about, not used."""
        while path[index - 1].type in _TRANSPARENT:
            index -= 1
        node, user = path[index], path[index - 1]
        match user.type:
            case "unary_expression":
                return self._operator(user) in {"!", "typeof", "delete"}
            case "binary_expression":
                return self._operator(user) in _TESTING_OPERATORS
            case "ternary_expression":
                return user.start_byte == node.start_byte
        return user.type in _CONDITIONAL_STATEMENTS


def _unescaped(name: str) -> str:
    return _ESCAPE.sub(_unescaped_character, name) if "\\" in name else name


def _unescaped_character(match: re.Match[str]) -> str:
    code = int(match[1] or match[2], 16)
    return chr(code) if code <= 0x10FFFF else match[0]


def _outermost(path: list[Node], index: int, kinds: Collection[str]) -> int:
    while path[index - 1].type in kinds:
        index -= 1
    return index


def _is_callee(node: Node, user: Node) -> bool:
    return user.type == "call_expression" and user.start_byte == node.start_byte


def _is_optional(node: Node) -> bool:
    return any(child.type in {"optional_chain", "?."} for child in node.children)


def _is_target(path: list[Node], index: int) -> bool:
    user = path[index - 1]
    return user.type == "assignment_expression" and user.start_byte == path[index].start_byte
