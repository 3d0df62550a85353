"""The configuration file that a command changes, and its changes."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from codemode_mcp.cli.mcp_clients.client_files import BYTE_ORDER_MARK, Document, read_file
from codemode_mcp.cli.mcp_clients.importing import change_adding, servers_of
from codemode_mcp.cli.messages import stop_line, suggestion
from codemode_mcp.config.edit_json import with_members
from codemode_mcp.config.servers import ROOT_KEYS
from codemode_mcp.config.source import SourceError, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.cli.mcp_clients.client_files import Change


@dataclass(frozen=True, slots=True)
class Target:
    """The configuration file of a command.

    Attributes:
        path: its absolute path.
        document: its content; None if the file does not exist.
        servers: the server entries.
        option: the end of commands that use the file, such as ` --config FILE`; empty if they need none.
        confirmed: True if the file was found in the working directory, and a person has confirmed its content.
    """

    path: Path
    document: Document | None
    servers: Mapping[str, Any]
    option: str
    confirmed: bool = False

    def entry(self, name: str) -> Mapping[str, Any]:
        """Return the entry of a server. End the command if there is none."""
        entry = self.servers.get(name)
        if not isinstance(entry, dict):
            stop_line(2, f"{self.path} has no server {name!r}; {suggestion(name, self.servers)}")
        return entry

    def adding(self, name: str, entry: Mapping[str, Any]) -> Change:
        """Return the change that adds a server. End the command if the file cannot be changed safely."""
        try:
            return change_adding(self.path, self.document, {name: dict(entry)})
        except SourceError as error:
            self._unchangeable(error)

    def changing(self, name: str, put: Mapping[str, object], drop: tuple[str, ...] = ()) -> Change:
        """Return the change of some members of an entry. See `adding`."""
        return self._changed((self._root(name), name), put, drop)

    def removing(self, name: str) -> Change:
        """Return the change that removes a server. See `adding`."""
        return self._changed((self._root(name),), {}, (name,))

    def write(self, change: Change) -> Path | None:
        """Write a change, and return the backup of the old file. End the command if it cannot be written.

        If a person had confirmed the old content of a file of the working directory, the new one is confirmed, too.
        """
        from codemode_mcp.config.edit import ChangedMeanwhileError

        try:
            backup = change.write()
        except ChangedMeanwhileError:
            stop_line(1, f"{self.path} was changed by another program meanwhile; nothing was written, try again")
        except OSError as error:
            stop_line(1, f"{self.path} could not be written: {error.strerror}; nothing was changed")
        if self.confirmed:
            from codemode_mcp.cli.confirming import confirm_changed

            confirm_changed(self.path, parse(change.text.removeprefix(BYTE_ORDER_MARK)))
        return backup

    def _root(self, name: str) -> str:
        assert self.document is not None
        value = self.document.value
        return next(key for key in ROOT_KEYS if isinstance(value.get(key), dict) and name in value[key])

    def _changed(self, keys: tuple[str, ...], put: Mapping[str, object], drop: tuple[str, ...]) -> Change:
        assert self.document is not None
        try:
            text = with_members(self.document.text, keys, put, drop)
        except SourceError as error:
            self._unchangeable(error)
        return replace(self.document, path=Path(os.path.realpath(self.path))).change_to(text)

    def _unchangeable(self, error: SourceError) -> NoReturn:
        stop_line(1, f"{self.path} {error}; nothing was changed")


def find_target(config: str | None) -> Target:
    """Return the configuration file that `call` and `run` would use, or else the user's, which may not exist yet.

    End the command if the file cannot be read.

    Args:
        config: the value of `--config`. This file may be a new one.
    """
    from codemode_mcp.cli.confirming import find, is_confirmed
    from codemode_mcp.config.load import check_kind
    from codemode_mcp.config_path import FILE_NAME, PATH_VARIABLE, command_option
    from codemode_mcp.errors import ConfigError
    from codemode_mcp.paths import config_dir

    in_folder: list[Path] = []
    named = config or os.environ.get(PATH_VARIABLE)
    try:
        found = None if named else find(None, in_folder.append)
    except ConfigError as error:
        stop_line(2, str(error))
    path = Path(os.path.abspath(os.path.expanduser(named))) if named else found or config_dir() / FILE_NAME
    try:
        document = read_file(path, "json") if os.path.lexists(path) else None
        servers = servers_of(document)
        if document is not None:
            check_kind(path, document.value)
    except SourceError as error:
        stop_line(2, f"{path} {error}")
    except ConfigError as error:
        stop_line(2, str(error))
    confirmed = bool(in_folder) and document is not None and is_confirmed(path, document.value)
    option = "" if in_folder or (config is None and named) else command_option(path, config_dir())
    return Target(path, document, servers, option, confirmed)
