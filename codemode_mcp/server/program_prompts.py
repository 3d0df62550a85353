"""Saved programs as MCP prompts, which clients show as slash commands. Pure.

The text of a prompt asks the model to run the program by `exec`. So a program runs in the same way as any other, with
the policy and the approvals of its caller.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.json_text import as_javascript
from codemode_mcp.base.text import clip
from codemode_mcp.server.exposure.items import prompt_name
from declarations.untrusted_text import drop_hidden

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from codemode_mcp.catalog.saved_programs.saved_program import SavedProgram

SERVER: Final = "programs"
"""The part before the slash in the names of these prompts."""

MAX_DESCRIPTION: Final = 1_000
MAX_ARGUMENT: Final = 200


def prompts_of(programs: Iterable[SavedProgram]) -> dict[str, tuple[SavedProgram, dict[str, Any]]]:
    """Return the prompt of each program, as in `prompts/list`, by its name."""
    return {prompt_name(SERVER, each.name): (each, _prompt(each)) for each in programs}


def prompt_result(program: SavedProgram, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of `prompts/get`.

    Args:
        given: the arguments, which are strings in MCP. Arguments that the program does not declare are left out.
    """
    properties = _properties(program)
    values = {name: _value(text, properties[name]) for name, text in given.items() if name in properties}
    argument = as_javascript(values, ensure_ascii=False) if values or program.takes_input else ""
    required = [name for name in program.input_schema.get("required", ()) if name not in values]
    missing = f"\n\nAsk the user for what is missing first: {', '.join(required)}." if required else ""
    about = f"\n\nWhat it does: {_line(program.description, MAX_DESCRIPTION)}" if program.description else ""
    text = (
        f"Run the saved program {program.name} with the tool exec, with this code:\n\n"
        f"return await programs.{program.name}({argument});{missing}{about}\n\n"
        'If the result has status "waiting", call wait with its runId. Then report the result.'
    )
    return {
        "description": _line(program.description, MAX_DESCRIPTION),
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }


def _prompt(program: SavedProgram) -> dict[str, Any]:
    required = program.input_schema.get("required", ())
    arguments = [
        {"name": name, **_description(schema), "required": name in required}
        for name, schema in _properties(program).items()
    ]
    return {
        "name": prompt_name(SERVER, program.name),
        "title": program.name,
        **({"description": _line(program.description, MAX_DESCRIPTION)} if program.description else {}),
        **({"arguments": arguments} if arguments else {}),
    }


def _properties(program: SavedProgram) -> Mapping[str, Any]:
    found = program.input_schema.get("properties")
    return found if isinstance(found, dict) else {}


def _description(schema: Any) -> dict[str, str]:
    text = schema.get("description") if isinstance(schema, dict) else None
    return {"description": _line(text, MAX_ARGUMENT)} if isinstance(text, str) and text else {}


def _value(text: Any, schema: Any) -> Any:
    """Return the value of an argument: a string if the schema takes strings, otherwise JSON if it is JSON."""
    kinds = schema.get("type") if isinstance(schema, dict) else None
    if not isinstance(text, str) or kinds == "string" or (isinstance(kinds, list) and "string" in kinds):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _line(text: str, limit: int) -> str:
    """Return a text on one line, without hidden characters."""
    return clip(drop_hidden(" ".join(text.split())), limit)
