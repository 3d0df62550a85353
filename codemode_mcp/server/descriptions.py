"""The texts that a model reads before its first program, and `exec` and `wait` in `tools/list`.

Clients cut descriptions, search them by words, or show only the first line. So the first line of the description of
`exec` has the names of the servers as plain words, and then topics. The names, descriptions and input schemas of both
tools together take at most `TOOLS_BYTES` in every configuration; with namespaces of plugins, `TOOLS_BYTES_NAMESPACES`.
Each description and the instructions have limits of their own. Equal arguments give equal bytes.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.strict_json import compact_json
from codemode_mcp.base.text import utf8_size
from codemode_mcp.catalog.topics import plain_words
from codemode_mcp.rules.policy.policy import Caller, Policies
from codemode_mcp.server.profiles import Profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from codemode_mcp.base.settings import Language, ToolSettings


TOOLS_BYTES = 2200
TOOLS_BYTES_NAMESPACES = 2700
"""Limit of both tools with namespaces of plugins, including the descriptions and prompts of these."""
DESCRIPTION_BYTES = 2000
"""Limit of one description. Clients cut at 2,000 characters or more, and a character takes at least one byte."""
INSTRUCTIONS_BYTES = 1000
PROGRAMS_BYTES = 200
"""Limit of the line about saved programs in the description of `exec`."""

_EXEC = """\
Run a {languages} program with tools of these MCP servers: {servers}.{topics}
- code is the body of an async function: return what you need. Print: text(v), json(v); images: image(block).
- unwrap(await MCP.server.tool({{...}})) calls a tool: its data, a string if that is not JSON, or a thrown error.
- Read types first. One tool: await API.search("what you need", 3). Several: (await API.read("mcp/<server>.d.ts", \
...)).content, one line per tool if long; "mcp/<server>.d.ts#a,b" gives just these. Only names: await \
API.list("mcp/<server>").
- Loop, join and filter in the program; start independent calls in one Promise.all([...]).{plugins}
- store(key, v) keeps a value for later programs: await load(key). No network, files or modules.
- One exec has {seconds:g} s. Status "waiting": call wait with its runId."""

_PLUGINS = """
- Tools of plugins: ALL_TOOLS, tools.search("..."), await tools.call(id, input)."""

WAIT_DESCRIPTION = """\
Resume a program with status "waiting", by its runId. Returns the next result. cancel: true stops it; fromStart: true \
repeats all output."""

_INSTRUCTIONS = """\
Call the tools of other MCP servers from programs. exec runs a {languages} program; each tool of each server is a \
function in it: await MCP.server.tool({{...}}). Find tools and their types with API.search("..."), or read them with \
API.read("mcp/<server>.d.ts#<tool>"). Make many calls in one program, and return only what you need. If a result has \
status "waiting", call wait with its runId.
{servers}"""

_PASSTHROUGH = """\
The tools of several MCP servers. The name of each tool begins with its server: <server>__<tool>.{servers}"""

NOTHING_CONFIGURED = """\
There are no tools yet: no MCP server is configured. Tell the user how to add one: run "codemode-mcp add URL" \
for an MCP server or an HTTP API with an OpenAPI document, run "codemode-mcp import --write" to import the servers \
of other MCP clients, or add an entry to "mcpServers" in the configuration file, whose path "codemode-mcp doctor" \
prints. If that file existed when this process started, the tools appear without a restart."""
"""The server's `instructions` if neither a server nor a plugin is configured."""

_HOW_TO_LIST = ", see API.list()"
"""Words after "3 more": how a program lists everything."""

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
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string"},
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
    servers: Mapping[str, str],
    languages: Sequence[Language],
    namespaces: Sequence[tuple[str, str, str]] = (),
    topics: Sequence[str] = (),
    programs: Sequence[str] = (),
    plugins: bool = False,
    timeout_ms: int = 10_000,
) -> str:
    """Return the description of `exec`.

    Args:
        servers: configured names by identifier. As many as fit are listed.
        namespaces: see `namespace_lines`.
        topics: single words, the most distinctive first. As many as fit are shown, in alphabetical order.
        programs: names of saved programs. As many as fit into `PROGRAMS_BYTES` are listed.
        plugins: True if there are tools of plugins.
        timeout_ms: the time limit of one `exec`.
    """
    text = partial(
        _EXEC.format,
        languages=_languages(languages),
        plugins=_PLUGINS if plugins else "",
        seconds=timeout_ms / 1000,
    )
    schemas = json.dumps(exec_schema(languages)), json.dumps(WAIT_SCHEMA)
    others = sum(map(utf8_size, ("exec", "wait", WAIT_DESCRIPTION, *schemas)))
    fixed = utf8_size(text(servers="", topics=""))
    saved = _program_line(programs)
    fixed += utf8_size(saved)
    room = min(DESCRIPTION_BYTES, TOOLS_BYTES - others) - fixed
    listed = _server_words(servers, room)
    room -= utf8_size(listed)
    added = ""
    if namespaces:
        left = min(DESCRIPTION_BYTES, TOOLS_BYTES_NAMESPACES - others) - fixed - utf8_size(listed)
        reserved = utf8_size(_topics(topics, min(room, _MIN_TOPICS)))
        added = namespace_lines(namespaces, left - reserved)
        room = min(room, left - utf8_size(added))
    return text(servers=listed, topics=_topics(topics, room)) + saved + added


def _program_line(programs: Sequence[str]) -> str:
    """Return the line about saved programs, in at most `PROGRAMS_BYTES`; empty without programs."""
    if not programs:
        return ""
    first, *others = programs
    line = f"\n- Saved programs are functions: await programs.{first}({{...}})"
    listing = ', see API.list("programs/").'
    if not others:
        return line + listing
    also = "; also "
    room = PROGRAMS_BYTES - utf8_size(line) - utf8_size(also) - 1
    return line + also + names_that_fit(others, room, listing[:-1], "others") + "."


def namespace_lines(namespaces: Sequence[tuple[str, str, str]], room: int) -> str:
    """Return the lines about namespaces of plugins in the description of `exec`, in at most `room` bytes.

    Short lines are shown whole, and long lines are cut. If lines are left out, the text has their number.

    Args:
        namespaces: the global name, description and prompt of each namespace. Both texts may be empty.
    """
    # Names with texts come first, because a program can list the names with API.list().
    described = [(name, _one_line(about, prompt)) for name, about, prompt in namespaces]
    described.sort(key=lambda each: not each[1])
    lines = [f"\n- {name}{': ' if text else ''}{text}" for name, text in described]
    text = "\nGlobal objects of plugins, beside MCP:"
    more = f"\n- {len(lines)} more{_HOW_TO_LIST}"
    left = room - utf8_size(text)
    if sum(map(utf8_size, lines)) > left:
        # Long lines share the bytes that short lines leave.
        left -= utf8_size(more)
        for done, number in enumerate(sorted(range(len(lines)), key=lambda number: utf8_size(lines[number]))):
            least = max(_MIN_LINE, utf8_size(f"\n- {described[number][0]}: …"))  # a name is never cut
            lines[number] = _cut_bytes(lines[number], max(least, left // (len(lines) - done)))
            left -= utf8_size(lines[number])
    for number, line in enumerate(lines):
        after = sum(map(utf8_size, lines[number + 1 :]))
        if utf8_size(line) + min(after, utf8_size(more)) > room - utf8_size(text):
            return text + f"\n- {len(lines) - number} more{_HOW_TO_LIST}"
        text += line
    return text


def _one_line(about: str, prompt: str) -> str:
    about, prompt = (" ".join("".join(c if c.isprintable() else " " for c in text).split()) for text in (about, prompt))
    if about and prompt and about[-1] not in ".!?:;":
        about += "."
    return f"{about} {prompt}".strip()


def _topics(topics: Sequence[str], room: int) -> str:
    """Return ` Topics: a, b, c.` with as many of the first topics as fit; empty if none fits."""
    shown: list[str] = []
    used = utf8_size(" Topics: .")
    for topic in topics:
        used += utf8_size(topic) + (2 if shown else 0)
        if used > room:
            break
        shown.append(topic)
    return f" Topics: {', '.join(sorted(shown))}." if shown else ""


def instructions(servers: Mapping[str, str], languages: Sequence[Language]) -> str:
    """Return the server's `instructions`.

    Args:
        servers: configured names, by identifier, of the servers that every client may see.
    """
    language_names = _languages(languages)
    if not servers:
        return _INSTRUCTIONS.format(languages=language_names, servers="The description of exec names the servers.")
    fixed = _INSTRUCTIONS.format(languages=language_names, servers="Servers: .")
    room = INSTRUCTIONS_BYTES - utf8_size(fixed)
    return _INSTRUCTIONS.format(languages=language_names, servers=f"Servers: {_server_words(servers, room)}.")


def passthrough_instructions(servers: Sequence[str]) -> str:
    """Return the server's `instructions` in pass-through mode.

    Args:
        servers: configured names of the servers that every client may see.
    """
    if not servers:
        return _PASSTHROUGH.format(servers="")
    room = INSTRUCTIONS_BYTES - utf8_size(_PASSTHROUGH.format(servers=" Servers: ."))
    return _PASSTHROUGH.format(servers=f" Servers: {names_that_fit(servers, room, more='')}.")


def _languages(languages: Sequence[Language]) -> str:
    names = {"javascript": "JavaScript", "typescript": "TypeScript"}
    return " or ".join(names[language] for language in languages)


def _server_words(servers: Mapping[str, str], room: int) -> str:
    """Return the names of servers as plain words, with their identifiers in programs.

    If a name differs from its identifier, the identifier follows: `google calendar (MCP.googleCalendar)`. If the names
    and identifiers do not fit, one example shows the rule for all names that follow it.
    """
    if not servers:
        return "none"
    words = {identifier: plain_words(name) for identifier, name in servers.items()}
    whole = ", ".join(_with_identifier(identifier, plain, plain) for identifier, plain in words.items())
    if utf8_size(whole) <= room:
        return whole
    camel = {identifier: _camel(plain) for identifier, plain in words.items()}
    example = next((identifier for identifier, plain in words.items() if plain != identifier == camel[identifier]), "")
    rule = f" (in code, {words[example]} is MCP.{example})" if example else ""
    if utf8_size(rule) > room // 4:
        rule = ""
    names = [_with_identifier(identifier, plain, camel[identifier]) for identifier, plain in words.items()]
    return names_that_fit(names, room - utf8_size(rule), _HOW_TO_LIST) + rule


def _with_identifier(identifier: str, plain: str, guessed: str) -> str:
    """Return a name as plain words, with its identifier if a reader would not guess it."""
    if identifier == guessed:
        return plain
    return f"{plain} (MCP.{identifier})" if plain else f"MCP.{identifier}"


def _camel(plain: str) -> str:
    first, *others = plain.split(" ")
    return first + "".join(word[:1].upper() + word[1:] for word in others)


def names_that_fit(names: Sequence[str], room: int, more: str, kind: str = "servers") -> str:
    """Return `a, b, c`, or as many names as fit with the number of the other names. `kind`: what they name."""
    whole = ", ".join(names)
    if utf8_size(whole) <= room:
        return whole
    shown: list[str] = []
    used = 0
    for name in names:
        used += utf8_size(name) + (2 if shown else 0)
        if used + utf8_size(f" and {len(names) - len(shown) - 1} more{more}") > room:
            break
        shown.append(name)
    if not shown:
        return f"{len(names)} {kind}{more}"
    return f"{', '.join(shown)} and {len(names) - len(shown)} more{more}"


def listed_bytes(tools: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes of tools in `tools/list`, as compact JSON."""
    return sum(utf8_size(compact_json(tool)) for tool in tools)


def prompt_bytes(tools: Iterable[Mapping[str, Any]]) -> int:
    """Return the bytes of tools in a prompt: name, description and input schema, in the form of model APIs."""
    return sum(
        utf8_size(
            compact_json(
                {
                    "name": tool["name"],
                    "description": tool.get("description") or "",
                    "input_schema": tool.get("inputSchema", {"type": "object"}),
                }
            )
        )
        for tool in tools
    )


_MIN_LINE = 60
"""Shortest form of a line about a namespace, in bytes. A line is not cut further."""
_MIN_TOPICS = 150
"""Bytes reserved for topics if there are namespaces of plugins."""


def _cut_bytes(text: str, limit: int) -> str:
    if utf8_size(text) <= limit:
        return text
    return text.encode()[: max(0, limit - 3)].decode("utf-8", "ignore").rstrip() + "…"


_ANY_CLIENT = Profile()

_META: Final = {"anthropic/alwaysLoad": True}
"""Metadata with which Anthropic's clients show a tool in each prompt, not only in their tool search."""


def tool_list(
    servers: Mapping[str, str],
    settings: ToolSettings,
    namespaces: Sequence[tuple[str, str, str]] = (),
    topics: Sequence[str] = (),
    profile: Profile = _ANY_CLIENT,
    caller: Caller | None = None,
    programs: Sequence[str] = (),
    plugins: bool = False,
) -> list[dict[str, Any]]:
    """Return the two tools as JSON for a client of this profile.

    Both tools are marked read-only if policy admits only tools that are read-only by trusted annotations. `store()`
    does not count as a change, because its values stay in codemode-mcp and belong to the caller.

    Args:
        servers, namespaces, topics, programs, plugins: see `descriptions.exec_description`.
        caller: selects the rules; None for the default rules.
    """
    policies = Policies(settings)
    read_only = (policies.default if caller is None else policies.of(caller)).rules.read_only
    languages = settings.code_mode.languages
    timeout_ms = min(settings.code_mode.timeout_ms, settings.code_mode.max_request_ms)
    output_schema = {} if profile.shows_structured else {"outputSchema": OUTPUT_SCHEMA}
    return [
        {
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input_schema,
            **output_schema,
            "annotations": {
                "title": title,
                "readOnlyHint": read_only,
                "destructiveHint": not read_only,
                "openWorldHint": True,
            },
            "_meta": _META,
        }
        for name, title, description, input_schema in (
            (
                "exec",
                "Run a program",
                exec_description(servers, languages, namespaces, topics, programs, plugins, timeout_ms),
                exec_schema(languages),
            ),
            ("wait", "Resume a suspended program", WAIT_DESCRIPTION, WAIT_SCHEMA),
        )
    ]
