"""The section `plugins`: plugins to load into this process, and the calls that their hooks and middleware may see."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from codemode_mcp.config.nodes import Node, array_of, missing_reasons, quote
from codemode_mcp.config.patterns import ANNOTATION_TESTS, id_pattern
from codemode_mcp.settings import PluginSettings
from upstream_clients.secret_values import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from codemode_mcp.config.expand import Expander

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_DEFAULT_ATTRIBUTE = "register"


def read_plugins(node: Node, expander: Expander) -> tuple[PluginSettings, ...]:
    """Return the plugins in the order of the file, including disabled ones."""
    if node.value is None:
        return ()
    return tuple(_plugin(name, replace(entry, secret=True), expander.fresh()) for name, entry in node.entries().items())


def _plugin(name: str, node: Node, expander: Expander) -> PluginSettings:
    if not _NAME.fullmatch(name):
        node.fail("the name of a plugin must begin with a letter, and have at most 64 letters, digits, `_` and `-`")
    missing: dict[str, dict[str, None]] = {}
    node = replace(node, report=replace(node.report, missing=missing))
    given = node.settings(
        {
            "module": lambda node: None if node.value is None else _module(node),
            "config": lambda node: _config(node, expander),
            "enabled": Node.flag,
            "hooks": array_of(_grant),
            "middleware": array_of(_grant),
        }
    )
    if "config" in given:
        given["secrets"] = (*expander.used, *_secrets(given["config"]))
    return PluginSettings(name, **given, unusable=missing_reasons(missing))


def _config(node: Node, expander: Expander) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        node.fail_type("an object with settings of the plugin")
        return {}
    return expander.value(node)  # type: ignore[no-any-return]


def _secrets(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts under names such as `password`, which are secret."""
    match value:
        case str() if is_secret:
            yield value
        case dict():
            for key, item in value.items():
                yield from _secrets(item, is_secret=is_secret_name(key))
        case list():
            for item in value:
                yield from _secrets(item, is_secret=is_secret)


def _module(node: Node) -> str | None:
    """Return `module:attribute` or `path/file.py:attribute`, with `register` as the default attribute."""
    text = node.nonblank().strip()
    if not node.valid:
        return None
    module, colon, attribute = text.rpartition(":")
    if text.endswith(".py") or not colon:
        module, attribute = text, _DEFAULT_ATTRIBUTE
    if not _MODULE.fullmatch(attribute) or not (module.endswith(".py") or _MODULE.fullmatch(module)):
        node.fail(f'{quote(text)} is neither "package.module:function" nor "folder/file.py:function"')
    return f"{module}:{attribute}"


def _grant(node: Node) -> str:
    pattern = id_pattern(node)
    if pattern in ANNOTATION_TESTS:
        node.fail(f"{quote(pattern)} is an annotation test; grants are ids or globs of ids")
    return pattern
