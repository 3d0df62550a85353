"""Read and change files of MCP clients, in JSON, TOML or YAML. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from codemode_mcp.config import edit_json, edit_toml, edit_yaml, source

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import PurePath

Format = Literal["json", "toml", "yaml"]

_SUFFIXES: Final[Mapping[str, Format]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_PARSERS: Final = {"json": source.parse, "toml": edit_toml.parse, "yaml": edit_yaml.parse}
_EDITORS: Final = {
    "json": edit_json.with_members,
    "toml": edit_toml.with_members,
    "yaml": edit_yaml.with_members,
}


def format_of(path: PurePath) -> Format:
    """Return the format that belongs to the name of a file; JSON for an unknown name."""
    return _SUFFIXES.get(path.suffix.lower(), "json")


def parse(kind: Format, text: str) -> Any:
    """Return the value of a text.

    Raises:
        SourceError: the text is not in this format.
    """
    return _PARSERS[kind](text)


def with_members(
    kind: Format, text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()
) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`. Everything else stays.

    Raises:
        SourceError: the text cannot be changed safely.
    """
    return _EDITORS[kind](text, keys, members, without)


def member_text(kind: Format, keys: Sequence[str], name: str, value: object) -> str:
    """Return one member as text in this format, to show to a person."""
    match kind:
        case "toml":
            return edit_toml.member_text(keys, name, value).rstrip("\n")
        case "yaml":
            return edit_yaml.member_text(name, value).rstrip("\n")
    return json.dumps({name: value}, ensure_ascii=False, indent=2)
