"""Registrations of namespaces, and their checks when a plugin is loaded. Pure. `scopes` reads what they create."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from codemode_mcp.catalog.entries import OfferedNamespace
from codemode_mcp.json_text import join_surrogates
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, OBJECT_PROTOTYPE, RESERVED_WORDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from codemode_mcp.plugins.api import CreateScope
    from upstream_clients.tools import JsonObject

MAX_NAME: Final = 64
"""Maximum number of characters of an id or a global name."""
MAX_PROMPT: Final = 1000
"""Maximum number of characters of a prompt, and of bytes of all prompts in the description of `exec`."""

UNSAFE_KEYS: Final = frozenset(("__proto__", "constructor", "prototype"))
IMPLICIT_MEMBERS: Final = OBJECT_PROTOTYPE | {"then", "toJSON"}
"""Members that JavaScript reads when an object is awaited, printed or compared."""

_ID: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_OTHER_GLOBALS: Final = frozenset(("global", "self", "window", "document", "process", "require", "module", "exports"))
"""Names that are not defined in programs, but that libraries probe for to detect their environment."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A registered namespace.

    Attributes:
        id: an id that is unique among all plugins; programs do not see it.
        plugin: the name of its plugin.
        global_name: the global variable that holds the object, and its name in `namespaces`.
        required_tools: the plugin's own tools that functions of the namespace call.
        prompt: a text for the description of `exec`.
        config: the configuration of the plugin.
    """

    id: str
    plugin: str
    global_name: str
    description: str
    required_tools: tuple[str, ...]
    create_scope: CreateScope
    prompt: str = ""
    config: JsonObject = field(default_factory=dict)

    @property
    def offered(self) -> OfferedNamespace:
        """The namespace as catalogs see it."""
        return OfferedNamespace(
            self.id,
            self.plugin,
            self.global_name,
            join_surrogates(self.description),
            self.required_tools,
            join_surrogates(self.prompt),
        )


def check_namespace(namespace: Namespace, declared_tools: Collection[str], others: Iterable[Namespace]) -> None:
    """Check a namespace that a plugin registers.

    Args:
        declared_tools: names of all tools that the plugin declares.
        others: the namespaces that all plugins have registered before.

    Raises:
        ValueError: the namespace is not valid. The message has its id and says what to change.
    """
    _check_id(namespace.id)
    what = f"namespace {namespace.id!r}"
    _check_global_name(what, namespace.global_name)
    for name, text in (("description", namespace.description), ("prompt", namespace.prompt)):
        if not isinstance(text, str):
            raise ValueError(f"{what}: the {name} must be a string, not {kind(text)}")
    if not namespace.description.strip():
        raise ValueError(f"{what} needs a description, from which a model learns what it is for")
    if len(namespace.prompt) > MAX_PROMPT:
        raise ValueError(
            f"{what}: the prompt has {len(namespace.prompt)} characters, more than {MAX_PROMPT}; move details to the "
            "descriptions of its tools"
        )
    if not callable(namespace.create_scope):
        raise ValueError(f"{what}: create_scope must be a function of one context, not {kind(namespace.create_scope)}")
    _check_required(what, namespace.plugin, namespace.required_tools, declared_tools)
    for other in others:
        if other.id == namespace.id:
            raise ValueError(f"{what} exists already, in plugin {other.plugin!r}")
        if other.global_name == namespace.global_name:
            raise ValueError(
                f"{what}: the global name {namespace.global_name!r} is taken by namespace {other.id!r} of plugin "
                f"{other.plugin!r}"
            )


def _check_id(namespace_id: object) -> None:
    if not isinstance(namespace_id, str) or _ID.fullmatch(namespace_id) is None or len(namespace_id) > MAX_NAME:
        raise ValueError(
            f"{namespace_id!r} is not a valid namespace id: use up to {MAX_NAME} letters, digits, _ and -, "
            "and begin with a letter"
        )
    if namespace_id in UNSAFE_KEYS | IMPLICIT_MEMBERS:
        raise ValueError(f"{namespace_id!r} is not a valid namespace id, since JavaScript uses it; choose another")


def _check_global_name(what: str, name: object) -> None:
    if not isinstance(name, str) or _IDENTIFIER.fullmatch(name) is None or len(name) > MAX_NAME:
        raise ValueError(
            f"{what}: the global name {name!r} is not an identifier: use up to {MAX_NAME} letters, digits, _ and $, "
            "and do not begin with a digit"
        )
    if name in RESERVED_WORDS:
        raise ValueError(f"{what}: the global name {name!r} is a reserved word of JavaScript; choose another")
    taken = HOST_GLOBALS | LANGUAGE_GLOBALS | OBJECT_PROTOTYPE | _OTHER_GLOBALS | {"then", "toJSON", "prototype"}
    if name in taken:
        raise ValueError(
            f"{what}: the global name {name!r} is taken: programs expect something else there; choose another"
        )


def _check_required(what: str, plugin: str, required: object, declared: Collection[str]) -> None:
    if isinstance(required, str) or not isinstance(required, Sequence):
        raise ValueError(f"{what}: required_tools must be a list of tool names, not {kind(required)}")
    if not required:
        raise ValueError(f"{what} requires no tools: name in required_tools each tool that it calls")
    for name in required:
        if not isinstance(name, str):
            raise ValueError(f"{what}: required_tools contains {kind(name)}; it may contain only tool names")
        if name not in declared:
            known = ", ".join(sorted(declared)[:20]) or "none"
            raise ValueError(f"{what} requires {name!r}, which is not a tool of plugin {plugin!r}; its tools: {known}")
    if len(set(required)) != len(required):
        raise ValueError(f"{what}: required_tools names a tool twice")


def kind(value: object) -> str:
    """Name the type of a value in a message."""
    return "nothing" if value is None else f"a {type(value).__name__}"
