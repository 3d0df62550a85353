"""Every sentence a model reads before it has run anything: the two tools and the instructions, within one byte budget.

Names, descriptions and input schemas of both tools together stay within `TOOLS_BYTES` whatever is configured, the
instructions within `INSTRUCTIONS_BYTES` (SPEC 3.6).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.settings import Language

TOOLS_BYTES = 2200
INSTRUCTIONS_BYTES = 1000
PROMPTS_BYTES = 1000
"""Of the namespaces of plugins, beyond `TOOLS_BYTES`."""
OUTPUT_SCHEMA_BYTES = 900

_EXEC = """\
Run a {languages} program (the body of an async function) in a sandbox. It reaches the tools of these MCP servers:
{servers}
- Call: const r = await MCP.server.tool({{...}}); r is the MCP result; unwrap(r) gives its data, throws on isError.
- Read types first: (await API.read("mcp/<server>.d.ts")).content; \
"mcp/<server>.d.ts#tool" is one tool. All files: API.list(). Find tools: await API.search("what you need").
- return a value (JSON), print with text(v)/json(v), show images with image(block). Do loops, joins, filters here; \
run independent calls with Promise.all. Return only what you need.
- Other tools (of plugins; to ask the user or the client's model): ALL_TOOLS, tools.search("..."), \
await tools.call(id, input) gives the plain value.
- store(key, v) and await load(key) keep values for later programs. No network, files, modules.
If the result has status "waiting", go on with wait."""

_WAIT = """\
Go on with a program that exec left "waiting": waits for its pending calls and returns the next result. \
cancel: true ends it; fromStart: true gives all output again."""

_INSTRUCTIONS = """\
Other MCP servers are behind two tools here. exec runs a {languages} program in which every tool of every server is a \
function: await MCP.server.tool({{...}}), typed by API.read("mcp/<server>.d.ts"), found by API.search("..."). Combine \
many calls in one program and return only what matters. A result with status "waiting" carries a runId: pass it to wait.
{servers}"""

_PASSTHROUGH = """\
The tools of several MCP servers, each under the name of its server: <server>__<tool>.{servers}"""

OUTPUT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["completed", "waiting", "failed"]},
        "value": {},
        "output": {"type": "array", "items": {"type": "object"}},
        "runId": {"type": "string"},
        "reason": {"type": "string"},
        "pendingToolCalls": {"type": "array", "items": {"type": "object"}},
        "error": {"type": "string"},
        "code": {"type": "string"},
        "notes": {"type": "array", "items": {"type": "string"}},
        "next": {"type": "string"},
    },
    "required": ["status"],
}


def exec_schema(languages: Sequence[Language]) -> dict[str, Any]:
    """Input schema of `exec`."""
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string", "description": "The program"},
            "language": {"type": "string", "enum": list(languages)},
        },
        "required": ["code"],
        "additionalProperties": False,
    }


WAIT_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "runId": {"type": "string"},
        "cancel": {"type": "boolean"},
        "fromStart": {"type": "boolean"},
    },
    "required": ["runId"],
    "additionalProperties": False,
}


def exec_description(
    servers: Sequence[str], languages: Sequence[Language], prompts: Sequence[tuple[str, str]] = ()
) -> str:
    """Description of `exec`; `servers` are guest identifiers, listed while they fit. `prompts`: see
    `namespace_prompts`."""
    spoken = _languages(languages)
    used = sum(
        _size(text)
        for text in (
            "exec",
            "wait",
            _EXEC.format(languages=spoken, servers=""),
            _WAIT,
            json.dumps(exec_schema(languages)),
            json.dumps(WAIT_SCHEMA),
        )
    )
    return _EXEC.format(languages=spoken, servers=_listed(servers, TOOLS_BYTES - used)) + namespace_prompts(prompts)


def namespace_prompts(prompts: Sequence[tuple[str, str]]) -> str:
    """What `exec` says of the namespaces of plugins: their global names, and of each the prompt, which may be empty.

    All of it takes `PROMPTS_BYTES` at most: prompts share them, and those that there is no room for are named or
    counted.
    """
    if not prompts:
        return ""
    # First those that say something: names alone are found in API.list() too.
    lines = [
        f"\n- {name}{': ' if said else ''}{said}"
        for name, prompt in sorted(prompts, key=lambda each: not each[1].strip())
        for said in (" ".join("".join(c if c.isprintable() else " " for c in prompt).split()),)
    ]
    text = "\nGlobals of plugins, beside MCP:"
    more = f"\n- {len(lines)} more, see API.list()"
    left = PROMPTS_BYTES - _size(text)
    if sum(map(_size, lines)) > left:
        # What the short ones leave is for the long ones.
        left -= _size(more)
        for done, number in enumerate(sorted(range(len(lines)), key=lambda number: _size(lines[number]))):
            lines[number] = _cut_bytes(lines[number], max(_LEAST_PROMPT, left // (len(lines) - done)))
            left -= _size(lines[number])
    for number, line in enumerate(lines):
        after = sum(map(_size, lines[number + 1 :]))
        room = PROMPTS_BYTES - _size(text)
        if _size(line) + min(after, _size(more)) > room:
            return text + f"\n- {len(lines) - number} more, see API.list()"
        text += line
    return text


def wait_description() -> str:
    """Description of `wait`."""
    return _WAIT


def instructions(servers: Sequence[str], languages: Sequence[Language]) -> str:
    """The server's `instructions`; `servers` are those that every client may know of."""
    spoken = _languages(languages)
    if not servers:
        return _INSTRUCTIONS.format(languages=spoken, servers="The description of exec names the servers.")
    room = INSTRUCTIONS_BYTES - _size(_INSTRUCTIONS.format(languages=spoken, servers="")) - _size("Servers: .")
    return _INSTRUCTIONS.format(languages=spoken, servers=f"Servers: {_listed(servers, room)}.")


def passthrough_instructions(servers: Sequence[str]) -> str:
    """The server's `instructions` in pass-through mode; `servers` are the configured names that every client may know
    of."""
    if not servers:
        return _PASSTHROUGH.format(servers="")
    room = INSTRUCTIONS_BYTES - _size(_PASSTHROUGH.format(servers=" Servers: ."))
    return _PASSTHROUGH.format(servers=f" Servers: {_listed(servers, room, more='')}.")


def _languages(languages: Sequence[Language]) -> str:
    names = {"javascript": "JavaScript", "typescript": "TypeScript"}
    return " or ".join(names[language] for language in languages)


def _listed(servers: Sequence[str], room: int, more: str = ", see API.list()") -> str:
    """`a, b, c`, or as many as there is room for and how many more there are."""
    if not servers:
        return "none"
    whole = ", ".join(servers)
    if _size(whole) <= room:
        return whole
    shown: list[str] = []
    for name in servers:
        tail = f" and {len(servers) - len(shown) - 1} more{more}"
        if _size(", ".join([*shown, name]) + tail) > room:
            break
        shown.append(name)
    if not shown:
        return f"{len(servers)} servers{more}"
    return f"{', '.join(shown)} and {len(servers) - len(shown)} more{more}"


def listed_bytes(tools: Iterable[Mapping[str, Any]]) -> int:
    """Of tools as `tools/list` has them, each as compact JSON."""
    return sum(_size(_compact(tool)) for tool in tools)


def prompt_bytes(tools: Iterable[Mapping[str, Any]]) -> int:
    """Of what clients put into a prompt for such tools: name, description and input schema, as model APIs take them."""
    return sum(
        _size(
            _compact(
                {
                    "name": tool["name"],
                    "description": tool.get("description") or "",
                    "input_schema": tool.get("inputSchema", {"type": "object"}),
                }
            )
        )
        for tool in tools
    )


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_LEAST_PROMPT = 100
"""Bytes of a name and its prompt that are worth showing."""


def _cut_bytes(text: str, limit: int) -> str:
    if _size(text) <= limit:
        return text
    return text.encode()[: max(0, limit - 3)].decode("utf-8", "ignore").rstrip() + "…"


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
