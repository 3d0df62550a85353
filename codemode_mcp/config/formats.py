"""JSON, TOML and YAML behind the same functions, so that callers need not know which one a client uses. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from codemode_mcp.config import jsontext, source, tomltext, yamltext

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import PurePath

Format = Literal["json", "toml", "yaml"]


def format_of(path: PurePath) -> Format:
    """Return the format that a file's name says; JSON for any other name."""
    match path.suffix.lower():
        case ".toml":
            return "toml"
        case ".yaml" | ".yml":
            return "yaml"
    return "json"


def parse(kind: Format, text: str) -> Any:
    """Return the value of a file's text.

    Raises:
        SourceError: it is not in this format.
    """
    match kind:
        case "toml":
            return tomltext.parse(text)
        case "yaml":
            return yamltext.parse(text)
    return source.parse(text)


def with_members(
    kind: Format, text: str, keys: Sequence[str], members: Mapping[str, object], without: Collection[str] = ()
) -> str:
    """Return the text whose object at `keys` has these members, and none of `without`; all else stays as written.

    Raises:
        SourceError: it cannot be changed.
    """
    match kind:
        case "toml":
            return tomltext.with_members(text, keys, members, without)
        case "yaml":
            return yamltext.with_members(text, keys, members, without)
    return jsontext.with_members(text, keys, members, without)


def written(kind: Format, keys: Sequence[str], name: str, value: object) -> str:
    """Return one member as the file would hold it, for people."""
    match kind:
        case "toml":
            return tomltext.written(keys, name, value).rstrip("\n")
        case "yaml":
            return yamltext.written(name, value).rstrip("\n")
    return json.dumps({name: value}, ensure_ascii=False, indent=2)
