"""The declaration files of one catalog: `API.list` and `API.read`."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from codemode_mcp.audit.sizes import size
from codemode_mcp.catalog.entries import one_line
from codemode_mcp.catalog.servers import lookup_error, method, nearest_names, quoted
from codemode_mcp.did_you_mean import nearest
from codemode_mcp.saved_programs.saved_program import program_id
from declarations.namespaces import NamespaceSummary, ScopeObject, render_namespaces

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.catalog.servers import Server, ServerIndex
    from codemode_mcp.catalog.toolset import Toolset
    from upstream_clients.tools import JsonObject

INDEX = "mcp/index.d.ts"
"""The file of all servers."""

NAMESPACES = "namespaces.d.ts"
"""The file of the namespaces of plugins, if there are any."""


def program_path(name: str) -> str:
    """Return the path of the declaration file of a saved program."""
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

    def list_files(self, prefix: str) -> list[dict[str, Any]]:
        """Return the path, description and size of each file whose path begins with the prefix, for `API.list`."""
        return [
            {"path": path, "description": self._about(path), "bytes": size(self.text(path))}
            for path in self.paths
            if path.startswith(prefix)
        ]

    def read(self, path: str) -> dict[str, Any]:
        """Return a whole file for `API.read`, or only the functions that the path names after a `#`.

        Raises:
            ProgramError: the path is malformed, or there is no such file or function.
        """
        if path.startswith("MCP."):
            server, _, member = path.removeprefix("MCP.").partition(".")
            near = f"mcp/{server}.d.ts" + (f"#{member}" if member else "")
            raise lookup_error(f"{quoted(path)} is not a path; write API.read({quoted(near)})")
        name = path.removeprefix("programs.")
        if name != path and name in self._toolset.programs.names:
            raise lookup_error(f"{quoted(path)} is not a path; write API.read({quoted(program_path(name))})")
        path, mark, part = path.partition("#")
        parts = path.split("/")
        if mark and not part:
            raise lookup_error(f"name a tool after the #, such as {quoted(path + '#createIssue')}")
        if not path or "" in parts or "." in parts or ".." in parts or "\\" in path:
            raise lookup_error(f"{quoted(path)} is not a valid path; see API.list()")
        text = self._some(path, part) if mark else self.text(path)
        return {"path": path + mark + part, "description": self._about(path), "content": text, "bytes": size(text)}

    def text(self, path: str) -> str:
        """Return the text of one file. Raises the errors of `read`."""
        if path == INDEX:
            return self._index.index_file
        if path == NAMESPACES and self._toolset.namespaces:
            return self._namespaces_file
        program = self._program_at(path)
        if program is not None:
            return self._toolset.programs.declaration(program)
        server = self._server_at(path)
        return self._index.file(server).whole(self._observed_of(server))

    def _some(self, path: str, part: str) -> str:
        """Return some functions of a file. `part` is one name, which may have commas, or names separated by commas."""
        if path == INDEX or (path == NAMESPACES and self._toolset.namespaces):
            raise lookup_error(f"{path} has no tools; read the file of a server, such as mcp/<server>.d.ts#<tool>")
        if self._program_at(path) is not None:
            raise lookup_error(f"{path} has one function; read {quoted(path)}")
        server = self._server_at(path)
        names = [part] if server.member(part) is not None else [name.strip() for name in part.split(",")]
        members = []
        for name in names:
            found = server.member(name)
            if found is None:
                raise server.no_member(name)
            members.append(found if isinstance(found, str) else method(found))
        return self._index.file(server).excerpt(members, self._observed_of(server))

    @property
    def paths(self) -> list[str]:
        """The paths of all files."""
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
        """Return the saved program that a file declares, if it is such a file."""
        name = path.removeprefix("programs/").removesuffix(".d.ts")
        return self._toolset.programs.get(program_id(name)) if path == program_path(name) else None

    def _server_at(self, path: str) -> Server:
        for server in self._index.servers:
            if path == server.path:
                return server
        near = nearest(path, self.paths)
        raise lookup_error(f"there is no file {quoted(path)}.{nearest_names(near)} See API.list().")

    def _observed_of(self, server: Server) -> dict[str, JsonObject]:
        if not self._observed:
            return {}
        found = ((entry.tool.name, self._observed.get(entry.id)) for entry in server.tools)
        return {name: schema for name, schema in found if schema is not None}

    def _about(self, path: str) -> str:
        for server in self._index.servers:
            if path == server.path:
                count = f"{len(server.tools)} tool{'' if len(server.tools) == 1 else 's'}"
                state = "" if server.status == "ready" else f", {server.status}"
                if server.login_required:
                    state = ", needs a login"
                return f"MCP.{server.identifier}: {count}{state}" + (
                    f". {server.description}" if server.description else ""
                )
        program = self._program_at(path)
        if program is not None:
            return one_line(f"{program.path}: {program.tool.description or 'a saved program'}")
        if path == NAMESPACES:
            return one_line("; ".join(f"{each.global_name}: {each.description}" for each in self._toolset.namespaces))
        return "All servers, and the types that their files share"
