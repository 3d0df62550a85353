"""The declarations, types and texts that type checks use. Pure.

A program is checked against up to three variants of the declarations. The differences between their findings say what
an error is about:

* `exact`: the declarations of the catalog. `unknown` is `any`, since a value of unknown type is never an error, and a
  result has no members but those of MCP.
* `open`: all objects have any further member. An error that is only in `exact` is about a missing member of an object
  of the catalog, and not of an object that the program itself has made.
* `untyped`: `MCP` and all others are `any`. An error that is in `untyped` too is not about the catalog.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from codemode_mcp.catalog.saved_programs.saved_program import program_id
from codemode_mcp.program.syntax import Lines, parse, utf16_units
from declarations.kinds import STRUCTURAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tree_sitter import Tree

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.entries import Entry
    from codemode_mcp.program.inspection import Insertion, Preflight


Variant = Literal["exact", "open", "untyped"]

GLOBALS: Final = "guest.d.ts"
"""The file of the globals that every program has."""

ALIASES: Final = "aliases.d.ts"
"""The file of further names of servers and tools."""

_RESULT: Final = (
    "interface McpToolResult<T = any> { content?: any[]; structuredContent?: T; isError?: boolean; _meta?: any }\n"
)
_UNWRAP: Final = "declare function unwrap<R>(result: R): R extends { structuredContent?: infer T } ? T : any;\n"
"""The type of `unwrap` for results of several types, as in `results.map(unwrap)`."""

_SHARED: Final = re.compile(r"^interface (?:McpToolResult<T = \w+>|McpCall|McpApiHeader) .*\n", re.MULTILINE)
_BARE_RESULT: Final = re.compile(r"\bMcpToolResult\b(?!<)")
_TOKEN: Final = re.compile(
    r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`|//[^\n]*|/\*[\s\S]*?\*/|\bunknown\b(?!\s*\??:)"""
)
_OPENING: Final = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`|\bnamespace [\w.$]+ \{|\{""")
_ANY_NAME: Final = re.compile(r"^\s*\[safeToolName: string\]: \w+;\n", re.MULTILINE)


@dataclass(frozen=True)
class Declared:
    """The declarations of one catalog.

    Attributes:
        files: the texts of the variant `exact`, by path.
        names: the globals that are `any` in the variant `untyped`.
        catalog: the catalog.
    """

    files: Mapping[str, str]
    names: tuple[str, ...]
    catalog: Catalog

    def leeway(self, function: str) -> Leeway:
        """Return what the schema of a function accepts beyond its declared type."""
        entry = entry_of(self.catalog, function)
        return NO_LEEWAY if entry is None else leeway_of(entry.tool.input_schema)

    def variant(self, variant: Variant) -> dict[str, str]:
        if variant == "exact":
            return dict(self.files)
        if variant == "open":
            return {path: _opened(text) for path, text in self.files.items()}
        loose = "".join(f"declare var {name}: any;\n" for name in self.names)
        return {GLOBALS: _RESULT + loose + _without(_guest_text(), self.names)}


class Leeway(NamedTuple):
    """The values that a schema accepts beyond its declared type: calls with them are sent.

    Attributes:
        arguments: True if arguments may have other names than the declared ones.
        members: True if members of an argument may have other names.
        kinds: True if the schema describes values of one kind, and accepts all others.
    """

    arguments: bool = False
    members: bool = False
    kinds: bool = False


NO_LEEWAY: Final = Leeway()


def leeway_of(schema: Mapping[str, Any]) -> Leeway:
    members = kinds = False
    waiting: list[Any] = [schema]
    for node in waiting:
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            members = members or (node is not schema and _is_open(node))
            kinds = kinds or (not STRUCTURAL.isdisjoint(node) and _STATING.isdisjoint(node))
            for keyword, value in node.items():
                if keyword in _NAMED and isinstance(value, dict):
                    waiting += value.values()
                elif keyword not in _VALUES and isinstance(value, dict | list):
                    waiting.append(value)
    return Leeway(_is_open(schema) or not _STATING.isdisjoint(schema.keys() - {"type"}), members, kinds)


_STATING: Final = frozenset({"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_VALUES: Final = frozenset({"enum", "const", "default", "examples", "example", "required"})


def _is_open(schema: Mapping[str, Any]) -> bool:
    """Return True if a schema of an object does not say which other members it accepts."""
    return "properties" in schema and "additionalProperties" not in schema and "unevaluatedProperties" not in schema


def entry_of(catalog: Catalog, function: str) -> Entry | None:
    """Return the entry of a function, as programs write it; None if it is unknown."""
    kind, _, rest = function.partition(".")
    if kind == "MCP":
        server, _, member = rest.partition(".")
        found = next((each for each in catalog.servers if server in (each.identifier, each.alias)), None)
        entry = None if found is None else found.member(member)
        return None if isinstance(entry, str) else entry
    names = {"tools": catalog.toolset.names.get(rest, ""), "programs": program_id(rest)}
    return catalog.get(names.get(kind, ""))


def declared(catalog: Catalog) -> Declared:
    """Return the declarations of a catalog without observed types. This takes some 10 ms for 1,000 tools."""
    catalog = catalog.without_observed()
    files = {GLOBALS: _RESULT + _guest_text()}
    unknown = {server.identifier for server in catalog.servers if catalog.members.get(server.identifier) is None}
    for path in catalog.files.paths:
        if path.removeprefix("mcp/").removesuffix(".d.ts") not in unknown:
            files[path] = _exact(catalog.files.text(path))
    if catalog.toolset:
        files["tools.d.ts"] = _exact(catalog.toolset.declarations())
    files[ALIASES] = _aliases(catalog, unknown)
    names = ("MCP", "tools", "programs", *(each.global_name for each in catalog.namespaces))
    return Declared(files, names, catalog)


def _aliases(catalog: Catalog, unknown: set[str]) -> str:
    """Declare the further names of servers and tools, and the servers whose tools are unknown."""
    lines = []
    for server in catalog.servers:
        name = server.identifier
        kind = "any" if name in unknown else f"typeof MCP.{name}"
        names = [name] if name in unknown else []
        if server.alias is not None and _IDENTIFIER.fullmatch(server.alias):
            names.append(server.alias)
        lines += [f"declare namespace MCP {{ var {each}: {kind} }}" for each in names]
        of_tools = {entry.tool.name: entry.identifier for entry in server.tools}
        further = [each for each in server.aliases if _IDENTIFIER.fullmatch(each)]
        if further and name not in unknown:
            body = " ".join(f"var {each}: typeof {of_tools[each]};" for each in further)
            lines.append(f"declare namespace MCP.{name} {{ {body} }}")
    return "\n".join(lines) + "\n"


_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][\w$]*")


@lru_cache(maxsize=512)
def _exact(text: str) -> str:
    """Return the text of a file for the variant `exact`. After a change of one server, the other files are the same."""
    text = _TOKEN.sub(lambda match: match[0] if match[0][0] in "\"'`" else "any" if match[0] == "unknown" else "", text)
    return _BARE_RESULT.sub("any", _SHARED.sub("", text))


def _opened(text: str) -> str:
    return _OPENING.sub(lambda match: "{ [key: string]: any; " if match[0] == "{" else match[0], text)


def _guest_text() -> str:
    """Return the globals of programs. Constants are variables here, so that they are members of `globalThis`."""
    text = (resources.files("declarations") / GLOBALS).read_text("utf-8")
    kept = _SHARED.sub("", text)
    kept += "".join(match[0] for match in _SHARED.finditer(text) if "McpToolResult" not in match[0])
    kept = _TOKEN.sub(lambda match: match[0] if match[0][0] in "\"'`" else "any" if match[0] == "unknown" else "", kept)
    kept = re.sub(r"^declare function unwrap<.*\n", _UNWRAP, kept, flags=re.MULTILINE)
    return _ANY_NAME.sub("", kept).replace("declare const ", "declare var ")


def _without(text: str, names: tuple[str, ...]) -> str:
    for name in names:
        text = re.sub(
            rf"^declare (?:var {name}: [^{{]*?;|namespace {name} \{{[\s\S]*?^\}})$", "", text, flags=re.MULTILINE
        )
    return text


# The text that the compiler checks for a program, with the map from its offsets to the author's positions.


_BEFORE: Final = "async function __cell__() {\n"
_AFTER: Final = "\n}\n"
_HASHBANG: Final = re.compile(r"\A(\ufeff?)#!")


@dataclass(frozen=True)
class CheckedText:
    """A program as it is checked.

    Attributes:
        body: the program with its implicit return, or with the call of the function that it is.
        before, after: our text around it, in which `await` and `return` are allowed.
        inserted: the insertion that makes the body longer than the author's text.
    """

    body: str
    language: Language
    before: str = ""
    after: str = ""
    inserted: Insertion | None = None

    @property
    def text(self) -> str:
        return f"{self.before}{self.body}{self.after}"

    @cached_property
    def units(self) -> str:
        """The body in UTF-16 units."""
        return utf16_units(self.body)

    @cached_property
    def tree(self) -> Tree | None:
        return parse(self.units)

    def position(self, at: int) -> tuple[int, int]:
        """Return the author's 1-based line and column of an offset in the body."""
        line, column = self._lines.position(at)
        return (line, column) if self.inserted is None else self.inserted(line, column)

    @cached_property
    def _lines(self) -> Lines:
        return Lines(self.units)


def of_cell(found: Preflight, language: Language) -> CheckedText:
    body, inserted = found.explicit
    return CheckedText(_HASHBANG.sub(r"\1//", body), language, _BEFORE, _AFTER, inserted)


def of_module(source: str, language: Language) -> CheckedText:
    return CheckedText(source, language)
