"""Functions of declaration files: comments, types and texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from declarations.expressions import INTEGER_NAME, NamedTypes, Renderable, TypeWriter, indented, property_name
from declarations.jsdoc import (
    MAX_PROPERTY_TEXT,
    MAX_PROPERTY_TEXT_ALONE,
    MAX_TOOL_TEXT,
    MAX_TOOL_TEXT_ALONE,
    comment_line,
    comment_lines,
)
from declarations.schema import compile_schema
from declarations.signatures import argument_type, result_text
from declarations.typetree import ObjectOf, Type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAX_LINE: Final = 120
"""Maximum length in characters of a comment on one line. A longer comment is a block."""

MAX_BRIEF_LINE: Final = 400
"""Maximum length of such a line in a text for a model, to whom line breaks and stars say nothing."""

MANY_FUNCTIONS: Final = 4
"""Minimum number of functions that describe a parameter in the same words. The description is then in the head of the
file."""


class FunctionText:
    """The declaration of one tool, before the named types of its file are known.

    Args:
        effects: words about what calls do, such as `read-only`; may be empty.
    """

    def __init__(self, identifier: str, tool: Renderable, *, alone: bool = False, effects: str = "") -> None:
        self._identifier = identifier
        self._effects = effects
        self._tool = tool
        self._type_name = identifier[:1].upper() + identifier[1:]
        self._max_text = MAX_TOOL_TEXT_ALONE if alone else MAX_TOOL_TEXT
        self._max_property_text = MAX_PROPERTY_TEXT_ALONE if alone else MAX_PROPERTY_TEXT
        self._input = compile_schema(
            tool.input_schema, self._type_name + "Input", self._max_property_text, of_input=True
        )
        self._output = (
            None
            if tool.output_schema is None
            else compile_schema(tool.output_schema, self._type_name + "Output", self._max_property_text)
        )
        self.parameters: dict[str, str] = {}
        """Descriptions of top-level properties, by the names as they are written in the declaration."""
        if isinstance(self._input.root, ObjectOf):
            self.parameters = {comment_line(property_name(p.name)): p.doc for p in self._input.root.properties}

    def write(self, types: NamedTypes, common: Mapping[str, str]) -> WrittenFunction:
        """Return the function as text.

        Args:
            types: the named types of the file.
            common: descriptions of parameters in the head of the file.
        """
        declared, writer = types.declare(self._input)
        root, parameter = argument_type(self._input)
        # The comment of the function describes the top-level properties. Deeper ones have their own comments.
        written = writer.object(root, docs=False) if isinstance(root, ObjectOf) else writer.text(root)
        output = None
        if self._output is not None:
            more, writer = types.declare(self._output)
            declared += more
            output = writer.text(self._output.root)
        doc = comment_lines(self._tool.description, self._max_text)
        if self._effects:
            doc[:1] = [" ".join([f"[{self._effects}]", *doc[:1]])]
        # A parameter without a description gets an empty `@param` if its name has a common description, which does not
        # apply to it.
        doc.extend(
            [f"@param {name} {text}".rstrip() for name, text in self.parameters.items() if common.get(name, "") != text]
        )
        names = [f"@name {comment_line(self._tool.name)}"] if self._is_renamed() else []
        return WrittenFunction(
            self._tool.name,
            "".join([f"  {indented(text)}\n" for text in declared]),
            doc,
            names,
            f"{self._identifier}({parameter}{indented(written)}",
            output,
            observable=self._tool.output_schema is None,
        )

    @property
    def types(self) -> Iterable[tuple[str, Type]]:
        """The types of the function within its input, and of its result, with names for them."""
        root = self._input.root
        yield from [(p.name, p.type) for p in root.properties] if isinstance(root, ObjectOf) else [("", root)]
        if self._output is not None:
            yield self._type_name + "Output", self._output.root

    def _is_renamed(self) -> bool:
        """Return True if the tool's name has other letters or digits than its identifier."""
        return "".join(filter(str.isalnum, self._tool.name)).lower() != self._identifier.lower()


@dataclass(slots=True)
class WrittenFunction:
    """The text of a function, except for the observed type of its results.

    Attributes:
        tool: name of the tool.
        types: declarations of the named types that the function adds to the file.
        doc: first lines of the comment.
        last_lines: last lines of the comment, after the line about the result.
        call: name and argument, such as `createIssue(input: { title: string }`.
        output: type of the result, if the tool declares one.
        observable: True if the tool declares no type of its result.
        latest: the latest observed schema, and its type as text.
    """

    tool: str
    types: str
    doc: list[str]
    last_lines: list[str]
    call: str
    output: str | None
    observable: bool
    latest: tuple[Mapping[str, Any], str] | None = None

    def text(self, observed: Mapping[str, Any] | None, *, brief: bool = False) -> str:
        """Return types, comment and function.

        Args:
            observed: schema of earlier results.
            brief: True for a model: without the options of a call, and with longer lines of comments.
        """
        output, doc = self.output, self.doc
        if observed is not None and self.observable:
            if self.latest is None or self.latest[0] is not observed:
                seen = compile_schema(observed, "Output")
                # Observed types are not recursive, so they need no names.
                names = dict.fromkeys(seen.definitions, "unknown")
                self.latest = observed, TypeWriter(names, integer=INTEGER_NAME).text(seen.root)
            output = self.latest[1]
            kind = f" ({observed['description']})" if "description" in observed else ""
            doc = [*doc, f"@returns Shape observed in earlier results{kind}; the server declares none."]
        comment = comment_block([*doc, *self.last_lines], "  ", MAX_BRIEF_LINE if brief else MAX_LINE)
        options = "" if brief else ", o?: McpCall"
        return f"{self.types}{comment}  function {self.call}{options}): {indented(result_text(output))};\n"


def common_parameters(functions: Iterable[FunctionText]) -> dict[str, str]:
    """Return the descriptions of parameters that many functions share, by parameter. They shorten a file."""
    counted: dict[str, dict[str, int]] = {}
    for function in functions:
        for name, doc in function.parameters.items():
            counts = counted.setdefault(name, {})
            counts[doc] = counts.get(doc, 0) + 1
    common = {}
    for name, counts in counted.items():
        doc, count = max(counts.items(), key=lambda item: item[1])
        if doc and count >= MANY_FUNCTIONS:
            common[name] = doc
    return common


def comment_block(lines: Sequence[str], indent: str = "", width: int = MAX_LINE) -> str:
    """Return lines as a comment, on one line if they have at most `width` characters.

    More than two lines are joined only for a width above `MAX_LINE`.
    """
    if not lines:
        return ""
    line = " ".join(lines) if len(lines) <= 2 or width > MAX_LINE else ""
    if line and len(line) <= width:
        return f"{indent}/** {line} */\n"
    return f"{indent}/**\n" + "".join([f"{indent} * {line}\n" for line in lines]) + f"{indent} */\n"
