"""The text of a saved program, made from a program that has run. Pure.

The program becomes the body of the default function of a module. Its literals become members of the function's only
parameter, with the old values as defaults, so a call without input does what the program did. `return` is written
where the program relied on its last expression. A program that is one function is unwrapped if nothing else could
notice; otherwise its call is written out.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from codemode_mcp.audit.recordings.masking import PLACEHOLDER
from codemode_mcp.audit.redaction import without_tokens
from codemode_mcp.extensions.program_tools.drafts.form import Edit, edited, form_of, identifiers, unwrapped, with_line
from codemode_mcp.extensions.program_tools.drafts.literals import UNKNOWN, Literal, find_literals
from codemode_mcp.extensions.program_tools.drafts.parameters import Parameter, name_parameters
from codemode_mcp.program.preflight import inspect, parse_program
from codemode_mcp.program.program_form import take_fence
from codemode_mcp.program.syntax import Lines, Span, from_utf16_units, utf16_units
from declarations.untrusted_text import escape_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from codemode_mcp.base.settings import Language
    from codemode_mcp.extensions.program_tools.drafts.parameters import ValueSchema

LINE: Final = 120
"""Characters of a line above which the parameter is written on several lines."""

MAX_ORIGIN: Final = 100

DESCRIBE: Final = "Say here what the program does: models choose it by this text."

MAX_DESCRIPTION: Final = 2_000
"""Characters of a comment at the beginning of a program that become the description."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_HASHBANG = re.compile(r"\A\ufeff?(?:#![^\n\r\u2028\u2029]*)?")


class Draft(Struct, frozen=True):
    """A saved program that was made from a program.

    Attributes:
        text: the whole file.
        parameters: the members of its input.
    """

    text: str
    language: Language
    parameters: tuple[Parameter, ...]

    @property
    def quotes_secret(self) -> bool:
        """Return True if the text has a token, or the placeholder of a masked secret, outside of parameters."""
        return PLACEHOLDER.search(self.text) is not None or without_tokens(self.text) != self.text

    @property
    def old_input(self) -> dict[str, Any]:
        """The input with which the draft does what the program did. Values that cannot be read are left to defaults."""
        return {each.name: each.value for each in self.parameters if each.value is not UNKNOWN}


def make_draft(
    source: str,
    language: Language,
    *,
    origin: str,
    args: Sequence[str] = (),
    schema_of: ValueSchema | None = None,
) -> Draft:
    """Return the draft of a program.

    Args:
        origin: words for the program, such as `run run_4fK2mQ8xZ1`, for the description.
        args: the values of the global `args`.
        schema_of: the schemas of the called tools; None if they are not known.

    Raises:
        ProgramError: the text is no program.
    """
    fenced = take_fence(source)
    if fenced is not None:
        source, language = fenced.source, fenced.language or language
    source = _HASHBANG.sub("", source)
    origin = escape_line(origin, MAX_ORIGIN)  # a recording of a stranger names its run
    preflight = inspect(source, language)
    units = utf16_units(source)
    tree = parse_program(units)
    block = None
    if tree is not None and preflight.called is not None and not tree.root_node.has_error:
        block = unwrapped(units, tree.root_node)
    if preflight.called is not None and block is None:
        units = utf16_units(preflight.called.text)
        tree = parse_program(units)
    if tree is None or tree.root_node.has_error:
        # The parser cannot read it, although it may be valid.
        whole = _module(language, f"{DESCRIBE} Drafted from {origin}.", (), preflight.explicit[0], "")
        return Draft(whole, language, ())
    root = tree.root_node
    form = form_of(units, root, block)
    literals = [each for each in find_literals(units, form.statements, root) if not _is_fixed(each, schema_of)]
    of_literals, found = name_parameters(literals, identifiers(units, root), schema_of)
    if form.uses_args:
        text = json.dumps(list(args), ensure_ascii=False)
        used = "the values after -- of codemode-mcp run"
        found.append(Parameter("args", "args", "string[]", text, list(args), used))
    edits = [
        _parameter_edit(units, literal, parameter)
        for literal, parameter in zip(literals, of_literals, strict=True)
        if not literal.is_constant
    ]
    removed = {literal.statement for literal in literals if literal.statement is not None} | set(form.removed)
    if found:  # a function with defaults may not have directives
        removed |= set(form.directives)
    if preflight.called is None and preflight.returned_at is not None:
        at = Lines(units).offset(*preflight.returned_at)
        edits.append((Span(at, at), "return "))
    edits += [(with_line(units, span), "") for span in removed]
    body = edited(units, form.body, edits, root)
    about = form.description[:MAX_DESCRIPTION] or f"{DESCRIBE} Drafted from {origin}."
    text = from_utf16_units(_module(language, about, found, body, form.outside))
    # A file in UTF-8 cannot have lone surrogates. In texts, an escape means the same.
    text = _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    return Draft(text, language, tuple(found))


def _is_fixed(literal: Literal, schema_of: ValueSchema | None) -> bool:
    """Return True if the tool takes one value only there, such as the `kind` of one of several forms."""
    schema = None if schema_of is None or literal.is_constant else schema_of(literal.call, literal.path)
    return schema is not None and "const" in schema


def _parameter_edit(units: str, literal: Literal, parameter: Parameter) -> Edit:
    """Return the edit that writes a variable instead of a literal, and `{ state }` instead of `{ state: state }`."""
    key = literal.key
    if key is not None and units[slice(*key)] == parameter.variable:
        return Span(key.start, literal.span.end), parameter.variable
    return literal.span, parameter.variable


def skeleton(language: Language) -> str:
    doc = [DESCRIBE, ""]
    if language == "typescript":
        doc.append("@param input.name Say here what it is.")
        head = "export default async function (input: { name: string }) {"
    else:
        doc += ["@param {{ name: string }} input", "@param input.name Say here what it is."]
        head = "export default async function (input) {"
    body = [
        "// A call: const data = unwrap(await MCP.<server>.<name>({ ... }));",
        "return { greeting: `Hello, ${input.name}` };",
    ]
    return "\n".join([*_comment(doc), head, *(f"  {line}" for line in body), "}", ""])


def _module(language: Language, about: str, found: Sequence[Parameter], body: str, outside: str) -> str:
    is_typescript = language == "typescript"
    doc = [*about.split("\n"), ""]
    if found and not is_typescript:
        doc.append(f"@param {{{_type(found)}}} input")
    doc += [f"@param input.{each.name} {_about(each)}" for each in found]
    lines = [line.rstrip("\r") for line in body.strip("\r\n").rstrip().split("\n")]
    return outside + "\n".join([*_comment(doc), *_head(found, is_typescript), *lines, "}", ""])


def _about(parameter: Parameter) -> str:
    words = f"For {parameter.used}"
    if parameter.is_required:
        return f"{words}. A secret stood here; it is not in this file."
    return f"{words}." if parameter.example is None else f"{words}; for example {parameter.example}."


def _comment(lines: Sequence[str]) -> list[str]:
    """Return a doc comment. Text in it can neither end the comment nor begin a tag by itself."""
    while lines and not lines[-1]:
        lines = lines[:-1]
    safe = [line.replace("*/", "*\\/") for line in lines]
    return ["/**", *(f" * {line}".rstrip() for line in safe), " */"]


def _type(found: Sequence[Parameter]) -> str:
    members = [f"{each.name}{'' if each.is_required else '?'}: {each.type}" for each in found]
    return f"{{ {'; '.join(members)} }}"


def _head(found: Sequence[Parameter], is_typescript: bool) -> list[str]:
    if not found:
        return ["export default async function () {"]
    members = [_member(each) for each in found]
    default = "" if any(each.is_required for each in found) else " = {}"
    kind = f": {_type(found)}" if is_typescript else ""
    line = f"export default async function ({{ {', '.join(members)} }}{kind}{default}) {{"
    if len(line) <= LINE and "\n" not in line:
        return [line]
    lines = ["export default async function ({", *(f"  {each}," for each in members)]
    if not is_typescript:
        return [*lines, f"}}{default}) {{"]
    types = [f"  {each.name}{'' if each.is_required else '?'}: {each.type};" for each in found]
    return [*lines, "}: {", *types, f"}}{default}) {{"]


def _member(parameter: Parameter) -> str:
    renamed = parameter.variable != parameter.name
    name = f"{parameter.name}: {parameter.variable}" if renamed else parameter.name
    return name if parameter.text is None else f"{name} = {parameter.text}"
