"""Declaration files of saved programs, as a compiler sees them."""

from collections.abc import Callable
from importlib import resources
from typing import Any

from declarations.functions import render_program, render_programs
from upstream_clients.tools import Tool

PART = {"$defs": {"Part": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Part"}}}}}
REPORT = Tool(
    "report",
    description="Reports */ the weather.",
    input_schema={"type": "object", "properties": {"part": {"$ref": "#/$defs/Part"}}, "required": ["part"], **PART},
    output_schema={"type": "string"},
)
NONE = Tool("none", input_schema={"type": "object", "properties": {}, "additionalProperties": False})
OTHER = Tool("other", input_schema={"type": "object", "properties": {"part": {"$ref": "#/$defs/Part"}}, **PART})


def test_the_files_compile_and_type_the_calls_of_a_program(type_check: Callable[..., Any]) -> None:
    together = render_programs([("report", REPORT), ("none", NONE), ("other", OTHER)])
    right = (
        "(async () => { const a: string = await programs.report({ part: {} }); await programs.none(); return a; })();"
    )
    wrong = "(async () => { await programs.report({}); await programs.none(1); await programs.missing(); })();"
    guest = (resources.files("declarations") / "guest.d.ts").read_text("utf-8")
    files = {"guest.d.ts": guest, "programs.d.ts": together, "right.ts": right, "wrong.ts": wrong}
    found = type_check(files, together=True)
    assert {name for name, problems in found.items() if problems} == {"wrong.ts"}
    assert len(found["wrong.ts"]) == 3
    assert type_check({"one.d.ts": render_program("report", REPORT)}) == {"one.d.ts": []}
