"""One function of a declaration file: its comment, its types and its text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from declarations.expressions import NamedTypes, Renderable, TypeWriter, argument, indented, property_name, result_text
from declarations.jsdoc import (
    MAX_PROPERTY_TEXT,
    MAX_PROPERTY_TEXT_ALONE,
    MAX_TOOL_TEXT,
    MAX_TOOL_TEXT_ALONE,
    comment_line,
    comment_lines,
)
from declarations.schema import compile_schema
from declarations.typetree import ObjectOf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_LINE: Final = 120
"""Characters of a comment on one line. A longer one is written as a block."""

MANY_FUNCTIONS: Final = 4
"""Functions of a file that describe a parameter in the same words, from which on the head of the file describes it."""


class FunctionText:
    """One tool on its way into a file."""

    def __init__(self, identifier: str, tool: Renderable, *, alone: bool = False) -> None:
        self._identifier = identifier
        self._tool = tool
        self._type_name = identifier[:1].upper() + identifier[1:]
        self._text = MAX_TOOL_TEXT_ALONE if alone else MAX_TOOL_TEXT
        self._property_text = MAX_PROPERTY_TEXT_ALONE if alone else MAX_PROPERTY_TEXT
        self._input = compile_schema(tool.input_schema, self._type_name + "Input", self._property_text)
        self.parameters: dict[str, str] = {}
        """What is said about each top-level property, by its name as written."""
        if isinstance(self._input.root, ObjectOf):
            self.parameters = {comment_line(property_name(p.name)): p.doc for p in self._input.root.properties}

    def write(self, types: NamedTypes, common: Mapping[str, str]) -> WrittenFunction:
        """The function for a file with these named types, and these comments on parameters at its head."""
        declared, writer = types.declare(self._input)
        root, parameter = argument(self._input)
        # The properties of the argument are described in the function's comment, those deeper down where they stand.
        written = writer.object(root, docs=False) if isinstance(root, ObjectOf) else writer.text(root)
        output = None
        if self._tool.output_schema is not None:
            result = compile_schema(self._tool.output_schema, self._type_name + "Output", self._property_text)
            more, writer = types.declare(result)
            declared += more
            output = writer.text(result.root)
        doc = comment_lines(self._tool.description, self._text)
        # A bare `@param` says that what is common does not hold here.
        doc.extend(
            [f"@param {name} {text}".rstrip() for name, text in self.parameters.items() if common.get(name, "") != text]
        )
        names = [f"@name {comment_line(self._tool.name)}"] if self._is_renamed() else []
        return WrittenFunction(
            self._tool.name,
            "".join([f"  {indented(text)}\n" for text in declared]),
            doc,
            names,
            f"{self._identifier}({parameter}{indented(written)}, o?: McpCall)",
            output,
            observable=self._tool.output_schema is None,
        )

    def _is_renamed(self) -> bool:
        """Whether the tool's name has other letters than its identifier, so that nobody could guess it."""
        return "".join(filter(str.isalnum, self._tool.name)).lower() != self._identifier.lower()


@dataclass(slots=True)
class WrittenFunction:
    """A function as text, but for what is observed of its results.

    Attributes:
        tool: its name.
        types: declarations of the named types that it brings along.
        doc: lines of its comment; `last` are those that come after what is said of the result.
        call: `createIssue(input: { title: string })`.
        output: the type of the result, if the tool declares one.
        observable: whether it declares none.
        kept: the type of what was observed last.
    """

    tool: str
    types: str
    doc: list[str]
    last: list[str]
    call: str
    output: str | None
    observable: bool
    kept: tuple[Mapping[str, Any], str] | None = None

    def text(self, observed: Mapping[str, Any] | None) -> str:
        """Types, comment and function."""
        output, doc = self.output, self.doc
        if observed is not None and self.observable:
            if self.kept is None or self.kept[0] is not observed:
                seen = compile_schema(observed, "Output")
                # Nothing recurs in what was observed, so no type of it has a name.
                self.kept = observed, TypeWriter(dict.fromkeys(seen.definitions, "unknown")).text(seen.root)
            output = self.kept[1]
            doc = [*doc, "@returns Shape observed in earlier results; the server declares none."]
        comment = comment_block([*doc, *self.last], "  ")
        return f"{self.types}{comment}  function {self.call}: {indented(result_text(output))};\n"


def common_parameters(functions: Iterable[FunctionText]) -> dict[str, str]:
    """The parameters that many functions describe in the same words: said once, they make a file much shorter."""
    said: dict[str, dict[str, int]] = {}
    for function in functions:
        for name, doc in function.parameters.items():
            counts = said.setdefault(name, {})
            counts[doc] = counts.get(doc, 0) + 1
    common = {}
    for name, counts in said.items():
        doc, count = max(counts.items(), key=lambda item: item[1])
        if doc and count >= MANY_FUNCTIONS:
            common[name] = doc
    return common


def comment_block(lines: Sequence[str], indent: str = "") -> str:
    if not lines:
        return ""
    line = " ".join(lines) if len(lines) <= 2 else ""
    if line and len(line) <= MAX_LINE:
        return f"{indent}/** {line} */\n"
    return f"{indent}/**\n" + "".join([f"{indent} * {line}\n" for line in lines]) + f"{indent} */\n"
