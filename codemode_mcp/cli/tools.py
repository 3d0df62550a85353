"""`codemode-mcp tools` and `codemode-mcp types`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import anyio
import typer

from codemode_mcp.cli.shared import ConfigOption, JsonOption, load, logging_as, say, stop

if TYPE_CHECKING:
    from codemode_mcp.catalog import Catalog
    from codemode_mcp.config import Config


app = typer.Typer()


@app.command()
def tools(
    query: Annotated[str | None, typer.Argument(help="Search words; default: all tools.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tools a program can call, or search them."""
    loaded = load(config, "warning", None)
    with logging_as(loaded):
        entries, problems = anyio.run(partial(_tools, loaded, query))
    if as_json:
        print(json.dumps(entries, ensure_ascii=False, indent=2))  # noqa: T201
    else:
        for entry in entries:
            print(entry["signature"] or entry["call"])  # noqa: T201
            if entry["description"]:
                print(f"    {entry['description']}")  # noqa: T201
    if query is not None and not entries:
        say(f"nothing matches {query!r}")
    for problem in problems:
        say(problem)


async def _tools(config: Config, query: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    from codemode_mcp.app import open_app

    async with open_app(config) as opened:
        await opened.connect(30)
        catalog = await opened.catalog_for(opened.operator, None)
        problems = _problems(catalog)
        if query is not None:
            limit = config.tools.code_mode.search_default_limit
            others = [{"call": catalog.resolve(hit["id"]).path, **hit} for hit in catalog.toolset.search(query, limit)]
            # Scores compare within one kind: the MCP tools first, as `API.search` has them.
            return [*catalog.search(query, limit, None), *others], problems
        return [
            {
                "id": entry.id,
                "call": entry.path,
                "signature": catalog.signature(entry),
                "description": " ".join(entry.tool.description.split())[:200],
            }
            for entry in (
                *(entry for server in catalog.servers for entry in server.tools),
                *catalog.toolset.entries,
            )
        ], problems


@app.command()
def types(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("codemode-types"),
    config: ConfigOption = None,
) -> None:
    """Write the declaration files to disk, for an editor."""
    loaded = load(config, "warning", None)
    with logging_as(loaded):
        files, problems = anyio.run(partial(_types, loaded))
    try:
        for path, text in files.items():
            target = out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
    except OSError as error:
        stop(1, f"cannot write to {out}: {error}")
    for path in files:
        print(out / path)  # noqa: T201
    for problem in problems:
        say(problem)


async def _types(config: Config) -> tuple[dict[str, str], list[str]]:
    from importlib import resources

    from codemode_mcp.app import open_app

    async with open_app(config) as opened:
        await opened.connect(30)
        catalog = await opened.catalog_for(opened.operator, None)
        files = {path: catalog.file(path) for path in catalog.paths}
        if catalog.toolset:
            files["tools.d.ts"] = catalog.toolset.declarations()
    files["guest.d.ts"] = (resources.files("declarations") / "guest.d.ts").read_text("utf-8")
    return files, _problems(catalog)


def _problems(catalog: Catalog) -> list[str]:
    return [server.error for server in catalog.servers if server.error]
