"""Translation of references, inputs and relative paths in a client's entry into our configuration. Pure.

A reference is `${...}`. In clients it can stand for a variable, the folder of a project, a value that the client asks
its user for, and more. In our configuration it can stand only for a variable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.cli.mcp_clients.dialects import NotImportable
from codemode_mcp.cli.mcp_clients.secrets import variable_name
from codemode_mcp.config.literals import REFERENCE
from codemode_mcp.config.nodes import describe, quote

if TYPE_CHECKING:
    from pathlib import Path

    from codemode_mcp.cli.mcp_clients.locations import ClientName, Machine
    from codemode_mcp.cli.mcp_clients.reading import Source
    from codemode_mcp.cli.mcp_clients.secrets import VariableNames

_EDITOR_VARIABLES: Final = frozenset(
    (
        *("file", "fileWorkspaceFolder", "relativeFile", "relativeFileDirname", "fileBasename", "fileDirname"),
        *("fileBasenameNoExtension", "fileExtname", "fileDirnameBasename", "lineNumber", "columnNumber"),
        *("selectedText", "execPath", "defaultBuildTask"),
    )
)
_PROJECT_FOLDERS: Final = ("cwd", "CLAUDE_PROJECT_DIR", "CLAUDE_PROJECT_DIR:-.")
_VARIABLE: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_()]*)(:-.*)?", re.DOTALL)

_UNSET_IS_EMPTY: Final[tuple[ClientName, ...]] = (
    *("vscode", "cursor", "windsurf", "copilot-cli", "gemini-cli", "qwen-code"),
)
"""Clients that replace a reference to an unset variable by an empty text, and start the server."""


@dataclass(slots=True)
class TextConverter:
    """Converter for the texts of one entry. The fields with defaults are its mutable state.

    Attributes:
        server: the name of the entry.
        names: the names of the variables that replace inputs.
        notes: remarks for the user.
        inputs: variables that stand for inputs of the client, each with a description of the input.
        references: the client's references for our variables, by the name of the variable.
    """

    server: str
    source: Source
    machine: Machine
    names: VariableNames
    notes: list[str] = field(default_factory=list)
    inputs: list[tuple[str, str]] = field(default_factory=list)
    references: dict[str, str] = field(default_factory=dict)

    def value(self, value: object, key: str) -> Any:
        """Convert a JSON value; `key` names it in messages."""
        match value:
            case str():
                return self.text(value, key)
            case list():
                return [self.value(each, key) for each in value]
            case dict():
                return {inner: self.value(each, key) for inner, each in value.items()}
        return value

    def path(self, text: str) -> str:
        """Return a path made absolute, because our configuration would resolve it against its own folder."""
        if text.startswith(("~", "${", "/", "\\")) or re.match("[A-Za-z]:", text):
            return text
        return str(self._folder / text)

    def text(self, value: object, key: str, variable: str | None = None) -> str:
        """Convert one text.

        Args:
            key: names the text in messages.
            variable: the environment variable or header whose value the text is.

        Raises:
            NotImportable: it is not a text, or holds a reference that only the client can resolve.
        """
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return str(value)
        if not isinstance(value, str):
            raise NotImportable(f"`{key}` is {describe(value, secret=True)}; expected a string")
        whole = variable if REFERENCE.fullmatch(value) else None
        return REFERENCE.sub(lambda match: self._reference(match[1], whole), value)

    @property
    def _folder(self) -> Path:
        return self.source.folder or self.machine.folder

    def _reference(self, inside: str, whole: str | None) -> str:
        """Convert a reference, given without `${` and `}`.

        Args:
            whole: the variable whose whole value is the reference, if there is one.
        """
        folder = self._folder
        kind, _, rest = inside.partition(":")
        if kind == "input":
            return self._input(rest, whole)
        if kind in ("workspaceFolder", "workspaceRoot") or inside in _PROJECT_FOLDERS:
            if self.source.folder is None:
                self.notes.append(f"`${{{kind}}}` is {folder} here, not the folder that the client has open")
            return str(folder)
        separator = "\\" if self.machine.system == "win32" else "/"
        fixed = {
            "workspaceFolderBasename": folder.name,
            "userHome": str(self.machine.home),
            "pathSeparator": separator,
            "/": separator,
        }
        if inside in fixed:
            return fixed[inside]
        variable = _VARIABLE.fullmatch(inside)
        if inside in _EDITOR_VARIABLES or variable is None or (":" in inside and kind != "env" and ":-" not in inside):
            known = inside.partition(":-")[0]  # a default may be secret
            raise NotImportable(f"only the client knows {quote('${' + known + '}')}; write what it stands for")
        name, default = variable.groups()
        if default is None and self.source.client in _UNSET_IS_EMPTY:
            default = ":-"
        self.references[name] = f"{{env:{name}}}" if self.source.client == "opencode" else f"${{{inside}}}"
        return f"${{{name}{default or ''}}}"

    def _input(self, input_id: str, whole: str | None) -> str:
        """Return a reference to a variable in place of an input."""
        definition = self.source.inputs.get(input_id, {})
        hint = whole or input_id
        short = "_" in variable_name(hint)
        name = self.names.name_for(hint, self.server, ("input", str(self.source.path), input_id), short=short)
        self.references[name] = f"${{input:{input_id}}}"
        default = definition.get("default")
        described = definition.get("description")
        if isinstance(default, str) and default and not definition.get("password") and not re.search(r"[{}]", default):
            self.notes.append(f"`${{input:{input_id}}}` is now the variable {name}, with the same default")
            return f"${{{name}:-{default}}}"
        more = f": {described}" if isinstance(described, str) and described.strip() else ""
        self.inputs.append((name, f"what the client asks for as {quote(input_id)}{more}"))
        return f"${{{name}:-}}"  # without a default, an unset variable would stop all servers
