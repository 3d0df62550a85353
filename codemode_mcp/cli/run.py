"""`codemode-mcp run`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from codemode_mcp.cli.shared import ConfigOption, JsonOption, LogFileOption, LogLevelOption, load, logging_as, say, stop
from codemode_mcp.errors import CodeModeError

if TYPE_CHECKING:
    from codemode_mcp.config import Config
    from codemode_mcp.settings import Language

_NOBODY = "`codemode-mcp run`, which asks nobody; tools.approved lets a call pass"


app = typer.Typer()


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="Program to run; .ts is TypeScript.")] = None,
    code: Annotated[str | None, typer.Option("-e", metavar="CODE", help="Program text.")] = None,
    language: Annotated[
        str | None, typer.Option(help="javascript or typescript; default: by file name or by trying.")
    ] = None,
    config: ConfigOption = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Admit read-only tools only.")] = False,
    as_json: JsonOption = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Run one program against the configured servers, following it until it ends."""
    if (file is None) == (code is None):
        stop(2, "give either a FILE or -e CODE")
    if file is not None:
        try:
            code = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            stop(1, f"cannot read {file}: {error}")
        if language is None and file.suffix in (".ts", ".mts", ".cts"):
            language = "typescript"
        elif language is None and file.suffix in (".js", ".mjs", ".cjs"):
            language = "javascript"
    assert code is not None
    loaded = load(config, log_level or "warning", log_file, read_only=read_only)
    from codemode_mcp.server import exec_arguments

    try:
        source, chosen = exec_arguments({"code": code, "language": language})
    except CodeModeError as error:
        stop(1, error.message)
    with logging_as(loaded):
        ok = anyio.run(partial(_run, loaded, source, chosen, as_json=as_json))
    if not ok:
        raise typer.Exit(1)


async def _run(config: Config, source: str, language: Language | None, *, as_json: bool) -> bool:
    import time

    from codemode_mcp.app import open_app
    from codemode_mcp.output import render, render_error

    async with open_app(config) as opened:
        manager = await opened.manager()
        run_id = None
        asked = False
        while True:
            notes: tuple[str, ...] = ()
            try:
                if run_id is None:
                    outcome = await opened.execute(source, language, opened.operator)
                else:
                    outcome = await opened.observe(run_id, opened.operator.owner, cancel=asked)
                notes = outcome.notes
                if outcome.status == "waiting" and manager.decide(outcome.run_id, None, approved=False, by=_NOBODY):
                    notes = ()  # they say how to approve
                # Nobody can answer here, and without an answer it would not go on.
                asked = bool(outcome.pending) and all(call.status == "needs_input" for call in outcome.pending)
                rendered = render(outcome, config.tools, opened.offload, time.monotonic())
            except CodeModeError as error:
                rendered = render_error(error, config.tools)
            _print_answer(rendered.structured, notes, as_json=as_json)
            if rendered.structured["status"] != "waiting":
                return not rendered.is_error
            run_id = rendered.structured["runId"]


def _print_answer(answer: dict[str, Any], notes: tuple[str, ...], *, as_json: bool) -> None:
    """What the program gave goes to stdout, so that it can be piped; what is said about it goes to stderr."""
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))  # noqa: T201
        return
    for item in answer.get("output", []):
        match item["type"]:
            case "text":
                print(item["text"], flush=True)  # noqa: T201
            case "json":
                print(json.dumps(item["value"], ensure_ascii=False), flush=True)  # noqa: T201
            case _:
                print(f"[{item['mimeType']}, {item['bytes']} bytes]", flush=True)  # noqa: T201
    for note in notes:
        say(note)
    if answer["status"] == "failed":
        say(f"{answer['code']}: {answer['error']}")
    elif answer["status"] == "completed" and answer["value"] is not None:
        value = answer["value"]
        print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))  # noqa: T201
