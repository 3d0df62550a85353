"""Scopes of namespaces: the values that a plugin gives to one run. Pure.

A scope is read into its data as JSON, which goes to the guest, and its functions by path, which stay on the host. A
guest calls a function by its path, and can call nothing else.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from msgspec import Struct, field

from codemode_mcp.base.strict_json import MAX_SAFE_INTEGER, join_surrogates, json_text
from codemode_mcp.base.text import quoted
from codemode_mcp.catalog.entries import OfferedNamespace
from codemode_mcp.catalog.plugins.api import CreateScope, NamespaceTool
from declarations.functions import ScopeFunction, ScopeObject
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, OBJECT_PROTOTYPE, RESERVED_WORDS

if TYPE_CHECKING:
    from upstream_clients.tools import JsonObject


SEPARATOR: Final = "."
"""Separator of the keys of a path, as in a program: `issues.labels.add`."""

MAX_SCOPE_CHARACTERS: Final = 256 * 1024
"""Maximum number of characters of a scope as JSON."""
MAX_VALUES: Final = 20_000
"""Maximum number of values of a scope. A value that is referred to twice counts twice."""
MAX_DEPTH: Final = 32
MAX_DECLARED: Final = 200
"""Maximum number of members that the declaration of a scope shows."""
MAX_KEY: Final = 128


class Scope(Struct, frozen=True):
    """The scope of a namespace for a run.

    Attributes:
        text: the data as JSON, with null in place of functions.
        functions: the functions by path, such as `labels.add`, or `repos.0.open` inside a list.
        shape: the types for the declaration of the namespace.
    """

    text: str
    functions: Mapping[str, NamespaceTool]
    shape: ScopeObject


def read_scope(made: object, required_tools: Collection[str]) -> Scope:
    """Convert the result of `create_scope` for a guest.

    Values that are not JSON are converted: `Decimal`, `Fraction`, dates and times (ISO 8601), `UUID` and paths to
    strings, `timedelta` to seconds, bytes to Base64, enumerations to their value, sets to sorted lists, tuples to
    lists, models, dataclasses and named tuples to objects, NaN and infinities to null. Keys become strings by the same
    rules. A value that is referred to twice is copied twice.

    Raises:
        ValueError: the scope is not an object, is too large, or contains a value without a JSON form (functions,
            cycles), an unsafe key, or a tool that is not required. The message begins with the path.
    """
    reader = _Reader(frozenset(required_tools))
    value = reader.read(made, ())
    if not isinstance(value, dict):
        raise ValueError(f"a scope must be an object, not {kind(made)}")
    text = json_text(value)
    if len(text) > MAX_SCOPE_CHARACTERS:
        raise ValueError(
            f"the scope has {len(text)} characters as JSON, more than {MAX_SCOPE_CHARACTERS}; return large data "
            "from a tool"
        )
    return Scope(text, reader.functions, _Shapes(reader.functions).of_object(value, ""))


class _Shapes:
    """Describes the types of one scope, for at most `MAX_DECLARED` members."""

    def __init__(self, functions: Mapping[str, NamespaceTool]) -> None:
        self._functions = functions
        self._left = MAX_DECLARED

    def of_object(self, value: Mapping[str, Any], path: str) -> ScopeObject:
        members: dict[str, ScopeObject | ScopeFunction | str] = {}
        for key, item in value.items():
            if self._left <= 0:
                break
            self._left -= 1
            members[key] = self._of(item, path + key)
        return ScopeObject(members, more=len(members) < len(value))

    def _of(self, item: Any, path: str) -> ScopeObject | ScopeFunction | str:
        function = self._functions.get(path)
        if function is not None:
            return ScopeFunction(function.name, mapped=function.input_mapper is not None)
        match item:
            case dict():
                return self.of_object(item, path + SEPARATOR)
            case list():
                types = {_scalar(each) for each in item}
                element = types.pop() if len(types) == 1 else None
                return f"readonly {element if element not in (None, 'null') else 'any'}[]"
        return _scalar(item) or "any"


def _scalar(value: Any) -> str | None:
    """Return the TypeScript type of a JSON value; None for objects and lists."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "bigint" if isinstance(value, int) and abs(value) > MAX_SAFE_INTEGER else "number"
        case str():
            return "string"
    return None


def read_input(mapped: object) -> dict[str, Any]:
    """Convert the result of an input mapper to JSON by the rules of `read_scope`, with any keys.

    Raises:
        ValueError: the result is not an object, or contains a value without a JSON form.
    """
    value = _Reader(None).read(mapped, ())
    if not isinstance(value, dict):
        raise ValueError(f"an input mapper must return the tool's input, an object, not {kind(mapped)}")
    return value


class _Reader:
    """Converts one value to JSON.

    Args:
        tools: the tools that functions may call; None for a value without functions, whose keys may be any.
    """

    def __init__(self, tools: frozenset[str] | None) -> None:
        self._tools = tools
        self._ancestors: set[int] = set()
        self._values = 0
        self._characters = 0
        self.functions: dict[str, NamespaceTool] = {}

    def read(self, value: Any, path: tuple[str, ...]) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values; a value that is referred to twice counts twice")
        if isinstance(value, NamespaceTool):
            return self._add_function(value, path)
        plain = _plain(value)
        if plain is None or isinstance(plain, bool | int | float):
            return plain
        if isinstance(plain, str):
            self._count(plain)
            return plain
        return self._container(value, plain, path)

    def _container(self, value: Any, parts: Any, path: tuple[str, ...]) -> Any:
        if id(value) in self._ancestors:
            raise ValueError(f"{self._text_of(path)} contains itself")
        if len(path) >= MAX_DEPTH:
            raise ValueError(f"{self._text_of(path)}: more than {MAX_DEPTH} levels")
        self._ancestors.add(id(value))
        try:
            match parts:
                case Mapping():
                    return self._object(parts, path)
                case Set():
                    read = [self.read(item, (*path, str(number))) for number, item in enumerate(parts)]
                    return sorted(read, key=lambda item: json.dumps(item, sort_keys=True))
                case Sequence():
                    return [self.read(item, (*path, str(number))) for number, item in enumerate(parts)]
        finally:
            self._ancestors.discard(id(value))
        if inspect.iscoroutine(value):
            value.close()
            raise ValueError(f"{self._text_of(path)} is a coroutine that was not awaited; make create_scope async")
        if callable(value):
            raise ValueError(f"{self._text_of(path)} is a raw function; use namespace_tool(name, input_mapper) instead")
        raise ValueError(f"{self._text_of(path)} is {kind(value)}, which has no JSON form; use plain data instead")

    def _object(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for given, item in value.items():
            key = self._key(given, path)
            if key in read:
                raise ValueError(f"{self._text_of(path)} has the key {quoted(key)} twice, once as {kind(given)}")
            read[key] = self.read(item, (*path, key))
        return read

    def _key(self, given: object, path: tuple[str, ...]) -> str:
        plain = _plain(given)
        if isinstance(plain, int | float) and not isinstance(plain, bool):
            plain = json.dumps(plain)
        if not isinstance(plain, str):
            raise ValueError(f"{self._text_of(path)} has a key that is {kind(given)}; keys must be strings")
        self._count(plain)
        if self._tools is None:
            return plain
        if plain == "":
            raise ValueError(f"{self._text_of(path)} has an empty key")
        if plain in UNSAFE_KEYS:
            raise ValueError(f"{self._text_of(path)} has the key {plain!r}, which has a special meaning in JavaScript")
        if SEPARATOR in plain:
            raise ValueError(f"{self._text_of(path)} has the key {quoted(plain)}; a key may not contain {SEPARATOR!r}")
        if len(plain) > MAX_KEY:
            raise ValueError(f"{self._text_of(path)} has a key of {len(plain)} characters, more than {MAX_KEY}")
        return plain

    def _add_function(self, tool: NamespaceTool, path: tuple[str, ...]) -> None:
        if self._tools is None:
            raise ValueError(f"{self._text_of(path)} is a namespace_tool(), which only a scope may contain")
        if not path:
            raise ValueError("a scope must be an object that contains functions, not one function")
        if tool.name not in self._tools:
            raise ValueError(
                f"{self._text_of(path)} calls {tool.name!r}, which is not among required_tools "
                f"({', '.join(sorted(self._tools))})"
            )
        if path[-1] in IMPLICIT_MEMBERS:
            raise ValueError(f"{self._text_of(path)}: JavaScript itself calls {path[-1]}; rename the function")
        mapper = tool.input_mapper
        if mapper is not None and not callable(mapper):
            raise ValueError(f"{self._text_of(path)}: the input mapper must be a function, not {kind(mapper)}")
        if inspect.iscoroutinefunction(mapper):
            raise ValueError(f"{self._text_of(path)}: the input mapper is async; it must be a plain function")
        self.functions[SEPARATOR.join(path)] = tool

    def _text_of(self, path: tuple[str, ...]) -> str:
        return SEPARATOR.join(("input" if self._tools is None else "scope", *path))

    def _count(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_SCOPE_CHARACTERS and self._tools is not None:
            raise ValueError(f"more than {MAX_SCOPE_CHARACTERS} characters; return large data from a tool")


def _plain(value: Any) -> Any:
    """Convert a value to a JSON scalar, a Mapping, a Set or a Sequence. Other values are returned unchanged."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value)
        case str():
            return join_surrogates(str.__str__(value))
        case int():
            return _whole(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Decimal():
            return str(value) if value.is_finite() else None
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Fraction() | UUID() | PurePath():
            return join_surrogates(str(value))
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case tuple() if hasattr(value, "_asdict"):
            return value._asdict()
        case Mapping() | Set() | Sequence():
            return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if not isinstance(value, type) and callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json")
    return value


def _whole(value: int) -> int:
    number = int(value)
    try:
        str(number)
    except ValueError:  # sys.set_int_max_str_digits
        raise ValueError(f"a whole number of {number.bit_length()} bits is too large") from None
    return number


# Registrations of namespaces, and their checks when a plugin is loaded. Pure. `scopes` reads what they create.


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


class Namespace(Struct, frozen=True):
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
    return "nothing" if value is None else f"a {type(value).__name__}"
