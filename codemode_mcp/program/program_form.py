"""Programs in a Markdown fence or of one function, and hints for common mistakes. Pure.

Models keep habits of other systems: a fenced block, `async () => {...}`, `export default async function`. This module
recognises these forms and returns the intended program.

Removed text is replaced by spaces of the same length, so that positions stay the same. Text is inserted at one place of
one line, which `Insertion` undoes, and after the last line.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from msgspec import Struct

from codemode_mcp.base.errors import ProgramError
from codemode_mcp.program import syntax

if TYPE_CHECKING:
    from tree_sitter import Node

    from codemode_mcp.base.settings import Language
    from codemode_mcp.sandbox.messages import Thrown


__all__ = ["CALL", "Fenced", "WholeFunction", "take_fence", "whole_function"]

_NO_LINE_END = re.compile("[^\n\r\u2028\u2029]")


def _blank(text: str) -> str:
    return _NO_LINE_END.sub(" ", text)


# --- Fences ----------------------------------------------------------------------------------------------------------

FENCE = "```"
"""The characters without which there is no fence."""

_FENCE = re.compile(r"^\ufeff?[ \t]*+(?P<ticks>`{3,})[ \t]*+(?P<info>[^`\n]*+)$", re.MULTILINE)
_LABEL = re.compile(r"\{?\.?(?P<label>[A-Za-z][\w+#.-]*+)?+[ \t]*+(?:\{.*|\}|[\w-]+=.*)?")
"""The language, with attributes that some renderers take: `js {1,3}`, `{.js}`, `ts title="main.ts"`."""
_TYPESCRIPT = syntax.words("ts typescript tsx mts cts")
_PYTHON_LABELS = syntax.words("py python python3")
_SHELL = syntax.words("bash sh shell zsh console powershell")

_FENCED = "The program was in a Markdown fence; only the code in it was run."
_AMID_TEXT = "The program was in a Markdown fence with text around it; only the code in the fence was run."
_SEND_CODE = "send the code alone, without the lines of ```."


class Fenced(Struct, frozen=True):
    """The program in a fence.

    Attributes:
        source: the code at its original lines and columns.
        language: the language in the label of the fence; None for JavaScript and without a label.
        note: a sentence for the reader of the result.
    """

    source: str
    language: Language | None
    note: str


def take_fence(source: str) -> Fenced | None:
    """Return the code of the only fence in a text, or None if the text is a program.

    Raises:
        ProgramError: `invalid_input` for several fences, or for a fence with another language.
    """
    if FENCE not in source:
        return None
    fences = list(_FENCE.finditer(source))
    opens = source.removeprefix("\ufeff").lstrip().startswith(FENCE)
    if not fences or (opens and source[: fences[0].start()].strip("\ufeff \t\r\n")):
        if opens:
            raise ProgramError("invalid_input", f"The program is wrapped in a Markdown fence; {_SEND_CODE}")
        return None
    first, *others = fences
    if not opens and not _is_prose(source, first.start("ticks")):
        return None
    last = next((fence for fence in others if _closes(first, fence)), None)
    if last is None and not opens:
        return None
    if others and others[-1] is not last:
        raise ProgramError(
            "invalid_input",
            "There are several Markdown fences, and a program is one text. Put all of the code into one program and "
            + _SEND_CODE,
        )
    language = _language(first["info"].strip())
    end = len(source) if last is None else last.start()
    code = source[first.end() : end].removesuffix("\n").removesuffix("\r")
    if code[1:].startswith("#!"):
        code = f"{code[0]}//{code[3:]}"
    around = source[: first.start()] + ("" if last is None else source[last.end() :])
    note = _AMID_TEXT if around.strip("\ufeff \t\r\n") else _FENCED
    return Fenced(_blank(source[: first.end()]) + code, language, note)


def _closes(opening: re.Match[str], fence: re.Match[str]) -> bool:
    return not fence["info"].strip() and len(fence["ticks"]) >= len(opening["ticks"])


def _is_prose(source: str, at: int) -> bool:
    """Return True if a fence at `at` is not part of a comment, a string or a template of a program."""
    if source[:at].replace("\\`", "").count("`") % 2:
        return False
    tree = syntax.parse(syntax.utf16_units(source))
    if tree is None:
        return False
    start = 2 * len(syntax.utf16_units(source[:at]))
    node = tree.root_node.descendant_for_byte_range(start, start + 2)
    return node is None or node.type not in {"comment", "html_comment", "string", "string_fragment", "escape_sequence"}


def _language(info: str) -> Language | None:
    match = _LABEL.fullmatch(info)
    if match is None:
        raise ProgramError("invalid_input", f"The program is wrapped in a Markdown fence; {_SEND_CODE}")
    label = (match["label"] or "").lower()
    if label in _TYPESCRIPT:
        return "typescript"
    if label in _PYTHON_LABELS:
        raise ProgramError("invalid_input", PYTHON)
    if label in _SHELL:
        raise ProgramError(
            "invalid_input",
            "The code in the fence is for a shell; exec runs JavaScript or TypeScript, without a shell, files or "
            'processes. Call tools instead: return await MCP.<server>.<tool>({...}). API.search("...") finds them.',
        )
    return None


# --- Functions -------------------------------------------------------------------------------------------------------

CALL = "return ("
"""The text before the function in the program that is run."""

_GLOBALS = "globalThis"
_FUNCTION_VALUES = syntax.words("arrow_function function_expression")
_NO_CODE = syntax.words("comment html_comment empty_statement hash_bang_line")
_TYPES = syntax.words("type_alias_declaration interface_declaration ambient_declaration function_signature")
_EXPORTS = re.compile(r"(?:module\s*\.\s*exports|exports\s*\.\s*default|module\s*\.\s*exports\s*\.\s*default)")

_CALLED = "The program was one function; it was called for you"
_EXPORTED = "The program exported a function; it was called for you"
_LAST = "The program ended with a function; it was called for you"
_WITH_GLOBALS = ", with one object that has MCP, API, tools and the other globals."


class WholeFunction(Struct, frozen=True):
    """The function that a program is, or ends with.

    Attributes:
        statement: the offset of its statement, with `export default` or `module.exports =`.
        value: the expression that is called.
        node: the function.
        exported: the name that the export reads: `module` or `exports`, empty for `export default`; None without one.
        note: a sentence for the reader of the result.
    """

    statement: int
    value: syntax.Span
    node: Node
    exported: str | None
    note: str

    def plain(self, units: str) -> str:
        """Return the program without the keywords of the export."""
        return f"{units[: self.statement]}{_blank(units[self.statement : self.value.start])}{units[self.value.start :]}"

    def called(self, units: str) -> str:
        """Return the program with a call of the function. The end of the call is on a new last line."""
        start, end = self.value
        before = f"{units[: self.statement]}{_blank(units[self.statement : start])}"
        argument = _GLOBALS if syntax.parameters(self.node) else ""
        return f"{before}{CALL}{units[start:end]}{_blank(units[end:])}\n)({argument});"


def whole_function(units: str, root: Node) -> WholeFunction | None:
    """Return the function that the program expects its reader to call, or None.

    Args:
        units: the program, as `utf16_units` returns it.
        root: the root of its tree.
    """
    statements = [child for child in root.children if child.type not in _NO_CODE]
    if root.type != "program" or not statements or any(child.type == "ERROR" for child in statements):
        return None
    *before, last = statements
    match last.type:
        case "expression_statement":
            return _of_expression(units, before, last)
        case "function_declaration" if _declares_only_types(before):
            return _found(last, last, last, None, _CALLED)
        case "export_statement":
            return _of_export(units, before, last)
    return None


def _of_expression(units: str, before: list[Node], statement: Node) -> WholeFunction | None:
    expression = statement.children[0]
    if expression.type == "assignment_expression":
        left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
        if left is None or right is None or _EXPORTS.fullmatch(syntax.text_of(units, left)) is None:
            return None
        function = _function(units, before, right)
        name = "module" if syntax.text_of(units, left).startswith("module") else "exports"
        return None if function is None else _found(statement, right, function, name, _EXPORTED)
    function = _function(units, [], expression)
    note = _CALLED if _declares_only_types(before) else _LAST
    return None if function is None else _found(statement, expression, function, None, note)


def _of_export(units: str, before: list[Node], statement: Node) -> WholeFunction | None:
    declared, value = statement.child_by_field_name("declaration"), statement.child_by_field_name("value")
    if not any(child.type == "default" for child in statement.children):
        return None
    if declared is not None and declared.type == "function_declaration":
        return _found(statement, declared, declared, "", _EXPORTED)
    if value is None:
        return None
    function = _function(units, before, value)
    return None if function is None else _found(statement, value, function, "", _EXPORTED)


def _found(statement: Node, value: Node, function: Node, exported: str | None, note: str) -> WholeFunction:
    note += _WITH_GLOBALS if syntax.parameters(function) else "."
    return WholeFunction(syntax.span_of(statement).start, syntax.span_of(value), function, exported, note)


def _function(units: str, before: list[Node], value: Node) -> Node | None:
    """Return the function that an expression is, or that it names and a statement in `before` declares."""
    while value.type in syntax.TRANSPARENT and value.named_children:
        inside = next((child for child in value.named_children if child.type not in _NO_CODE), None)
        if inside is None:
            return None
        value = inside
    if value.type in _FUNCTION_VALUES:
        return value
    if value.type != "identifier":
        return None
    return next(
        (
            function
            for name, function in _functions(before)
            if syntax.text_of(units, name) == syntax.text_of(units, value)
        ),
        None,
    )


def _functions(statements: list[Node]) -> list[tuple[Node, Node]]:
    found = []
    for statement in statements:
        declarators = statement.named_children if statement.type == "lexical_declaration" else [statement]
        for declarator in declarators:
            name = declarator.child_by_field_name("name")
            made = declarator if declarator.type == "function_declaration" else declarator.child_by_field_name("value")
            if name is not None and made is not None and made.type in _FUNCTION_VALUES | {"function_declaration"}:
                found.append((name, made))
    return found


def _declares_only_types(statements: list[Node]) -> bool:
    return all(
        statement.type in _TYPES
        or (statement.type == "expression_statement" and statement.children[0].type == "string")
        for statement in statements
    )


# Hints for programs with mistakes that models often make.


_NETWORK = 'there is no network here; call a tool, API.search("...") finds one'
_HOST = "this is neither a browser nor Node.js; call a tool instead"
_PRINT = "print with text(value) or console.log(value)"
_GLOBAL = "the global object is globalThis"
_LIBRARY = "there are no libraries here; write it in plain JavaScript"
_PYTHON_NAME = "this is JavaScript, not Python"
_CALLS = "tools are functions: write MCP.<server>.<tool>({...})"
_LATER = "wait with await new Promise((r) => setTimeout(r, milliseconds))"

_HINTS = {
    **dict.fromkeys(("fetch", "XMLHttpRequest", "WebSocket", "EventSource", "axios", "Request", "Headers"), _NETWORK),
    **dict.fromkeys(("Response", "FormData"), _NETWORK),
    **dict.fromkeys(("AbortController", "AbortSignal"), "calls cannot be aborted; use Promise.race with a timer"),
    **dict.fromkeys(("process", "window", "document", "localStorage", "sessionStorage", "fs", "Deno"), _HOST),
    **dict.fromkeys(("Blob", "File", "ReadableStream", "Worker", "WebAssembly", "navigator", "location"), _HOST),
    **dict.fromkeys(("DOMParser", "path", "os", "util"), _HOST),
    **dict.fromkeys(("_", "lodash", "moment", "dayjs"), _LIBRARY),
    **dict.fromkeys(("setImmediate", "requestAnimationFrame"), "use setTimeout(callback, 0)"),
    **dict.fromkeys(("sleep", "delay", "wait"), _LATER),
    **dict.fromkeys(("callTool", "call_tool", "use_mcp_tool", "mcp_call", "call_mcp_tool", "invokeTool"), _CALLS),
    **dict.fromkeys(("print", "alert", "log", "output"), _PRINT),
    **dict.fromkeys(("global", "self"), _GLOBAL),
    **dict.fromkeys(("len", "range", "str", "dict"), _PYTHON_NAME),
    **{name: f"write {written}" for name, written in (("None", "null"), ("True", "true"), ("False", "false"))},
    "Intl": "it is there for programs whose own text names it; write Intl itself, not a name made of parts",
    "Buffer": "use atob(text) and btoa(text) for base64, new TextEncoder() and new TextDecoder() for bytes",
    "Temporal": "it is not available; use Date",
    "mcp": "the servers are in MCP, in capitals",
    "Mcp": "the servers are in MCP, in capitals",
    "api": "the declaration files are in API, in capitals",
}

_EARLY = "used before its declaration ends: is a semicolon missing before a line that starts with ` ( or [ ?"

_BIGINT = (
    "convert one of the two, with Number(n) or BigInt(n); integers beyond 2^53 are bigints, which Number(n) rounds: "
    "write 1n beside them, and sort with a < b ? -1 : 1"
)

_WORDINGS = {
    "this is not initialized": "call super(...) first",
    " is not initialized": _EARLY,
    "cannot read property 'digest' of undefined": "crypto has only randomUUID and getRandomValues",
    "cannot convert BigInt to number": _BIGINT,
    "bigint argument with unary +": _BIGINT,
}
"""Hints by the end of the engine's message."""

_NO_FUNCTION = re.compile(r"tools\.[\w$]+ is not a function")
_NO_TOOL = (
    "MCP tools are functions of MCP.<server>; others have a function only where their name is an identifier that no "
    'other tool has: see ALL_TOOLS, and call them with tools.call("<id>", input)'
)

NO_TOOL = f" ({_NO_TOOL})"
"""The default hint for a missing function of `tools`."""

_NO_JSON = "unwrap(result) returns data if a call returned JSON, and otherwise its text"

_UNDEFINED = re.compile(r"'?(\w+)'? is not defined")


_TOOL_MEMBER = re.compile(r"tools\.([\w$]+) is (?:undefined|not a function)")


def mistaken_names(thrown: Thrown, message: str) -> list[str]:
    """Return the names that a program may have taken for a tool or a server, the likeliest first.

    Args:
        message: the described error, which may say more than the engine's message.
    """
    match = _UNDEFINED.match(thrown.message) if thrown.name == "ReferenceError" else None
    if match is not None:
        return [] if match[1] in _HINTS else [match[1]]
    match = _TOOL_MEMBER.search(message) if thrown.name == "TypeError" else None
    return [] if match is None else [match[1]]


def hint(thrown: Thrown) -> str:
    """Return advice for an unknown name or a vague message of the engine, in parentheses; empty if there is none."""
    match = _UNDEFINED.match(thrown.message) if thrown.name == "ReferenceError" else None
    if match is not None:
        found = _HINTS.get(match[1])
    elif thrown.name == "SyntaxError" and "at parse (native)" in thrown.stack:
        found = _NO_JSON
    elif thrown.name == "TypeError" and _NO_FUNCTION.match(thrown.message):
        found = _NO_TOOL
    else:
        found = next((advice for wording, advice in _WORDINGS.items() if thrown.message.endswith(wording)), None)
    return "" if found is None else f" ({found})"


_PYTHON = re.compile(
    r"^(?:def \w+\([^\n]{0,200}?\)[^\n]{0,80}:|from [\w.]{1,200} import .{1,200}|import \w{1,200}(?: as \w{1,200})?"
    r"|(?:for|with|if|elif|while|class|try|except)\b[^{\n]{0,300}:)$",
    re.MULTILINE,
)
PYTHON = "this looks like Python; exec runs JavaScript or TypeScript"
_RESERVED = syntax.words(
    "break case catch class const continue debugger default delete do else enum export extends false finally for "
    "function if import in instanceof new null return super switch this throw true try typeof var void while with"
)


def looks_like_python(source: str) -> bool:
    """Return True if a whole line of a program is Python and cannot be JavaScript."""
    return _PYTHON.search(source) is not None


_PROGRAM_MEMBERS = ("code", "command", "script", "source", "program", "javascript", "js", "typescript", "ts")
"""Members of JSON that contain a program."""
_QUOTES = "\u2018\u2019\u201c\u201d\u2032\u2033"


def _declared_twice(text: str, before: str) -> str:
    """Return the variable that a line declares for the second time; empty if it is not exactly one."""
    names = Counter(_DECLARED.findall(text))
    earlier = set(_DECLARED.findall(before))
    found = {name for name, count in names.items() if count > 1 or name in earlier}
    name = next(iter(found)) if len(found) == 1 else ""
    return name if len(name) <= _MAX_NAME else ""


_MAX_NAME = 100
_DECLARED = re.compile(r"\b(?:let|const|class|var|function)\s+([\w$]+)")


def syntax_hint(source: str, line: int, column: int, message: str) -> str:
    """Return advice for a program with a syntax error, in parentheses; empty if there is none.

    Args:
        line: the 1-based line of the error.
        column: the 1-based column.
        message: the engine's message.
    """
    try:
        parsed = json.loads(source)
    except (ValueError, RecursionError):
        pass
    else:
        names = [name for name in _PROGRAM_MEMBERS if isinstance(parsed, dict) and isinstance(parsed.get(name), str)]
        if names:
            return f" (this is JSON; send the text of {names[0]} alone)"
        return " (this is JSON, not a program; write return (...) around it)"
    if looks_like_python(source):
        return f" ({PYTHON})"
    lines = syntax.LINE_END.split(source)
    text = lines[line - 1] if line <= len(lines) else ""
    word = re.match(r"\w*", text[column - 1 :])
    if message == "unexpected character" and len(text) >= column:
        straight = "; write \" or '" if text[column - 1] in _QUOTES else ""
        return f" ({text[column - 1]} is U+{ord(text[column - 1]):04X}{straight})"
    if message.startswith("invalid redefinition"):
        twice = _declared_twice(text, "\n".join(lines[max(0, line - 1000) : line - 1]))
        return f" ({twice} is declared twice; remove the second declaration, or rename it)" if twice else ""
    if message == "variable name expected" and word is not None and word[0] in _RESERVED:
        return f" ({word[0]} is a reserved word)"
    if word is not None and word[0] == "await":
        return " (await is allowed in async functions only; write async before the function)"
    return ""
