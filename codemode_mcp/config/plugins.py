"""The section `plugins`: what is loaded into this process, and which calls of others it may see."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.audit.redaction import is_secret_name
from codemode_mcp.config.expand import Expander
from codemode_mcp.config.nodes import Node, quote
from codemode_mcp.config.patterns import ANNOTATION_TESTS, id_pattern
from codemode_mcp.settings import PluginSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from codemode_mcp.config.expand import Reading

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_DEFAULT = "register"
_MAX_DEPTH = 100


def read_plugins(
    node: Node, *, environ: Mapping[str, str], folder: Path, reading: Reading
) -> tuple[PluginSettings, ...]:
    """Return the plugins in the order of the file, the disabled ones too; problems go into the node's report."""
    if node.value is None:
        return ()
    expander = Expander(environ, folder, reading=reading)
    return tuple(_plugin(name, replace(entry, secret=True), expander) for name, entry in node.entries().items())


def _plugin(name: str, node: Node, expander: Expander) -> PluginSettings:
    if not _NAME.fullmatch(name):
        node.fail("the name of a plugin has at most 64 letters, digits, _ and -, a letter first; it is part of ids")
    fields = node.fields(("module", "config", "enabled", "hooks", "middleware"))
    given: dict[str, Any] = {}
    if "module" in fields and fields["module"].value is not None:
        given["module"] = _module(fields["module"])
    if "enabled" in fields:
        given["enabled"] = fields["enabled"].flag()
    for key in ("hooks", "middleware"):
        if key in fields:
            given[key] = tuple(map(_granted, fields[key].items()))
    if "config" in fields:
        config = fields["config"]
        if isinstance(config.value, dict):
            used = len(expander.used)
            given["config"] = _expanded(config, expander)
            given["secrets"] = (*expander.used[used:], *_named_secret(given["config"]))
        else:
            config.fail_type("an object, which the plugin gets")
    return PluginSettings(name, **given)


def _named_secret(value: Any, *, named: bool = False) -> Iterator[str]:
    """Yield the texts that stand under names such as `password`."""
    match value:
        case str() if named:
            yield value
        case dict():
            for key, item in value.items():
                yield from _named_secret(item, named=is_secret_name(key))
        case list():
            for item in value:
                yield from _named_secret(item, named=named)


def _module(node: Node) -> str | None:
    """`module:attribute` or `path/file.py:attribute`; `register` where no attribute is named."""
    text = node.filled().strip()
    if not node.sound:
        return None
    if text.endswith(".py"):
        return f"{text}:{_DEFAULT}"
    where, colon, attribute = text.rpartition(":")
    if not colon:
        where, attribute = text, _DEFAULT
    if not _MODULE.fullmatch(attribute) or not (where.endswith(".py") or _MODULE.fullmatch(where)):
        node.fail(f'{quote(text)} is neither "package.module:function" nor "folder/file.py:function"')
    return f"{where}:{attribute}"


def _granted(node: Node) -> str:
    pattern = id_pattern(node)
    if pattern in ANNOTATION_TESTS:
        node.fail(f"{quote(pattern)} is an annotation test; grants are ids or globs of ids")
    return pattern


def _expanded(node: Node, expander: Expander, depth: int = 0) -> Any:
    """Return the value, references to variables expanded in its strings, as in the entries of servers."""
    if depth > _MAX_DEPTH:
        node.fail(f"is nested deeper than {_MAX_DEPTH} levels")
        return None
    if isinstance(node.value, dict):
        return {key: _expanded(each, expander, depth + 1) for key, each in node.entries().items()}
    if isinstance(node.value, list):
        return [_expanded(each, expander, depth + 1) for each in node.items()]
    return expander.text(node) if isinstance(node.value, str) else node.value
