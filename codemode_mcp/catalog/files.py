"""The declaration files of one catalog: `API.list` and `API.read`."""

from __future__ import annotations

import json
from functools import cached_property
from typing import TYPE_CHECKING, Any

from codemode_mcp.base.did_you_mean import hint, nearest
from codemode_mcp.base.text import one_line, quoted, utf8_size
from codemode_mcp.catalog.entries import Entry
from codemode_mcp.catalog.saved_programs.saved_program import program_id
from codemode_mcp.catalog.servers import Server, ServerIndex, lookup_error, method
from declarations.functions import NamespaceSummary, ScopeObject, render_namespaces
from declarations.render import MAX_SHOWN, short_list

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from codemode_mcp.catalog.toolset import Toolset
    from upstream_clients.tools import JsonObject

INDEX = "mcp/index.d.ts"
"""The file of all servers."""

MAX_NAMES = 100
"""Maximum number of names of tools that are listed for one server."""

MAX_LISTED = 800
MIN_NAMES = 5
"""Number of names that all listed servers share, and the number that each server has in any case."""

MAX_TOGETHER = 3072
"""Size in bytes above which several files that are read together are replaced by their overviews."""

MIN_ROOM = 1024
"""Size in bytes up to which one of several files has an overview with descriptions."""

ALL = "*"
"""The name of all functions of a file, after a `#`."""

NAMESPACES = "namespaces.d.ts"
"""The file of the namespaces of plugins, if there are any."""


def program_path(name: str) -> str:
    return f"programs/{name}.d.ts"


class DeclarationFiles:
    """The declaration files of one catalog. Catalogs of the same servers share the files of servers.

    Args:
        observed: observed types by tool id.
        scopes: contents of the scopes of namespaces, by their ids.
    """

    def __init__(
        self,
        index: ServerIndex,
        toolset: Toolset,
        observed: Mapping[str, JsonObject],
        scopes: Mapping[str, ScopeObject],
    ) -> None:
        self._index = index
        self._toolset = toolset
        self._observed = observed
        self.scopes = scopes

    def list_files(self, *prefixes: str) -> list[dict[str, Any]]:
        """Return the path and description of each file with one of the prefixes, and the names of its tools."""
        listed = [path for path in self.paths if path.startswith(prefixes)]
        limit = min(MAX_NAMES, max(MAX_LISTED // max(1, len(listed)), MIN_NAMES))
        return [
            {
                "path": path,
                **({} if server is None else {"tools": short_list(names, limit)}),
                **({"description": about} if about else {}),
            }
            for path in listed
            for server in [self._find(path)]
            for names in [[entry.identifier for entry in server.tools] if server is not None else []]
            for about in [self._about(path) if server is None else _state(server)]
        ]

    def read(self, *paths: str) -> dict[str, Any]:
        """Return files for `API.read`, as one text. After a `#`, a path names some of the functions, or `*` for all.

        A file that is too long, and files that together are, are replaced by their overviews.

        Raises:
            ProgramError: a path is malformed, or there is no such file or function.
        """
        whole: dict[str, None] = {}
        parts: dict[str, list[str]] = {}
        for path in paths:
            file, mark, part = self._checked(path).partition("#")
            if mark:
                parts.setdefault(file, []).append(part)
            else:
                whole[file] = None
        texts = [self._shown(file) for file in whole]
        room = MAX_SHOWN
        if len(texts) > 1 and sum(map(utf8_size, texts)) > MAX_TOGETHER:
            room = max(MAX_TOGETHER // len(texts), MIN_ROOM)
        replaced, examples = [], []
        for number, file in enumerate(whole):
            server = self._find(file)
            overview = (
                None
                if server is None or utf8_size(texts[number]) <= room
                else self._index.file(server).overview(self._observed_of(server), room)
            )
            if server is not None and overview is not None and utf8_size(overview) < utf8_size(texts[number]):
                texts[number] = overview
                replaced.append(file)
                examples.append(json.dumps(f"{file}#{','.join(entry.identifier for entry in server.tools[:2])}"))
        if examples:
            read = ", ".join(examples[:2])
            texts.append(f'// Types and comments of some tools: API.read({read}); of all: "{replaced[0]}#*".\n')
        texts.extend(self._some(file, names) for file, names in parts.items())
        text = "".join(texts)
        about = "; ".join(map(self._about, dict.fromkeys([*whole, *parts])))
        return {"path": ", ".join(paths), "description": about, "content": text, "bytes": utf8_size(text)}

    def _checked(self, path: str) -> str:
        if path.startswith("MCP."):
            server, _, member = path.removeprefix("MCP.").partition(".")
            near = f"mcp/{server}.d.ts" + (f"#{member}" if member else "")
            raise lookup_error(f"{quoted(path)} is not a path; write API.read({quoted(near)})")
        name = path.removeprefix("programs.")
        if name != path and name in self._toolset.programs.names:
            raise lookup_error(f"{quoted(path)} is not a path; write API.read({quoted(program_path(name))})")
        file, mark, part = path.partition("#")
        parts = file.split("/")
        if mark and not part:
            raise lookup_error(f"name a tool after the #, such as {quoted(path + 'createIssue')}")
        if not file or "" in parts or "." in parts or ".." in parts or "\\" in file:
            raise lookup_error(f"{quoted(file)} is not a valid path; see API.list()")
        return path

    def text(self, path: str) -> str:
        """Return the whole text of one file, for an editor and a compiler. Raises the errors of `read`."""
        server = self._find(path)
        if server is None:
            return self._shown(path)
        return self._index.file(server).whole(self._observed_of(server))

    def _shown(self, path: str) -> str:
        if path == INDEX:
            return self._index.index_file
        if path == NAMESPACES and self._toolset.namespaces:
            return self._namespaces_file
        program = self._program_at(path)
        if program is not None:
            return self._toolset.programs.declaration(program)
        server = self._server_at(path)
        return self._index.file(server).shown(self._observed_of(server))

    def _some(self, path: str, parts: Sequence[str]) -> str:
        """Return some functions of a file. Each part is a name, which may have commas, or names separated by commas."""
        if path == INDEX or (path == NAMESPACES and self._toolset.namespaces):
            raise lookup_error(f"{path} has no tools; read the file of a server, such as mcp/<server>.d.ts#<tool>")
        if self._program_at(path) is not None:
            raise lookup_error(f"{path} has one function; read {quoted(path)}")
        server = self._server_at(path)
        members = []
        for part in parts:
            names = [part] if server.member(part) is not None else map(str.strip, part.split(","))
            for name in [name.removeprefix(f"{path}#") for name in names]:
                if name == ALL:
                    members.append(name)
                    continue
                found = server.member(name)
                if found is None:
                    raise server.no_member(name)
                members.append(method(found) if isinstance(found, Entry) else found)
        if ALL in members:
            return self._index.file(server).shown(self._observed_of(server))
        return self._index.file(server).excerpt(members, self._observed_of(server))

    @property
    def paths(self) -> list[str]:
        namespaces = [NAMESPACES] if self._toolset.namespaces else []
        programs = [program_path(entry.identifier) for entry in self._toolset.programs.entries]
        return [INDEX, *(server.path for server in self._index.servers), *namespaces, *programs]

    @cached_property
    def _namespaces_file(self) -> str:
        return render_namespaces(
            [
                NamespaceSummary(each.global_name, each.description, tools, each.prompt, self.scopes.get(each.id))
                for each in self._toolset.namespaces
                for tools in [
                    {
                        tool_id: None if entry is None else entry.tool
                        for tool_id in (f"plugin:{each.plugin}:{name}" for name in each.required_tools)
                        for entry in [self._toolset.get(tool_id)]
                    }
                ]
            ]
        )

    def _program_at(self, path: str) -> Entry | None:
        name = path.removeprefix("programs/").removesuffix(".d.ts")
        return self._toolset.programs.get(program_id(name)) if path == program_path(name) else None

    def _find(self, path: str) -> Server | None:
        return next((server for server in self._index.servers if path == server.path), None)

    def _server_at(self, path: str) -> Server:
        server = self._find(path)
        if server is not None:
            return server
        near = nearest(path, self.paths)
        raise lookup_error(f"there is no file {quoted(path)}.{hint(near)} See API.list().")

    def _observed_of(self, server: Server) -> dict[str, JsonObject]:
        if not self._observed:
            return {}
        found = ((entry.tool.name, self._observed.get(entry.id)) for entry in server.tools)
        return {name: schema for name, schema in found if schema is not None}

    def _about(self, path: str) -> str:
        server = self._find(path)
        if server is not None:
            count = f"{len(server.tools)} tool{'' if len(server.tools) == 1 else 's'}"
            return f"MCP.{server.identifier}: {', '.join(filter(None, (count, _state(server))))}"
        program = self._program_at(path)
        if program is not None:
            return one_line(f"{program.path}: {program.tool.description or 'a saved program'}")
        if path == NAMESPACES:
            return one_line("; ".join(f"{each.global_name}: {each.description}" for each in self._toolset.namespaces))
        return "Servers and shared types"


def _state(server: Server) -> str:
    """Return the state of a server unless it is ready, and its description."""
    state = "" if server.status == "ready" else "needs a login" if server.login_required else server.status
    return ". ".join(filter(None, (state, server.description)))
