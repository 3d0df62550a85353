"""Keeps programs that models propose to save, until a person decides about them."""

from __future__ import annotations

import json
import logging
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread

from codemode_mcp.audit.events import Auditor
from codemode_mcp.base.errors import ProgramError
from codemode_mcp.catalog.saved_programs.folder import name_of, program_files, read_text
from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.catalog.saved_programs.program_state import ProgramState, StateUnavailable
from codemode_mcp.catalog.saved_programs.saved_program import (
    MAX_TEXT,
    OF_REPL,
    ProgramFileError,
    digest_of,
    name_problem,
)
from codemode_mcp.catalog.saved_programs.versions import Proposal, Proposals, names_in, propose, used_tools
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.syntax import Span, from_utf16_units, parse, span_of, text_of, utf16_units, words
from declarations.expressions import TypeWriter
from declarations.schema import compile_schema
from declarations.typetree import Unknown
from declarations.untrusted_text import HIDDEN, drop_hidden, json_escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tree_sitter import Node

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.saved_programs.versions import Author, Definition, Names, Status
    from upstream_clients.tools import JsonObject


log = logging.getLogger("codemode_mcp.programs")

_SCHEMA_FORM = 'input: { type: "object", properties: { repo: { type: "string" } }, required: ["repo"] }'


class Proposer:
    """The keeper of the proposals for one configuration.

    Args:
        state: the files; None without a configuration file.
        enabled: returns whether programs may be proposed.
        folder: the folder of the saved programs.
        command: the command with which a person accepts, up to the name.
        option: the end of the command, such as ` --config PATH`; may be empty.
        auditor: reports new proposals.
        clock: Unix seconds.
    """

    def __init__(
        self,
        state: ProgramState | None,
        folder: Path | None,
        *,
        enabled: Callable[[], bool],
        command: str = "codemode-mcp programs accept",
        option: str = "",
        auditor: Auditor | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._enabled = enabled
        self._folder = folder
        self._command = command
        self._option = option
        self._auditor = auditor or Auditor()
        self._clock = clock
        # A syntax tree takes much memory and time, and models decide how many are built.
        self._parsing = anyio.CapacityLimiter(1)

    async def propose(
        self,
        name: str,
        *,
        source: str,
        language: Language,
        description: str,
        schema: str | None,
        author: Author | None,
        read_only: bool,
        find: Callable[[str], Definition | None],
    ) -> dict[str, Any]:
        """Keep a program until a person accepts it. Return the answer for the program, as JSON.

        Args:
            schema: the JSON Schema of its input, as JSON text.
            author: None for a caller that is known only by the id of its run.
            read_only: True if the caller may use read-only tools only.
            find: returns the tool at a path such as `MCP.github.createIssue`, as the program sees it.

        Raises:
            ProgramError: it cannot be kept. The message says why.
        """
        if not self._enabled():
            raise _refused("saving programs is switched off here (tools.codeMode.savePrograms); tell the user")
        if self._state is None or self._folder is None:
            raise _refused("there is no configuration file, and saved programs stand beside it; tell the user")
        if read_only:
            raise _refused("this client may only read (--read-only), and a proposal is written to the disk")
        if author is None:
            raise _refused("it needs a client with a login or a session, and this one has none")
        if OF_REPL in source:
            raise _refused("a program of the prompt belongs to its session; .save FILE writes all of it to a file")
        problem = name_problem(name)
        if problem is None and not name.isascii():
            problem = "the name is no ASCII identifier; use letters, digits and _, such as weeklyReport"
        if problem is not None:
            raise _refused(problem)
        if len(source) > MAX_TEXT:
            raise _refused(f"the program has more than {MAX_TEXT // 1024} KiB; save a shorter one")
        read = _read_schema(schema)
        text, notes, names = await anyio.to_thread.run_sync(
            lambda: _checked_text(source, language, name=name, description=description, schema=read),
            limiter=self._parsing,
        )
        tools = used_tools(names, find)
        proposal = Proposal(
            name, language, text, digest_of(text), description, author, self._clock(), tools, names.complete
        )
        status = await anyio.to_thread.run_sync(_keep, self._state, self._folder, proposal)
        if status == "proposed":
            self._auditor.emit("program_proposed", f"programs.{name}", author.run, digest=proposal.digest)
        answer = {"status": status, "name": name, "digest": proposal.digest, "message": self._message(name, status)}
        return {**answer, "notes": list(notes)} if notes else answer

    def _message(self, name: str, status: Status) -> str:
        match status:
            case "saved":
                return f"programs.{name} is saved with this text already"
            case "rejected":
                return f"a person has rejected this text of {name}; propose another one only if the user wants it"
        return (
            f"{name} is proposed, not saved yet: a person has to accept it, in a terminal with {self._command} {name}"
            f"{self._option} or on the page of codemode-mcp ui; tell the user"
        )


def _checked_text(source: str, language: Language, *, name: str, **about: Any) -> tuple[str, tuple[str, ...], Names]:
    """Return what `proposed_text` does, and the names in it.

    Raises:
        ProgramError: the cell cannot be the body of a function, or the folder would refuse the file.
    """
    text, notes = proposed_text(source, language, name=name, **about)
    try:
        read_program(name, language, text)
    except ProgramFileError as error:
        raise _refused(f"the file would not be a saved program: {error.text}") from None
    if not is_one_function(text):
        raise _refused(
            "the text of this program does not fit into one function; remove unmatched brackets, and comments that "
            "begin with <!-- or -->"
        )
    return text, notes, names_in(text)


def _keep(state: ProgramState, folder: Path, proposal: Proposal) -> Status:
    """Add a proposal to the file, unless it is saved already. Raises `ProgramError`."""
    with suppress(ProgramFileError):
        if read_text(folder / proposal.file) == proposal.text:
            return "saved"
    other = next((each for each in map(name_of, program_files(folder)) if _differs_in_case(each, proposal.name)), None)
    if other is not None:
        raise _refused(f"there is a saved program {other}, and names must differ in more than case; use another name")
    status: Status = "proposed"

    def change(known: Proposals) -> Proposals:
        nonlocal status
        after, status = propose(known, proposal)
        return after

    try:
        state.change_proposals(change)
    except StateUnavailable as error:
        log.warning("a proposed program cannot be kept: %s", error)
        raise _refused("the proposal cannot be kept; the log of codemode-mcp says why; tell the user") from error
    return status


def _differs_in_case(one: str, other: str) -> bool:
    return one != other and one.casefold() == other.casefold()


def _read_schema(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        schema = None
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise _refused(f"the option input is a JSON Schema of an object, such as {_SCHEMA_FORM}")
    if not {"type", "properties", "$ref", "anyOf", "oneOf", "allOf"} & schema.keys() and schema:
        raise _refused(f"the option input is a JSON Schema, not an example: {_SCHEMA_FORM}")
    return {"type": "object", **schema}


def _refused(why: str) -> ProgramError:
    return ProgramError("nested_tool_failed", f"save_program(): {why}")


# The file that a cell becomes if it is saved: its text as the body of one function.
#
# The cell stays as its author wrote it, with three changes. The call of `save_program` is left out, since the saved
# program would propose itself. The declaration of an example, `const input = {...}`, is left out, since the input is
# the parameter. And the implicit `return` is written down, since a function has none.
#
# Everything may come from a hostile model. So the description and the schema cannot end their comment, and hidden
# characters in them are escaped. The body could close its function and have more code after it: `is_one_function` finds
# that. And a person reads the text before it is accepted.


FUNCTION: Final = "save_program"
"""The global function with which a cell proposes its own text."""

INPUT: Final = "input"
"""The name of the parameter."""

MAX_HTML_COMMENTS: Final = 1_000
"""Maximum number of texts such as `<!--` that are looked at."""

MAX_NODES: Final = 100_000
"""Maximum number of nodes of a cell that are looked at."""

_WIDTH: Final = 110
_HASHBANG: Final = re.compile(r"\A(\ufeff?)#!")
_HTML_COMMENT: Final = re.compile(r"(?P<mark><!--)|(?:^|[\n\r\u2028\u2029]|\*/)[^\S\n\r\u2028\u2029]*(?P<mark2>-->)")
_TEXT: Final = words("comment string string_fragment template_string regex_pattern")
_LINE_TAG: Final = re.compile(r"^(\s*)@", re.MULTILINE)


def proposed_text(
    source: str, language: Language, *, name: str, description: str, schema: JsonObject | None
) -> tuple[str, tuple[str, ...]]:
    """Return the text of the file, and notes for the author.

    Args:
        source: the cell.
        schema: the JSON Schema of the input; None for a program without input.

    Raises:
        ProgramError: the cell cannot be the body of a function.
    """
    body = _HASHBANG.sub(r"\1//", _without_own_lines(source, has_input=schema is not None))
    body, _ = inspect(body, language).explicit
    notes = []
    if schema is not None and re.search(rf"(?<![\w$.]){INPUT}(?![\w$])", body) is None:
        notes.append(
            f"the program does not use {INPUT}: begin the cell with const {INPUT} = {{...}}, an example, and use "
            f"{INPUT}.member below it"
        )
    parameter = "" if schema is None else INPUT if language == "javascript" else f"{INPUT}: {_type(schema)}"
    comment = _comment(description, schema)
    text = f"{comment}export default async function {name}({parameter}) {{\n{body.strip(chr(10)).rstrip()}\n}}\n"
    return text, tuple(notes)


def is_one_function(text: str) -> bool:
    """Return True if a file has nothing but one exported function and comments."""
    units = utf16_units(text)
    tree = parse(units)
    if tree is None or _has_html_comment(units, tree.root_node):
        return False
    statements = [child for child in tree.root_node.named_children if child.type != "comment"]
    return [each.type for each in statements] == ["export_statement"]


def _has_html_comment(units: str, root: Node) -> bool:
    """Return True if a text may have comments such as `<!-- x`, which the engine knows and the parser does not.

    The rest of such a line is code for the parser. With a quote there, both would disagree about the lines below.
    """
    for number, found in enumerate(_HTML_COMMENT.finditer(units), 1):
        node = root.descendant_for_byte_range(2 * found.start(found.lastgroup or 0), 2 * found.end())
        if number > MAX_HTML_COMMENTS or node is None or node.type not in _TEXT:
            return True
    return False


def _without_own_lines(source: str, *, has_input: bool) -> str:
    """Return a cell without its calls of `save_program`, and without the example of its input."""
    units = utf16_units(source)
    tree = parse(units)
    if tree is None:
        raise ProgramError(
            "nested_tool_failed", f"{FUNCTION}(): the text of the program cannot be parsed; save a shorter program"
        )
    if any(map(_is_namespace, tree.root_node.named_children)):
        raise ProgramError(
            "nested_tool_failed",
            f"{FUNCTION}(): a namespace or module of TypeScript cannot be within a function; use an object instead",
        )
    cuts: list[tuple[Span, str]] = [*_calls(units, tree.root_node)]
    if has_input:
        cuts += [(span_of(node), "") for node in _examples(units, tree.root_node)]
    for (start, end), instead in sorted(cuts, reverse=True):
        before, after = units[:start], units[end:]
        if not instead and (not before or before.endswith("\n")) and after.startswith("\n"):
            after = after[1:]
        units = before + instead + after
    return from_utf16_units(units)


def _is_namespace(statement: Node) -> bool:
    inner = statement
    if statement.type in ("expression_statement", "ambient_declaration"):
        inner = next(iter(statement.named_children), statement)
    return inner.type in ("module", "internal_module")


def _calls(units: str, root: Node) -> Iterator[tuple[Span, str]]:
    """Yield what is replaced for each call: a statement by nothing, and a call in an expression by `undefined`."""
    # Each node with the outermost node around it that is only an `await`, parentheses or a statement.
    left: list[tuple[Node, Node | None]] = [(root, None)]
    seen = 0
    while left:
        node, around = left.pop()
        seen += 1
        if seen > MAX_NODES:
            raise ProgramError(
                "nested_tool_failed", f"{FUNCTION}(): the program is too large to be saved; save a shorter one"
            )
        called = node.child_by_field_name("function") if node.type == "call_expression" else None
        if called is not None and called.type == "identifier" and text_of(units, called) == FUNCTION:
            whole = around or node
            yield span_of(whole), "" if whole.type == "expression_statement" else "undefined"
            continue
        if node.type == "expression_statement":
            around = node
        elif node.type in ("await_expression", "parenthesized_expression"):
            around = around or node
        else:
            around = None
        left += [(child, around) for child in node.children]


def _examples(units: str, root: Node) -> Iterator[Node]:
    """Yield the top-level declarations of the input."""
    for statement in root.named_children:
        if statement.type not in ("lexical_declaration", "variable_declaration"):
            continue
        declared = [each for each in statement.named_children if each.type == "variable_declarator"]
        names = [each.child_by_field_name("name") for each in declared]
        if not any(name is not None and text_of(units, name) == INPUT for name in names):
            continue
        if len(declared) != 1:
            raise ProgramError(
                "nested_tool_failed",
                f"{FUNCTION}(): {INPUT} is declared together with other names; declare it alone, as in "
                f"const {INPUT} = {{...}};",
            )
        yield statement


def _type(schema: JsonObject) -> str:
    """Return the TypeScript type of the input; `any` if it needs declarations of its own."""
    compiled = compile_schema(schema)
    if compiled.definitions or isinstance(compiled.root, Unknown):
        return "any"
    return TypeWriter({}, docs=False).text(compiled.root)


def _comment(description: str, schema: JsonObject | None) -> str:
    lines = [*_described(description)] if description.strip() else []
    if schema is not None:
        if lines:
            lines.append("")
        lines += f"@input {_json(schema)}".split("\n")
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n" if lines else ""


def _described(text: str) -> Iterator[str]:
    """Yield the lines of a description. No line begins with a tag, and none ends the comment."""
    import textwrap

    plain = drop_hidden("\n".join(text.splitlines()), keep="\n")
    for line in plain.replace("*/", "*\\/").strip().split("\n"):
        # A wrapped line could begin with a tag that was inside a line.
        for part in textwrap.wrap(line, _WIDTH, break_long_words=False, break_on_hyphens=False) or [""]:
            yield _LINE_TAG.sub(r"\1\\@", part)


def _json(schema: Any) -> str:
    """Return JSON that no reader mistakes, and that cannot end a comment."""
    # A `*/` can only be in a string, where `\/` means `/`.
    text = HIDDEN.sub(lambda found: json_escape(found[0]), json.dumps(schema, ensure_ascii=False))
    return text.replace("*/", "*\\/").replace("@", "\\u0040")
