"""Namespaces of plugins: what may be registered, and what a run gets of it. Pure.

A registration is checked when its plugin is loaded, the scope that it makes each time that it makes one. Of a scope
two things are kept: its data as JSON, which goes to the guest, and by path the functions in it, which stay here. A call
of one comes back as a path; nothing else that a program says decides what is called.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import json
import math
import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from codemode_mcp.catalog.entries import OfferedNamespace
from codemode_mcp.json_text import joined_halves, json_text
from codemode_mcp.plugins.api import NamespaceTool
from declarations.names import HOST_GLOBALS, LANGUAGE_GLOBALS, OBJECT_PROTOTYPE, RESERVED_WORDS
from declarations.namespaces import ScopeFunction, ScopeObject

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from codemode_mcp.plugins.api import CreateScope
    from upstream_clients.tools import JsonObject

SEPARATOR: Final = "."
"""Between the keys of a path, as a program writes it: `issues.labels.add`."""

MAX_SCOPE_CHARACTERS: Final = 256 * 1024
"""Characters of a scope's JSON."""
MAX_VALUES: Final = 20_000
"""Values of one scope. A value that is referred to twice counts twice."""
MAX_DEPTH: Final = 32
MAX_SHAPED: Final = 200
"""Members of one scope that its declaration shows."""
MAX_KEY: Final = 128
MAX_NAME: Final = 64
MAX_PROMPT: Final = 1000
"""Characters; of all prompts together the description of `exec` shows so many bytes."""

_UNSAFE_KEYS: Final = frozenset(("__proto__", "constructor", "prototype"))
_ASKED_FOR_BY_THE_LANGUAGE: Final = OBJECT_PROTOTYPE | {"then", "toJSON"}
"""Members that are read when an object is awaited, printed or compared: that calls no tool."""

_ID: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_OTHER_GLOBALS: Final = frozenset(("global", "self", "window", "document", "process", "require", "module", "exports"))
"""Names that a program lacks, and that code probes: it would mistake a namespace for something else."""
_EXACT: Final = 2**53 - 1
"""The largest whole number that JavaScript holds exactly."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A registration.

    Attributes:
        id: unique among all plugins; programs do not see it.
        plugin: whose it is.
        global_name: the global variable that holds the object, and its name in `namespaces`.
        required_tools: names of the plugin's own tools. Its functions call no others.
        prompt: for the description of `exec`.
        config: the plugin's.
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
        """Return what catalogs are made from."""
        return OfferedNamespace(
            self.id,
            self.plugin,
            self.global_name,
            joined_halves(self.description),
            self.required_tools,
            joined_halves(self.prompt),
        )


def check_namespace(namespace: Namespace, declared_tools: Collection[str], others: Iterable[Namespace]) -> None:
    """Check that a namespace may be registered.

    Args:
        declared_tools: names of all tools that the plugin declares.
        others: what is registered already, by all plugins.

    Raises:
        ValueError: it may not; with the namespace's id, and what to do.
    """
    _check_id(namespace.id)
    what = f"namespace {namespace.id!r}"
    _check_global_name(what, namespace.global_name)
    for name, text in (("description", namespace.description), ("prompt", namespace.prompt)):
        if not isinstance(text, str):
            raise ValueError(f"{what}: the {name} is a string, not {_kind(text)}")
    if not namespace.description.strip():
        raise ValueError(f"{what} needs a description: it is what a model knows it by")
    if len(namespace.prompt) > MAX_PROMPT:
        raise ValueError(
            f"{what}: the prompt has {len(namespace.prompt)} characters, more than {MAX_PROMPT}; say more in the "
            "descriptions of its tools"
        )
    if not callable(namespace.create_scope):
        raise ValueError(f"{what}: create_scope is a function of one context, not {_kind(namespace.create_scope)}")
    _check_required(what, namespace.plugin, namespace.required_tools, declared_tools)
    for other in others:
        if other.id == namespace.id:
            raise ValueError(f"there is a {what} already, of plugin {other.plugin!r}")
        if other.global_name == namespace.global_name:
            raise ValueError(
                f"{what}: the global name {namespace.global_name!r} is taken by namespace {other.id!r} of plugin "
                f"{other.plugin!r}"
            )


def _check_id(namespace_id: object) -> None:
    if not isinstance(namespace_id, str) or _ID.fullmatch(namespace_id) is None or len(namespace_id) > MAX_NAME:
        raise ValueError(
            f"{namespace_id!r} is no id for a namespace: up to {MAX_NAME} letters, digits, _ and -, a letter first"
        )
    if namespace_id in _UNSAFE_KEYS | _ASKED_FOR_BY_THE_LANGUAGE:
        raise ValueError(f"{namespace_id!r} is no id for a namespace: JavaScript gives it a meaning of its own")


def _check_global_name(what: str, name: object) -> None:
    if not isinstance(name, str) or _IDENTIFIER.fullmatch(name) is None or len(name) > MAX_NAME:
        raise ValueError(
            f"{what}: the global name {name!r} is no identifier: up to {MAX_NAME} letters, digits, _ and $, no digit "
            "first"
        )
    if name in RESERVED_WORDS:
        raise ValueError(f"{what}: the global name {name!r} is a word that JavaScript reserves")
    taken = HOST_GLOBALS | LANGUAGE_GLOBALS | OBJECT_PROTOTYPE | _OTHER_GLOBALS | {"then", "toJSON", "prototype"}
    if name in taken:
        raise ValueError(f"{what}: the global name {name!r} is taken: programs have or expect something else there")


def _check_required(what: str, plugin: str, required: object, declared: Collection[str]) -> None:
    if isinstance(required, str) or not isinstance(required, Sequence):
        raise ValueError(f"{what}: required_tools is a list of names of tools, not {_kind(required)}")
    if not required:
        raise ValueError(
            f"{what} requires no tools: name those that it calls: a caller without access to them does not see it"
        )
    for name in required:
        if not isinstance(name, str):
            raise ValueError(f"{what}: required_tools holds {_kind(name)}, not only names of tools")
        if name not in declared:
            known = ", ".join(sorted(declared)[:20]) or "none"
            raise ValueError(f"{what} requires {name!r}, which is no tool of plugin {plugin!r}; its tools: {known}")
    if len(set(required)) != len(required):
        raise ValueError(f"{what}: required_tools names a tool twice")


# scopes


@dataclass(frozen=True, slots=True)
class Scope:
    """The values of a namespace for a run.

    Attributes:
        text: its data as JSON, with null where functions are.
        functions: by path, such as `labels.add`; of an element of a list `repos.0.open`.
        shape: for its declaration.
    """

    text: str
    functions: Mapping[str, NamespaceTool]
    shape: ScopeObject


def read_scope(made: object, required_tools: Collection[str]) -> Scope:
    """Return what `create_scope` has returned, ready for a guest.

    What is not JSON becomes JSON: `Decimal`, `Fraction`, dates and times (ISO 8601), `UUID`, paths and whole numbers
    beyond 2^53 become strings, `timedelta` seconds, bytes Base64, enumerations their value, sets sorted lists, tuples
    lists, models, dataclasses and named tuples objects, numbers that JSON has not got null. Keys that are no strings
    become strings by the same rules. What is referred to twice is there twice.

    Raises:
        ValueError: it is no object, holds what has no such form (functions, cycles), a key that is not safe, a marker
            for a tool that is not required, or is too large. The message begins with the place.
    """
    reader = _Reader(frozenset(required_tools))
    value = reader.read(made, ())
    if not isinstance(value, dict):
        raise ValueError(f"a scope is an object, not {_kind(made)}")
    text = json_text(value)
    if len(text) > MAX_SCOPE_CHARACTERS:
        raise ValueError(
            f"the scope has {len(text)} characters as JSON, more than {MAX_SCOPE_CHARACTERS}; give large data out "
            "through a tool"
        )
    return Scope(text, reader.functions, _Shapes(reader.functions).of_object(value, ""))


class _Shapes:
    """Makes the shape of one scope, of at most `MAX_SHAPED` members; what is left is `any`."""

    def __init__(self, functions: Mapping[str, NamespaceTool]) -> None:
        self._functions = functions
        self._left = MAX_SHAPED

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
                kinds = {_scalar(each) for each in item}
                kind = kinds.pop() if len(kinds) == 1 else None
                return f"readonly {kind if kind not in (None, 'null') else 'any'}[]"
        return _scalar(item) or "any"


def _scalar(value: Any) -> str | None:
    """Return the type of a value of JSON; None for objects and lists."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
    return None


def read_input(mapped: object) -> dict[str, Any]:
    """Return what an input mapper has returned, as JSON by the rules of `read_scope`, except that keys may be any.

    Raises:
        ValueError: it is no object, or holds what has no JSON form.
    """
    value = _Reader(None).read(mapped, ())
    if not isinstance(value, dict):
        raise ValueError(f"an input mapper returns the tool's input, an object, not {_kind(mapped)}")
    return value


class _Reader:
    """Reads one value. `tools`: whom markers may name; None: there are none, and keys may be any."""

    def __init__(self, tools: frozenset[str] | None) -> None:
        self._tools = tools
        self._above: set[int] = set()
        self._values = 0
        self._characters = 0
        self.functions: dict[str, NamespaceTool] = {}

    def read(self, value: Any, place: tuple[str, ...]) -> Any:
        self._values += 1
        if self._values > MAX_VALUES:
            raise ValueError(f"more than {MAX_VALUES} values; what is referred to twice counts twice")
        if isinstance(value, NamespaceTool):
            return self._marker(value, place)
        plain = _plain(value)
        if plain is None or isinstance(plain, bool | int | float):
            return plain
        if isinstance(plain, str):
            self._count(plain)
            return plain
        return self._container(value, plain, place)

    def _container(self, value: Any, parts: Any, place: tuple[str, ...]) -> Any:
        if id(value) in self._above:
            raise ValueError(f"{self._shown(place)} contains itself")
        if len(place) >= MAX_DEPTH:
            raise ValueError(f"{self._shown(place)}: more than {MAX_DEPTH} levels")
        self._above.add(id(value))
        try:
            match parts:
                case Mapping():
                    return self._object(parts, place)
                case Set():
                    read = [self.read(item, (*place, str(number))) for number, item in enumerate(parts)]
                    return sorted(read, key=lambda item: json.dumps(item, sort_keys=True))
                case Sequence():
                    return [self.read(item, (*place, str(number))) for number, item in enumerate(parts)]
        finally:
            self._above.discard(id(value))
        if inspect.iscoroutine(value):
            value.close()
            raise ValueError(f"{self._shown(place)} is a coroutine that was not awaited; make create_scope async")
        if callable(value):
            raise ValueError(f"{self._shown(place)} is a raw function; put namespace_tool(name, input_mapper) there")
        raise ValueError(f"{self._shown(place)} is {_kind(value)}, which has no JSON form; put plain data there")

    def _object(self, value: Mapping[Any, Any], place: tuple[str, ...]) -> dict[str, Any]:
        read: dict[str, Any] = {}
        for given, item in value.items():
            key = self._key(given, place)
            if key in read:
                raise ValueError(f"{self._shown(place)} has the key {_quoted(key)} twice, once as {_kind(given)}")
            read[key] = self.read(item, (*place, key))
        return read

    def _key(self, given: object, place: tuple[str, ...]) -> str:
        plain = _plain(given)
        if isinstance(plain, int | float) and not isinstance(plain, bool):
            plain = json.dumps(plain)
        if not isinstance(plain, str):
            raise ValueError(f"{self._shown(place)} has a key that is {_kind(given)}; keys are strings")
        self._count(plain)
        if self._tools is None:
            return plain
        if plain == "":
            raise ValueError(f"{self._shown(place)} has an empty key")
        if plain in _UNSAFE_KEYS:
            raise ValueError(f"{self._shown(place)} has the key {plain!r}, which JavaScript gives a meaning of its own")
        if SEPARATOR in plain:
            raise ValueError(f"{self._shown(place)} has the key {_quoted(plain)}: {SEPARATOR!r} separates keys")
        if len(plain) > MAX_KEY:
            raise ValueError(f"{self._shown(place)} has a key of {len(plain)} characters, more than {MAX_KEY}")
        return plain

    def _marker(self, marker: NamespaceTool, place: tuple[str, ...]) -> None:
        if self._tools is None:
            raise ValueError(f"{self._shown(place)} is a namespace_tool(), which only a scope may hold")
        if not place:
            raise ValueError("a scope is an object that holds functions, not one function")
        if marker.name not in self._tools:
            raise ValueError(
                f"{self._shown(place)} calls {marker.name!r}, which is not among required_tools "
                f"({', '.join(sorted(self._tools))})"
            )
        if place[-1] in _ASKED_FOR_BY_THE_LANGUAGE:
            raise ValueError(f"{self._shown(place)}: JavaScript itself calls {place[-1]}; name the function otherwise")
        mapper = marker.input_mapper
        if mapper is not None and not callable(mapper):
            raise ValueError(f"{self._shown(place)}: the input mapper is a function, not {_kind(mapper)}")
        if inspect.iscoroutinefunction(mapper):
            raise ValueError(f"{self._shown(place)}: the input mapper is async; it may not wait for anything")
        self.functions[SEPARATOR.join(place)] = marker

    def _shown(self, place: tuple[str, ...]) -> str:
        return SEPARATOR.join(("input" if self._tools is None else "scope", *place))

    def _count(self, text: str) -> None:
        self._characters += len(text)
        if self._characters > MAX_SCOPE_CHARACTERS and self._tools is not None:
            raise ValueError(f"more than {MAX_SCOPE_CHARACTERS} characters; give large data out through a tool")


def _plain(value: Any) -> Any:
    """Return a value of JSON, or a Mapping, Set or Sequence of anything; what is neither comes back as it is."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value)
        case str():
            return joined_halves(str.__str__(value))
        case int():
            return int(value) if -_EXACT <= value <= _EXACT else _digits(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Decimal():
            return str(value) if value.is_finite() else None
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Fraction() | UUID() | PurePath():
            return joined_halves(str(value))
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


def _digits(value: int) -> str:
    try:
        return str(int(value))
    except ValueError:  # Python's own limit of digits
        raise ValueError(f"a whole number of {value.bit_length()} bits is too large") from None


def _kind(value: object) -> str:
    return "nothing" if value is None else f"a {type(value).__name__}"


def _quoted(key: str) -> str:
    return json.dumps(key[:100], ensure_ascii=False)
