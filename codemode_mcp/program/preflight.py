"""Findings about a program before it runs: module access, the `MCP` members it uses, its implicit `return`.

Pure: text in, findings out. tree-sitter is used to *find* things, never to judge syntax, for it refuses some valid
code; a syntax error is the engine's or esbuild's verdict. Its TypeScript grammar reads both languages. Nothing here
is a security boundary: what the parser cannot make sense of is let through, and the sandbox refuses it at run time.

Roads not taken: queries with `Node.parent` (each step up starts at the root again, so hostile nesting makes them
quadratic); UTF-8 offsets (JavaScript counts UTF-16 units, so the parser is given UTF-16 and nothing is converted).
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codemode_mcp.did_you_mean import nearest, plain
from codemode_mcp.errors import ProgramError
from codemode_mcp.program.program_form import CALL, parameters, whole_function
from codemode_mcp.program.source_map import Grown
from codemode_mcp.program.syntax import (
    FUNCTIONS,
    LINE_END,
    Lines,
    Span,
    from_utf16_units,
    parse,
    span_of,
    utf16_units,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from tree_sitter import Node, Tree

    from codemode_mcp.settings import Language

__all__ = ["MemberCall", "Preflight", "check_members", "has_types", "inspect", "looks_like_shell"]

CELL_FILES: dict[Language, str] = {"javascript": "cell.js", "typescript": "cell.ts"}
"""File names of the program in positions."""

_MAX_REPORTED = 5
_MAX_NEAREST = 3
_MAX_LISTED = 12


@dataclass(frozen=True, slots=True)
class MemberCall:
    """One use of `MCP.<server>` or call of `MCP.<server>.<member>` that the program does not guard itself."""

    server: str
    member: str | None
    """`None`: the server alone is used, so nothing is known of its members here."""
    line: int
    """1-based, as JavaScript counts lines."""
    column: int
    """1-based, in UTF-16 units."""
    operation: str | None = None
    """The called operation of `MCP.<server>.resources` or `.prompts`, which is the member then."""


@dataclass(frozen=True, slots=True)
class Called:
    """A program that is one function, with the call of it."""

    text: str
    plain: str
    """The program without the words of an export, for when `text` does not parse."""
    inserted: Grown
    """Edits that made `text` longer than the author's, apart from its last line."""
    note: str


@dataclass(frozen=True, slots=True)
class Preflight:
    """The findings."""

    source: str
    returning: str | None
    """The source with the implicit `return` put in on the same lines; `None` when there is nothing to return."""
    servers: frozenset[str] | None
    """Servers used as `MCP.<x>`; `None` when unknown, so that all servers may be meant."""
    member_calls: tuple[MemberCall, ...]
    returned_at: tuple[int, int] | None = None
    """Start of the returned expression, as line and column of `source`."""
    broken: bool = False
    """The parser stumbles, or gives up: the program may be wrong, or more than the body of one function."""
    called: Called | None = None
    """The program to run instead, where this one is a function that its reader is expected to call."""

    def author_position(self, line: int, column: int) -> tuple[int, int]:
        """Return the position in `source` of one in `returning`: the inserted text stands on one line only."""
        return (line, column) if self.inserted is None else self.inserted(line, column)

    @property
    def inserted(self) -> Grown | None:
        """Return where `returning` is longer than `source`."""
        return None if self.returned_at is None else Grown(*self.returned_at, len(_RETURN))


_TYPES = words(
    "abstract_class_declaration accessibility_modifier ambient_declaration as_expression enum_declaration "
    "implements_clause interface_declaration internal_module non_null_expression optional_parameter predefined_type "
    "satisfies_expression type_alias_declaration type_annotation type_parameters"
)
"""Nodes that TypeScript has and JavaScript has not. `a<b>(c)` is both, and counts only with a type such as `string`."""


def has_types(source: str) -> bool:
    """Return whether a program is TypeScript, by syntax that JavaScript has not."""
    tree = parse(utf16_units(source))
    if tree is None:
        return False
    cursor = tree.root_node.walk()
    while True:
        node = cursor.node
        if node is not None and node.type in _TYPES:
            return True
        if cursor.goto_first_child() or cursor.goto_next_sibling():
            continue
        while cursor.goto_parent():
            if cursor.goto_next_sibling():
                break
        else:
            return False


_ODD_SPACE = re.compile("[\v\f\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\ufeff]")
_LONE_RETURN = re.compile("\r(?!\n)")
"""White space of JavaScript that the parser does not know. What stands for it here is as long."""


def inspect(source: str, language: Language) -> Preflight:
    """Parse the program once and collect everything.

    Raises:
        ProgramError: `module_access_denied`, with the first position, for any module-loader pattern.
    """
    units = utf16_units(source)
    tree = parse(_ODD_SPACE.sub(" ", _LONE_RETURN.sub("\n", units)))
    if tree is None:
        return Preflight(source, None, None, (), broken=True)
    finder = _Finder(units)
    finder.read(tree)
    called = _called(units, tree.root_node, finder)
    finder.refuse_module_access(CELL_FILES[language])
    span = None if finder.returns else _returned_span(units, tree.root_node)
    returning = None
    if span is not None:
        returning = f"{units[: span.start]}{_RETURN}{units[span.start : span.end]}){units[span.end :]}"
    return Preflight(
        source=source,
        returning=None if returning is None else from_utf16_units(returning),
        servers=finder.servers(),
        member_calls=finder.member_calls(),
        returned_at=None if span is None else finder.position(span.start),
        broken=tree.root_node.has_error,
        called=called,
    )


def _called(units: str, root: Node, finder: _Finder) -> Called | None:
    """Return the program with a call of its only function, or None if it is an ordinary program."""
    found = None if finder.returns else whole_function(units, root)
    if found is None or (found.exported is not None and not finder.permit(found.statement, found.exported)):
        return None
    finder.receive(found.node)
    return Called(
        text=from_utf16_units(found.called(units)),
        plain=from_utf16_units(found.plain(units)),
        inserted=Grown(*finder.position(found.value.start), len(CALL)),
        note=found.note,
    )


def check_members(found: Preflight, members: Mapping[str, Collection[str] | None], language: Language) -> None:
    """Refuse direct uses of servers and members that do not exist, so that a typo costs no side effect.

    Args:
        found: what `inspect` gave.
        members: every known server, by identifier and by alias, with its member names, among them `resources` and
            `resources.read` where it has them; `None` while they are unknown.
        language: for the positions.

    Raises:
        ProgramError: `invalid_input`, one line per distinct mistake (at most five), with the nearest names.
    """
    mistakes: dict[tuple[str, ...], str] = {}
    key: tuple[str, ...]
    for call in found.member_calls:
        if call.server not in members:
            key, problem = (call.server,), _unknown_server
        elif call.member is None:
            continue
        elif _is_unknown(call.member, members[call.server]):
            key, problem = (call.server, call.member), _unknown_member
        elif call.operation is not None and _is_unknown(f"{call.member}.{call.operation}", members[call.server]):
            key, problem = (call.server, call.member, call.operation), _unknown_operation
        else:
            continue
        if key not in mistakes:
            if len(mistakes) == _MAX_REPORTED:
                break
            mistakes[key] = problem(call, members, f"{CELL_FILES[language]}:{call.line}:{call.column}")
    if mistakes:
        raise ProgramError("invalid_input", "\n".join(mistakes.values()))


# --- Messages --------------------------------------------------------------------------------------------------------

_OBJECT_PROTOTYPE = words(
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf __proto__ "
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__"
)
_ALWAYS_THERE = _OBJECT_PROTOTYPE | {"$api"}
"""Members that are ours or the language's, never a tool."""
_GROUPS = frozenset(("resources", "prompts"))
"""Members that have members, on servers that have them."""

_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


def _is_unknown(member: str, names: Collection[str] | None) -> bool:
    return names is not None and member.rpartition(".")[2] not in _ALWAYS_THERE and member not in names


def _unknown_server(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    text = f"{_expression(call.server)} does not exist ({position})."
    if not members:
        return f"{text} No MCP server is configured."
    meant = _tools_named(call.server, members)
    if meant and call.server in _CALLERS:
        text += f" Tools are functions: write MCP.<server>.<tool>({{...}}), such as {meant[0]}."
    elif meant:
        return f"{text} Write {' or '.join(meant)}."
    return f'{text} {_suggest(call.server, members, "Servers")} Read API.read("mcp/index.d.ts").'


def _unknown_member(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    member = call.member or ""
    names = members[call.server] or ()
    text = f"{_expression(call.server, member)} does not exist ({position})."
    if member in _GROUPS:
        return f"{text} This server has no {member}."
    tools = _tools(names)
    if member in _CALLERS and tools:
        text += f" Tools are functions: call them by name, such as {_expression(call.server, tools[0])}({{...}})."
    return (
        f"{text} {_suggest(member, [name for name in names if name not in _GROUPS], 'It has')} {_reading(call.server)}"
    )


_CALLERS = words("call callTool call_tool execute invoke request run tool")
"""Functions by which other systems call any tool."""


def _tools(names: Collection[str]) -> list[str]:
    """Return the names of a server's tools, each in one spelling."""
    return [name for name in _once(names) if name not in _GROUPS and "." not in name]


def _tools_named(name: str, members: Mapping[str, Collection[str] | None]) -> list[str]:
    """Return the calls that a program means which takes a tool, or a function that calls any, for a server."""
    servers = [(server, _tools(members[server] or ())) for server in _once(members)]
    if name in _CALLERS:
        return [f"{_expression(server, tools[0])}({{...}})" for server, tools in servers if tools][:1]
    found = [(server, tool) for server, tools in servers for tool in tools if plain(tool) == plain(name)]
    return [f"{_expression(*each)}({{...}})" for each in found[:_MAX_NEAREST]]


def _once(names: Collection[str]) -> list[str]:
    """Return names in order; of those that differ in case and punctuation alone, the identifier."""
    by_spelling: dict[str, str] = {}
    for name in _ordered(names):
        by_spelling.setdefault(plain(name), name)
    return sorted(by_spelling.values())


def _ordered(names: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: (_IDENTIFIER.fullmatch(name) is None, "_" in name, name))


def _unknown_operation(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    group, operation = call.member or "", call.operation or ""
    there = [name.removeprefix(f"{group}.") for name in members[call.server] or () if name.startswith(f"{group}.")]
    text = f"{_expression(call.server, group, operation)} does not exist ({position})."
    return f"{text} {_suggest(operation, there, 'There is')} {_reading(call.server)}"


def _reading(server: str) -> str:
    # Aliases are no file names; the index leads to the right file.
    file = server if re.fullmatch(r"[a-z][A-Za-z0-9]*", server) else "index"
    return f'Read API.read("mcp/{file}.d.ts").'


def _expression(*names: str) -> str:
    return "MCP" + "".join(f".{_cut(name)}" if _IDENTIFIER.fullmatch(name) else f'["{_cut(name)}"]' for name in names)


def _cut(name: str) -> str:
    printable = "".join(c if c.isprintable() else "?" for c in name[:80])
    return printable if len(name) <= 80 else printable + "..."


def _suggest(wanted: str, names: Collection[str], heading: str) -> str:
    near = _nearest(wanted, names)
    if near:
        return f"Nearest: {', '.join(near)}."
    if not names:
        return f"{heading}: none."
    once = _once(names)
    shown = once[:_MAX_LISTED]
    more = f" and {len(once) - len(shown)} more" if len(once) > len(shown) else ""
    return f"{heading}: {', '.join(map(_cut, shown))}{more}."


def _nearest(wanted: str, names: Collection[str]) -> list[str]:
    """Return the closest names, best first; of a name and its alias only the identifier."""
    return [_cut(name) for name in nearest(wanted, _ordered(names), count=_MAX_NEAREST)]


# --- Scopes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Scope:
    """Context of a node from the nodes around it."""

    function: Span | None
    """The nearest function; `None` at the top level."""
    block: Span
    """Span in which a `let` would be visible."""
    caught: bool = False
    """Inside a `try` that has a `catch`."""
    namespace: bool = False
    """Inside a TypeScript namespace, whose `export` is no module syntax."""
    declares: Span | None = None
    """Span in which a name declared here becomes visible."""


_BLOCKS = words("statement_block for_statement for_in_statement catch_clause switch_statement")
_ERASED = words(
    "type_annotation type_alias_declaration interface_declaration type_arguments type_parameters "
    "ambient_declaration type_query nested_type_identifier function_type constructor_type implements_clause "
    "index_signature"
)
"""Types and ambient declarations: gone before the program runs."""
_SKIPPED = _ERASED | {"comment", "html_comment", "string", "regex"}
_PATTERNS = words(
    "identifier shorthand_property_identifier_pattern object_pattern array_pattern pair_pattern rest_pattern "
    "assignment_pattern object_assignment_pattern"
)
_NAMED_DECLARATIONS = words(
    "function_declaration generator_function_declaration function_signature class_declaration "
    "abstract_class_declaration enum_declaration internal_module module"
)
_NAMED_EXPRESSIONS = words("function_expression generator_function class")
_MEMBER_ACCESS = frozenset(("member_expression", "subscript_expression"))


def _scope_of(node: Node, field: str | None, path: list[Node], scopes: list[_Scope]) -> _Scope:
    """Return the scope of `node`, which is about to be entered below `path[-1]`."""
    scope, kind = scopes[-1], node.type
    declares = _declared_span(kind, field, path, scopes)
    if declares is not scope.declares:
        scope = replace(scope, declares=declares)
    if kind in FUNCTIONS:
        return replace(scope, function=span_of(node), block=span_of(node))
    if kind in _BLOCKS:
        caught = scope.caught or (
            path[-1].type == "try_statement" and field == "body" and path[-1].child_by_field_name("handler") is not None
        )
        return replace(scope, block=span_of(node), caught=caught)
    if kind in {"internal_module", "module"}:
        return replace(scope, namespace=True)
    return scope


def _declared_span(kind: str, field: str | None, path: list[Node], scopes: list[_Scope]) -> Span | None:
    scope, parent = scopes[-1], path[-1].type
    if scope.declares is not None:
        return scope.declares if kind in _PATTERNS and field != "right" else None
    match parent, field:
        case "variable_declarator", "name":
            if path[-2].type == "variable_declaration":  # `var`
                return scope.function or span_of(path[0])
            return scope.block
        case (("required_parameter" | "optional_parameter"), "pattern"):
            return scope.block
        case (("arrow_function" | "catch_clause"), "parameter"):
            return scope.block
        case "for_in_statement", "left":
            return scope.block if path[-1].child_by_field_name("kind") is not None else None
        case _, "name" if parent in _NAMED_DECLARATIONS:
            return scopes[-2].block
        case _, "name" if parent in _NAMED_EXPRESSIONS:
            return span_of(path[-1])
    return None


def _leaves(root: Node, hits: list[int]) -> Iterator[tuple[list[Node], _Scope]]:
    """Yield the path from the root to every leaf that holds a hit, with its scope; both lists are reused.

    Subtrees without a hit are passed over, so the cost follows the words looked for, not the size of the source.
    No recursion: source may be nested deeper than Python's stack.
    """
    path, scopes = [root], [_Scope(function=None, block=span_of(root))]
    cursor = root.walk()
    if not cursor.goto_first_child():
        return
    while True:
        node = cursor.node
        if node is not None and node.type not in _SKIPPED and _holds(hits, span_of(node)):
            scopes.append(_scope_of(node, cursor.field_name, path, scopes))
            path.append(node)
            if cursor.goto_first_child():
                continue
            yield path, scopes[-1]
            path.pop()
            scopes.pop()
        while not cursor.goto_next_sibling():
            path.pop()
            scopes.pop()
            if not path:
                return
            cursor.goto_parent()


def _holds(hits: list[int], span: Span) -> bool:
    first = bisect_left(hits, span.start)
    return first < len(hits) and hits[first] < span.end


# --- What is looked for ----------------------------------------------------------------------------------------------

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


class _Finder:
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
        for path, scope in _leaves(tree.root_node, hits):
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

    def _module_syntax(self, path: list[Node], scope: _Scope) -> None:
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

    def _reference(self, path: list[Node], scope: _Scope) -> None:
        leaf, parent = path[-1], path[-2]
        name, at = self._name(leaf), span_of(leaf).start
        is_object = parent.type in _MEMBER_ACCESS and parent.start_byte == leaf.start_byte
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
        elif parent.type not in _NO_READ and parent.type not in _PATTERNS:
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

    def _mcp(self, path: list[Node], scope: _Scope) -> None:
        at, parent = span_of(path[-1]).start, path[-2]
        if parent.type in _MEMBER_ACCESS and parent.start_byte == path[-1].start_byte:
            server = self._member(parent)
            if server is None or server == "$api" or server in _OBJECT_PROTOTYPE:
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

    def _server(self, path: list[Node], scope: _Scope, at: int, server: str) -> None:
        """`MCP.<server>` was read; look at what is done with it."""
        index = _outermost(path, len(path) - 2, {"non_null_expression"})
        optional = _is_optional(path[-2])
        user = path[index - 1]
        if user.type in _MEMBER_ACCESS and user.start_byte == path[index].start_byte:
            optional = optional or _is_optional(user)
            member = self._member(user)
            index = _outermost(path, index - 1, {"non_null_expression"})
            if member in _GROUPS and self._operation(path, scope, at, (server, member), index, optional):
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
        self, path: list[Node], scope: _Scope, at: int, group: tuple[str, str], index: int, optional: bool
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
        if user.type not in _MEMBER_ACCESS or user.start_byte != path[index].start_byte:
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

    def _destructured(self, declarator: Node, at: int, scope: _Scope) -> None:
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


# --- Implicit return -------------------------------------------------------------------------------------------------

_RETURN = "return ("
_NO_STATEMENT = words("comment html_comment empty_statement")
_NO_EXPRESSION = re.compile(r"\{|(?:async\s+)?function(?![\w$])|class(?![\w$])|let\s*\[")
"""Starts that JavaScript reads as a block or declaration, though the tolerant parser sees an expression."""
_DIRECTIVE = re.compile(r"['\"]use \w+['\"]")
_KEYWORD_AS_NAME = re.compile(r"using|interface|abstract")
"""Words that the tolerant parser rejects as a whole statement."""


def _returned_span(units: str, root: Node) -> Span | None:
    """Return the expression that the last top-level statement is."""
    children = [child for child in root.children if child.type not in _NO_STATEMENT] if root.type == "program" else []
    if not children or (len(children) > 1 and _is_unfinished(units, children[-2])):
        return None
    statement = children[-1]
    if statement.type == "ERROR":
        span = span_of(statement)
        return span if _KEYWORD_AS_NAME.fullmatch(units, *span) else None
    if statement.has_error:
        return None
    after_function = _after_arrow_function(units, statement)
    if after_function is not None:
        return after_function
    if statement.type != "expression_statement":
        return None
    expression = statement.children[0]
    span = Span(expression.start_byte // 2, _end_of_code(expression))
    if not expression.is_named or expression.type in {"internal_module", "comment"}:
        return None
    if _DIRECTIVE.fullmatch(units, *span) and all(_is_string(child) for child in children):
        return None
    if span.start and re.match(r"[\w$]", units[span.start - 1]):
        return None  # f"text": two tokens, which `return` would make one
    return None if _NO_EXPRESSION.match(units, *span) else span


def _is_unfinished(units: str, statement: Node) -> bool:
    """Return True if what follows belongs to it: names after a line with only `let`, too, are declared."""
    return statement.type == "ERROR" or units[slice(*span_of(statement))] == "let"


def _is_string(statement: Node) -> bool:
    return statement.type == "expression_statement" and statement.children[0].type == "string"


def _after_arrow_function(units: str, statement: Node) -> Span | None:
    """Return what follows `f = () => {...}` on a new line without a semicolon. The tolerant parser takes `(` or `[`
    there for a call or an index, which an arrow function with a block cannot have: JavaScript ends the statement before
    it."""
    last = next(_code_backwards(statement), None)
    while last is not None:
        node, parent = last, None
        while node.type != "arrow_function" and node.child_count:
            node, parent = node.children[0], node
        if parent is not None and node.type == "arrow_function" and node.children[-1].type == "statement_block":
            rest = list(_code_backwards(parent))[-2]
            start, between = rest.start_byte // 2, units[node.end_byte // 2 : rest.start_byte // 2]
            is_start = units[start] in "([`+-" and LINE_END.search(between) is not None
            return Span(start, _end_of_code(statement)) if is_start else None
        last = next(_code_backwards(last), None)
    return None


def _end_of_code(node: Node) -> int:
    """Return where a node ends without the comments that the parser counts among a function's last parts."""
    last: Node | None = node
    while last is not None:
        node, last = last, next(_code_backwards(last), None)
    return node.end_byte // 2


def _code_backwards(node: Node) -> Iterator[Node]:
    """Yield the children of a node, the last one first."""
    return (child for child in reversed(node.children) if child.type not in _NO_STATEMENT and child.type != ";")


# --- Shell commands --------------------------------------------------------------------------------------------------

_COMMANDS = (
    "apt|apt-get|awk|aws|az|bash|brew|bun|cargo|cat|cd|chmod|chown|cmd|cp|curl|deno|df|diff|docker|du|echo|env|find|"
    "gcloud|gh|git|go|grep|head|jq|kill|kubectl|less|ls|make|man|mkdir|mv|mysql|nano|nc|node|npm|npx|ping|pip|pip3|pnpm|"
    "powershell|ps|psql|pwd|pwsh|pytest|python|python3|rg|rm|rsync|scp|sed|sh|sleep|sort|sqlite3|ssh|sudo|tail|tar|tee|"
    "terraform|test|time|touch|tree|tsc|unzip|uv|vim|wc|wget|which|whoami|xargs|yarn|zip|zsh"
)
_OPERATOR_WORDS = "in|instanceof|of|as|satisfies|is"
_SHELL_LINE = re.compile(
    rf"""
      \#!(?!.*\b(?:node|deno|bun|tsx|ts-node|zx)\b)                   # a script, but none of JavaScript
    | [$%]\ (?!(?:{_OPERATOR_WORDS})\b)(?:[A-Za-z_~/]|\./)             # a prompt
    | (?:[A-Z_][A-Z0-9_]*=\S*\ +)*+
      (?:
        (?:{_COMMANDS})                                               # a command with something that is no operand
        (?:
          \ +(?!(?:{_OPERATOR_WORDS})\b)
          (?:-{{1,2}}[A-Za-z]|-$|--[0-9]|-[0-9]+(?![\w.]|\ *(?:;|$))    # `kill -9;` alone is a subtraction
            |[~./]?/(?:\S|$)|\./|~|\.\.?(?:$|[\s/])|["'$\w*@]|\+[rwx]+\ )
        | \ +(?:-\ +)?<[<-]*\ *["']?[A-Za-z./][\w./-]*["']?(?=\s|$)    # its input
        | \ *(?:\|\|?|&&|;)\ *(?:{_COMMANDS})(?=$|\ +["'\w.~/-])         # and another command
        )
      | \.\.?/[\w.-]+(?:/[\w.-]+)*(?=\s|$) | (?:/[\w.-]+){{3,}}(?=\s|$)  # a file
      )
    | (?:bash|clear|date|env|exit|history|ls|make|printenv|pwd|sh|whoami|yarn|zsh)$
    | export\ [A-Za-z_]\w*= | alias\ [\w-]+=["'] | set\ -[a-z]+(?=\s|$) | source\ +[~./\w-]*[./] | \.\ +[~./\w]
    | (?:if|while)\ \[\[?\ | \[\[?\ +-[a-z]\ +["'$\w./] | for\ \w+\ in\ [^;]*;\ *do\b | while\ [^(;]+;\ *do\b
    | function\ +[\w-]+\ *\{{ | (?:Get|Set|New|Remove|Invoke|Select|Write)-[A-Z]\w+
    """,
    re.VERBOSE,
)


def looks_like_shell(source: str) -> str | None:
    """Guidance when the code is a shell command instead of a program, else `None`.

    Judged by the first line of code. A JavaScript statement of the same letters would need a variable named like the
    command, which nothing before the first line can have declared.
    """
    for line in source[:10_000].removeprefix("\ufeff").splitlines():
        text = line.strip()
        if not text or text.startswith(("# ", "//")):
            continue
        if _SHELL_LINE.match(text) is None:
            return None
        return (
            "This is a shell command; exec runs JavaScript or TypeScript, without a shell, files or processes. "
            'Call tools instead: return await MCP.<server>.<tool>({...}). API.search("...") finds them.'
        )
    return None
