"""Tool lists in a short notation, `data/<server>.tools`, as MCP lists them: eight servers with 145 tools.

A file begins with `style` and its words: `strict` or `loose` (inputs with or without `additionalProperties: false`),
`refs` or `inline` (named types as `$defs`, or repeated), `anyof` (nullable types as `anyOf`). Then come named types and
tools, in the type language of TypeScript with a few additions:

    type Label = { id: int(1..), name: string, color?: string | null }
    read list_labels "Description" (project: string "Description", perPage?: int(1..100) = 30) -> { labels: Label[] }

`int` and `int(1..9)` are integers, `string(date)` is a string with a format, `map<T>` an object with any names. A tool
begins with `read`, `write` or `delete`, which become annotations. After `->` stands the output schema. `-> json T`
means a T as JSON in a text, and no output schema; `-> text` and `-> image` are contents without one, as is no arrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from upstream_clients.tools import Annotations, Tool, UpstreamView

FOLDER: Final = Path(__file__).parent / "data"

Schema = dict[str, Any]
Content = Literal["structured", "json", "text", "image"]

_TOKEN: Final = re.compile(r'\s*(?:("(?:[^"\\]|\\.)*")|(->|\.\.|[A-Za-z_$][\w$-]*|-?\d+|[^\s]))')
_FORMATTED: Final = {"string": "string", "int": "integer", "number": "number", "bool": "boolean", "null": "null"}
_ANNOTATIONS: Final = {
    "read": Annotations(read_only=True, open_world=False),
    "write": Annotations(read_only=False, destructive=False),
    "delete": Annotations(read_only=False, destructive=True),
}


@dataclass(frozen=True)
class ListedTool:
    """One tool of the notation.

    Attributes:
        content: the form of its results.
        result: the schema of its results, also if it is not declared as output schema.
    """

    tool: Tool
    content: Content
    result: Schema | None


@dataclass
class _Reader:
    """A recursive descent over the tokens of one file."""

    tokens: list[str]
    at: int = 0
    style: set[str] = field(default_factory=set)
    types: dict[str, int] = field(default_factory=dict)
    """The position of each named type. It is read where it is used."""
    used: dict[str, Schema] = field(default_factory=dict)
    """The named types of the schema that is being read, for `$defs`."""
    closed: bool = False

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, token: str) -> None:
        found = self.next()
        if found != token:
            near = " ".join(self.tokens[max(0, self.at - 12) : self.at])
            raise ValueError(f"expected {token!r}, found {found!r} after: {near}")

    def accept(self, token: str) -> bool:
        found = self.peek() == token
        self.at += found
        return found

    def file(self) -> list[ListedTool]:
        listed = []
        if self.accept("style"):
            while self.peek() in {"strict", "loose", "refs", "inline", "anyof"}:
                self.style.add(self.next())
        while self.at < len(self.tokens):
            if self.accept("type"):
                name = self.next()
                self.expect("=")
                self.types[name] = self.at
                self.union()
            else:
                listed.append(self.tool())
        return listed

    def tool(self) -> ListedTool:
        annotations = _ANNOTATIONS[self.next()]
        name = self.next()
        description = json.loads(self.next())
        self.closed = "strict" in self.style
        inputs = self.schema(lambda: self.members("(", ")"))
        self.closed = False
        content: Content = "text"
        result = None
        if self.accept("->"):
            if self.peek() in {"text", "image"}:
                content = "text" if self.next() == "text" else "image"
            else:
                content = "json" if self.accept("json") else "structured"
                result = self.schema(self.union)
        output = result if content == "structured" else None
        return ListedTool(Tool(name, description, None, inputs, output, annotations), content, result)

    def schema(self, read: Any) -> Schema:
        self.used = {}
        schema: Schema = read()
        return {**schema, "$defs": self.used} if self.used else schema

    def union(self) -> Schema:
        self.accept("|")
        choices = [self.repeated()]
        while self.accept("|"):
            choices.append(self.repeated())
        if len(choices) == 1:
            return choices[0]
        if all("enum" in each and len(each) <= 2 for each in choices):
            kinds = {each["type"] for each in choices}
            values = [value for each in choices for value in each["enum"]]
            return {"type": kinds.pop(), "enum": values} if len(kinds) == 1 else {"enum": values}
        simple = all(set(each) == {"type"} and isinstance(each["type"], str) for each in choices)
        if simple and "anyof" not in self.style:
            return {"type": [each["type"] for each in choices]}
        return {"anyOf": choices}

    def repeated(self) -> Schema:
        schema = self.single()
        while self.peek() == "[" and self.tokens[self.at + 1] == "]":
            self.at += 2
            schema = {"type": "array", "items": schema}
        return schema

    def single(self) -> Schema:
        token = self.peek()
        if token == "{":
            return self.members("{", "}")
        self.at += 1
        if token == "(":
            inner = self.union()
            self.expect(")")
            return inner
        if token.startswith('"'):
            return {"type": "string", "enum": [json.loads(token)]}
        if re.fullmatch(r"-?\d+", token):
            return {"type": "integer", "enum": [int(token)]}
        if token == "any":
            return {}
        if token == "map":
            self.expect("<")
            values = self.union()
            self.expect(">")
            return {"type": "object", "additionalProperties": values}
        if token in _FORMATTED:
            return {"type": _FORMATTED[token], **self.limits(token)}
        return self.named(token)

    def limits(self, kind: str) -> Schema:
        if not self.accept("("):
            return {}
        if kind == "string":
            found: Schema = {"format": self.next()}
        else:
            found = {"minimum": int(self.next())}
            self.expect("..")
            if self.peek() != ")":
                found["maximum"] = int(self.next())
        self.expect(")")
        return found

    def named(self, name: str) -> Schema:
        position = self.types.get(name)
        if position is None:
            raise ValueError(f"{name!r} is not a type; types stand before their use")
        if name in self.used and "refs" in self.style:
            return {"$ref": f"#/$defs/{name}"}
        before, self.at = self.at, position
        if "refs" in self.style:
            self.used[name] = {}
            self.used[name] = self.union()
            schema = {"$ref": f"#/$defs/{name}"}
        else:
            schema = self.union()
        self.at = before
        return schema

    def members(self, opening: str, closing: str) -> Schema:
        self.expect(opening)
        properties: dict[str, Schema] = {}
        required = []
        while not self.accept(closing):
            name = self.next()
            if not self.accept("?"):
                required.append(name)
            self.expect(":")
            schema = self.union()
            if self.peek().startswith('"'):
                schema = {**schema, "description": json.loads(self.next())}
            if self.accept("="):
                schema = {**schema, "default": json.loads(self.next())}
            properties[name] = schema
            if self.peek() != closing:
                self.expect(",")
        schema = {"type": "object", "properties": properties, "required": required}
        if not required:
            del schema["required"]
        return {**schema, "additionalProperties": False} if self.closed else schema


@cache
def listed_tools(server: str) -> tuple[ListedTool, ...]:
    """Return the tools of one server."""
    text = (FOLDER / f"{server}.tools").read_text("utf-8")
    tokens = [quoted or token for quoted, token in _TOKEN.findall(_without_comments(text))]
    return tuple(_Reader(tokens).file())


def _without_comments(text: str) -> str:
    return re.sub(r"^#.*$", "", text, flags=re.MULTILINE)


SERVERS: Final = ("issues", "files", "mail", "calendar", "database", "payments", "chat", "deploy")


def views(count: int | None = None) -> list[UpstreamView]:
    """Return connected servers with their tools, as catalogs are built from them.

    Args:
        count: the number of tools; all 145 by default. More than that are the same servers again, by names such as
            `issues2`, with tools such as `list_issues_2`.
    """
    found: list[UpstreamView] = []
    left = sum(len(listed_tools(server)) for server in SERVERS) if count is None else count
    round_number = 1
    while left > 0:
        for server in SERVERS:
            tools = [_numbered(each.tool, round_number) for each in listed_tools(server)][:left]
            left -= len(tools)
            if tools:
                name = server if round_number == 1 else f"{server}{round_number}"
                found.append(UpstreamView(name, "ready", tools=tuple(tools)))
        round_number += 1
    return found


def _numbered(tool: Tool, number: int) -> Tool:
    if number == 1:
        return tool
    separator = "-" if "-" in tool.name else "_"
    return Tool(
        f"{tool.name}{separator}{number}",
        tool.description,
        None,
        tool.input_schema,
        tool.output_schema,
        tool.annotations,
    )


def declarations(shown: Sequence[UpstreamView] | None = None) -> dict[str, str]:
    """Return the declaration files of these servers, by path; of all 145 tools by default."""
    from codemode_mcp.base.settings import PolicyRules
    from codemode_mcp.catalog.per_caller import build  # the fake server needs no catalog
    from codemode_mcp.rules.policy.policy import Policy

    catalog = build(views() if shown is None else shown, Policy(PolicyRules()))
    return {path: catalog.files.text(path) for path in catalog.files.paths}
