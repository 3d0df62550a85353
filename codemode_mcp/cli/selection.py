"""The servers that a command needs: it starts these, and no others."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.shared import stop
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, RESERVED_WORDS, identifiers

if TYPE_CHECKING:
    from collections.abc import Collection

    from codemode_mcp.config import Config
    from codemode_mcp.settings import Language

_ANY_SERVER: Final = re.compile(r"\b(?:API|tools|resources|prompts|globalThis|eval|Function|call)\b|\$api|\\u")
"""Words of programs that may reach servers whose names are not in the text."""

_USED: Final = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*)(\s*[.(])?")
_MADE: Final = re.compile(r"(?<![\w$.])([A-Za-z_$][\w$]*)\s*\([^()]*\)\s*\{")
"""A declared function or a method: no call stands before a brace."""
_MCP_NAME: Final = "mcp__"


def configured(config: Config) -> dict[str, str]:
    """Return the names of all enabled servers, by what a program or the configuration calls them."""
    names = [spec.name for spec in config.upstreams]
    identifier_of = identifiers(names, kind="server")
    return {identifier_of[name]: name for name in names} | {name: name for name in names}


def with_servers(config: Config, wanted: Collection[str], *, called: bool) -> Config:
    """Return the configuration with these servers alone. Ends the command where there is no such server.

    Args:
        called: they are about to be called: each is started now, though its tools are known from earlier.
    """
    known = configured(config)
    for name in wanted:
        if name not in known:
            stop(2, f"--server: there is no server {name!r}{suggestion(name, config)}")
    return _narrowed(config, {known[name] for name in wanted}, called=called)


def suggestion(name: str, config: Config) -> str:
    """Return what to write in the place of a name that no server has."""
    from codemode_mcp.did_you_mean import nearest

    names = [spec.name for spec in config.upstreams]
    near = nearest(name, configured(config))
    if near:
        return f"; did you mean {' or '.join(map(repr, near))}?"
    return f"; there are: {', '.join(names) or 'none'}"


def for_program(config: Config, source: str, language: Language | None) -> Config:
    """Return the configuration with the servers that a program names, where its text tells them all."""
    from codemode_mcp.errors import CodeModeError
    from codemode_mcp.program.preflight import inspect

    if _ANY_SERVER.search(source):
        return config
    try:
        found = inspect(source, language or "javascript")
    except CodeModeError:
        return config
    known = configured(config)
    if not found.servers and _takes_tools_for_globals(source, config):
        return config
    if found.broken or found.servers is None or not all(name in known for name in found.servers):
        return config
    return _narrowed(config, {known[name] for name in found.servers}, called=True)


def _takes_tools_for_globals(source: str, config: Config) -> bool:
    """Return whether a program calls a name that it does not declare, such as a tool's without its server.

    The error names the expression to write, for which all tools have to be known. A plugin may give any global, so that
    with plugins only the names of servers count.
    """
    made = set(_MADE.findall(source))
    called: set[str] = set()
    for name, use in _USED.findall(source):
        (called if use else made).add(name)
    called -= made | HOST_GLOBALS | LANGUAGE_GLOBALS | RESERVED_WORDS
    if not config.plugins:
        return bool(called)
    return any(name in configured(config) or name.startswith(_MCP_NAME) for name in called)


def _narrowed(config: Config, names: Collection[str], *, called: bool) -> Config:
    others = tuple(spec.name for spec in config.upstreams if spec.name not in names)
    upstreams = tuple(spec for spec in config.upstreams if spec.name in names)
    if called:
        upstreams = tuple(replace(spec, start="eager") for spec in upstreams)
    narrowed = replace(config, upstreams=upstreams, left_out=(*config.left_out, *others))
    before = configured(config)
    # Of two servers whose names give one identifier, the second is called otherwise only beside the first.
    return narrowed if all(before.get(key) == name for key, name in configured(narrowed).items()) else config
