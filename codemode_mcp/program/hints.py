"""Hints for programs with mistakes that models often make. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import TYPE_CHECKING

from codemode_mcp.program.syntax import LINE_END, words

if TYPE_CHECKING:
    from codemode_mcp.sandbox.messages import Thrown

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
_RESERVED = words(
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
    lines = LINE_END.split(source)
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
