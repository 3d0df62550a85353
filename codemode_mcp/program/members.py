"""Checks of the members of `MCP` that a program uses, with the nearest names for missing ones. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from codemode_mcp.did_you_mean import nearest, normalize_name
from codemode_mcp.errors import ProgramError
from codemode_mcp.program.inspection import CELL_FILES, MemberCall, Preflight
from codemode_mcp.program.syntax import words

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from codemode_mcp.settings import Language

_MAX_REPORTED = 5


_MAX_NEAREST = 3


_MAX_LISTED = 12


def check_members(
    found: Preflight,
    members: Mapping[str, Collection[str] | None],
    language: Language,
    withheld: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Refuse a program that uses servers or members that do not exist or are held, before it has side effects.

    Args:
        found: the result of `inspect`.
        members: the member names of every known server, by identifier and by alias; None for unknown ones. They
            include `resources` and names such as `resources.read`.
        language: the language, for the file name in positions.
        withheld: the reasons why tools are held, by server and name. They follow the name in a sentence.

    Raises:
        ProgramError: `invalid_input` with a line for each distinct mistake (at most five) and the nearest names.
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
            position = f"{CELL_FILES[language]}:{call.line}:{call.column}"
            why = (withheld or {}).get(call.server, {}).get(call.member or "") if len(key) == 2 else None
            mistakes[key] = (
                problem(call, members, position) if why is None else f"{_expression(*key)} {why} ({position})."
            )
    if mistakes:
        raise ProgramError("invalid_input", "\n".join(mistakes.values()))


def contested_names(found: Preflight, contested: Mapping[str, str]) -> list[str]:
    """Return the sentences about the names in a program that several servers or tools would have, at most three.

    Args:
        contested: the sentences, by names such as `github` and `github.createIssue`.
    """
    if not contested:
        return []
    calls = {f"{call.server}.{call.member}" for call in found.member_calls}
    used = {*(found.servers or ()), *(call.server for call in found.member_calls), *calls}
    return [sentence for name, sentence in contested.items() if name in used][:_MAX_CONTESTED]


_MAX_CONTESTED = 3


OBJECT_PROTOTYPE = words(
    "constructor hasOwnProperty isPrototypeOf propertyIsEnumerable toLocaleString toString valueOf __proto__ "
    "__defineGetter__ __defineSetter__ __lookupGetter__ __lookupSetter__"
)


_BUILT_IN = OBJECT_PROTOTYPE | {"$api"}
"""Members of every server that are not tools."""


GROUPS = frozenset(("resources", "prompts"))
"""Members of servers that have members of their own."""


_IDENTIFIER = re.compile(r"[^\W\d][\w$]*|\$[\w$]*")


def _is_unknown(member: str, names: Collection[str] | None) -> bool:
    return names is not None and member.rpartition(".")[2] not in _BUILT_IN and member not in names


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
    if member in GROUPS:
        return f"{text} This server has no {member}."
    tools = _tools(names)
    if member in _CALLERS and tools:
        text += f" Tools are functions: call them by name, such as {_expression(call.server, tools[0])}({{...}})."
    known = [name for name in names if name not in GROUPS]
    return f"{text} {_suggest(member, known, f'{_expression(call.server)} has')} {_read_advice(call.server)}"


_CALLERS = words("call callTool call_tool execute invoke request run tool")
"""Names of functions by which other systems call any tool."""


def _tools(names: Collection[str]) -> list[str]:
    """Return the names of a server's tools, in one spelling each."""
    return [name for name in _distinct_names(names) if name not in GROUPS and "." not in name]


def _tools_named(name: str, members: Mapping[str, Collection[str] | None]) -> list[str]:
    """Return calls of tools for a name that is a tool, or a function that calls any tool, and not a server."""
    servers = [(server, _tools(members[server] or ())) for server in _distinct_names(members)]
    if name in _CALLERS:
        return [f"{_expression(server, tools[0])}({{...}})" for server, tools in servers if tools][:1]
    found = [
        (server, tool) for server, tools in servers for tool in tools if normalize_name(tool) == normalize_name(name)
    ]
    return [f"{_expression(*each)}({{...}})" for each in found[:_MAX_NEAREST]]


def _distinct_names(names: Collection[str]) -> list[str]:
    """Return sorted names. Of names that differ only in case and punctuation, only the identifier is kept."""
    by_spelling: dict[str, str] = {}
    for name in _ordered(names):
        by_spelling.setdefault(normalize_name(name), name)
    return sorted(by_spelling.values())


def _ordered(names: Collection[str]) -> list[str]:
    return sorted(names, key=lambda name: (_IDENTIFIER.fullmatch(name) is None, "_" in name, name))


def _unknown_operation(call: MemberCall, members: Mapping[str, Collection[str] | None], position: str) -> str:
    group, operation = call.member or "", call.operation or ""
    existing = [name.removeprefix(f"{group}.") for name in members[call.server] or () if name.startswith(f"{group}.")]
    text = f"{_expression(call.server, group, operation)} does not exist ({position})."
    return (
        f"{text} {_suggest(operation, existing, f'{_expression(call.server, group)} has')} {_read_advice(call.server)}"
    )


def _read_advice(server: str) -> str:
    # Aliases are not file names; the index leads to the right file.
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
    once = _distinct_names(names)
    shown = once[:_MAX_LISTED]
    more = f" and {len(once) - len(shown)} more" if len(once) > len(shown) else ""
    return f"{heading}: {', '.join(map(_cut, shown))}{more}."


def _nearest(wanted: str, names: Collection[str]) -> list[str]:
    """Return the nearest names, best first. Of a name and its alias, only the identifier is returned."""
    return [_cut(name) for name in nearest(wanted, _ordered(names), count=_MAX_NEAREST)]
