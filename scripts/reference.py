"""Writes the pages of `docs/reference`, and the schema of the configuration, from the code that they are about.

    .venv/bin/python scripts/reference.py

`tests/test_site.py` compares the pages with what this would write, so they cannot drift.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import typer

from codemode_mcp.base import settings
from codemode_mcp.cli import app
from codemode_mcp.config import load, server_entry, servers
from codemode_mcp.config.server_auth import AUTH_KEYS
from codemode_mcp.server.exposure.selection import Exposure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
SCHEMA = ROOT / "declarations" / "configuration.schema.json"
LINE = 120
MADE = "<!-- Written by scripts/reference.py; change what it is made from, and run that. -->\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, make in PAGES.items():
        (FOLDER / name).write_text(make(), "utf-8")
    SCHEMA.write_text(schema(), "utf-8")


# commands


def broken(page: str) -> str:
    """Return a page with its long lines broken, but for rows of tables and code, which cannot be."""
    lines, fenced = [], False
    for line in page.split("\n"):
        fenced ^= line.startswith("```")
        stays = fenced or line.startswith(("|", "<")) or len(line) <= LINE
        lines.append(line if stays else textwrap.fill(line, LINE, break_long_words=False, break_on_hyphens=False))
    return "\n".join(lines)


def commands() -> str:
    """Write the page of commands: what each does, an example, its arguments and options."""
    group = typer.main.get_command(app)
    parts = [
        MADE,
        "# Commands\n",
        "`codemode-mcp COMMAND --help` prints the same in a terminal. What was asked for goes to standard output, "
        "what is said about it to standard error. Exit codes: 0 ok, 1 the thing asked for failed, 2 usage or invalid "
        "configuration.\n",
    ]
    for path, command in _walk(group, ("codemode-mcp",)):
        parts += _command(path, command)
    return broken("\n".join(parts))


def _walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the commands under a group, and those under them."""
    if hasattr(command, "list_commands"):
        context = command.context_class(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield (*path, name), found
                yield from _walk(found, (*path, name))


def _command(path: tuple[str, ...], command: Any) -> Iterator[str]:
    context = command.context_class(command, info_name=path[-1])
    # What `--help` says of each: the name or names with the kind of value, and a sentence.
    records = [(each.param_type_name, each.get_help_record(context)) for each in command.get_params(context)]
    rows = [record for _, record in records if record is not None and not record[0].startswith("--help")]
    yield f"{'#' * len(path)} `{' '.join(path[1:])}`\n"
    yield _prose(command.help or "") + "\n"
    yield f"```text\n{' '.join((*path, *command.collect_usage_pieces(context)))}\n```\n"
    if command.epilog:
        lines = [line.strip().removeprefix("Example:").strip() for line in command.epilog.split("\n")]
        yield "```sh\n" + "\n".join(filter(None, lines)) + "\n```\n"
    if rows:
        yield "| | |\n|---|---|\n" + "".join(f"| `{_named(name)}` | {_cell(_prose(text))} |\n" for name, text in rows)


def _named(name: str) -> str:
    """Return an option with its kind of value, in words; without `|`, which not all renderers take in a table alike."""
    for kind, word in _VALUES.items():
        name = name.replace(kind, word)
    return re.sub(r"<([^<>]*)>", r"\1", name).replace("|", " or ")


_VALUES: Mapping[str, str] = {
    " <str>": " TEXT",
    " <path>": "",
    " <int range>": " NUMBER",
    " <float range>": " NUMBER",
    " <int>": " NUMBER",
    " <float>": " NUMBER",
    " <list[int]>": "",
    " <list[str]>": "",
}
"""Words of typer for kinds of values, and ours instead."""


def _prose(text: str) -> str:
    """Paragraphs of a docstring, on one line each."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text.replace("\b", "")))
    return "\n\n".join(" ".join(each.split()) for each in paragraphs)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


# configuration


@dataclasses.dataclass(frozen=True)
class Section:
    """A table of the page: keys of one object of the file."""

    path: str
    text: str
    rows: tuple[tuple[str, str, str, str], ...]
    """Key, type, default, meaning."""


def sections() -> tuple[Section, ...]:
    """Return the whole file, object by object."""
    *rules, read_only = fields(settings.PolicyRules)
    callers, expose = fields(settings.PolicyContext)
    tokens, *http = fields(settings.HttpSettings)
    return (
        Section(
            "",
            "The file as a whole. Comments and trailing commas are allowed.",
            fields(load.RootKeys),
        ),
        Section(
            "mcpServers.NAME",
            "One server: `command` for a local one, `url` for a remote one, `openapi` for an HTTP API.",
            fields(server_entry.EntryKeys),
        ),
        Section(
            "mcpServers.NAME.override.NAME",
            "One tool, by the name that the server lists; see [overrides](../overrides.md).",
            fields(servers.OverrideKeys),
        ),
        Section(
            "mcpServers.NAME.override.NAME.annotations",
            "These count even if `trustAnnotations` is `false`.",
            fields(servers.HintKeys),
        ),
        Section(
            "mcpServers.NAME.override.NAME.arguments",
            f"Each value is JSON, or, for a secret, a {settings.SECRET}.",
            fields(servers.ArgumentKeys),
        ),
        Section(
            "tools",
            "Ids, globs and annotations are explained on the page on [policy](../policy.md).",
            (*fields(settings.ToolSettings), *rules),
        ),
        Section(
            "tools.codeMode",
            "A number out of range is moved to its end, and `doctor` says so.",
            fields(settings.CodeModeSettings),
        ),
        Section(
            "tools.contexts.NAME",
            "The first one that fits a caller counts.",
            (callers, *((key, kind, "that of `tools`", text) for key, kind, _, text in rules), read_only, expose),
        ),
        Section(
            "tools.duplicates",
            _sentence(settings.DuplicateSettings),
            fields(settings.DuplicateSettings),
        ),
        Section(
            "tools.budgets.NAME",
            "A call must fit into all budgets that apply; see [the guide](../policy.md#budgets).",
            fields(settings.BudgetSettings),
        ),
        Section("tools.approval", _sentence(settings.ApprovalSettings), fields(settings.ApprovalSettings)),
        Section(
            "plugins.NAME",
            "See [plugins](../plugins.md).",
            fields(settings.PluginSettings),
        ),
        Section(
            "expose",
            "Also in `tools.contexts.NAME` and `clients.GLOB`. The value of a context counts before that of a client, "
            "and both before that of the file.",
            fields(settings.ExposeSettings, Exposure()),
        ),
        Section(
            "clients.GLOB",
            "See [client profiles](../clients.md#client-profiles). The first glob that matches a client's name counts.",
            (*fields(settings.Profile), *fields(settings.ProfileOverride)),
        ),
        Section("store", "See [the guide](../configuration.md#store).", fields(settings.StoreSettings)),
        Section("http", "See [serving HTTP](../http.md).", tuple(http)),
        Section("http.auth.tokens[]", "One bearer token.", fields(settings.StaticToken)),
        Section(
            "http.auth",
            "With an authorization server, in the place of `tokens`.",
            (tokens, *fields(settings.IssuerSettings)),
        ),
        Section(
            "instance",
            _sentence(settings.InstanceSettings),
            fields(settings.InstanceSettings),
        ),
        Section("ui", "See [the page](../page.md).", fields(settings.UiSettings)),
        Section("audit", "See [what is recorded](../audit.md).", fields(settings.AuditSettings)),
        Section("log", "Logs go to stderr, or to a file.", fields(settings.LogSettings)),
    )


def configuration() -> str:
    """Write the page of the configuration file: type, default, bounds and meaning of every key."""
    parts = [
        MADE,
        "# Configuration reference\n",
        "Every key of `codemode-mcp.json`. The [guide](../configuration.md) explains how they work together. Times are "
        "milliseconds and sizes bytes where nothing else is said; unknown keys are errors.\n",
    ]
    for section in sections():
        parts.append(f"## {f'`{section.path}`' if section.path else 'The file'}\n")
        parts.append(f"{section.text}\n")
        rows = (
            f"| `{key}` | {_cell(kind)} | {_cell(default)} | {_cell(text)} |"
            for key, kind, default, text in section.rows
        )
        parts.append("| key | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return broken("\n".join(parts))


# the schema of the configuration


def schema() -> str:
    """Return a JSON Schema of the configuration file, made of the tables of the reference."""
    tables = {section.path: section for section in sections()}

    def table(path: str) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "object", "additionalProperties": False, "properties": {}}
        for key, kind, default, text in tables[path].rows:
            inner = f"{path}.{key}" if path else key
            made["properties"][key] = {
                "description": _words(text),
                **typed("mcpServers" if inner == "servers" else inner, kind),
            }
            if path == "clients.GLOB":  # null takes back what another profile says
                made["properties"][key] = {"anyOf": [made["properties"][key], {"type": "null"}]}
            if default == "required" and path != "http.auth":  # which may have `tokens` instead
                made.setdefault("required", []).append(key)
        for key in _FOREIGN.get(path, ()):  # of other clients: accepted, and named by doctor
            if key not in _OURS:
                made["properties"][key] = {"description": "Of another client; it has no effect here"}
        return made

    def typed(path: str, kind: str) -> dict[str, Any]:
        named = next((each for each in tables if re.fullmatch(rf"{re.escape(path)}\.(NAME|GLOB)", each)), None)
        if named is not None:
            return {"type": "object", "additionalProperties": table(named)}
        if f"{path}[]" in tables:
            return {"type": "array", "items": table(f"{path}[]")}
        if path in tables:
            whole = table(path)
            return {"anyOf": [{"type": "boolean"}, whole]} if kind.startswith("object, ") else whole
        return _typed(kind)

    whole = table("")
    whole["properties"] = {"$schema": {"type": "string"}, **whole["properties"]}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "Configuration of codemode-mcp"}
    return json.dumps({**head, **whole}, indent=1) + "\n"


_OURS: Final = ("$schema",)
_FOREIGN: Final = {"": load.FOREIGN_KEYS, "mcpServers.NAME": servers.FOREIGN_KEYS}
_TEXT: Final[dict[str, Any]] = {"type": "string"}
_SECRET_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "required": ["command"],
            "properties": {"command": {"type": "array", "items": _TEXT}},
            "additionalProperties": False,
        },
        {
            "type": "object",
            "required": ["keyring"],
            "properties": {"keyring": _TEXT},
            "additionalProperties": False,
        },
    ]
}
_AUTH_TYPES: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("token", "username", "password", "value", "clientSecret"), _SECRET_SCHEMA),
    "in": {"enum": ["header", "query", "cookie"]},
    "scopes": {"type": "array", "items": _TEXT},
    "redirectPort": {"type": "integer", "minimum": 1, "maximum": 65535},
}
"""Schemas of the keys of `auth` that are no plain strings."""


def _auth_schema(kind: str, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the schema of one kind of `auth`."""
    members = {key: {"const": kind} if key == "type" else _AUTH_TYPES.get(key, _TEXT) for key in keys}
    return {"type": "object", "required": ["type"], "properties": members, "additionalProperties": False}


_TYPES: Final[dict[str, dict[str, Any]]] = {
    "string": _TEXT,
    "object": {"type": "object"},
    "`true`, `false`": {"type": "boolean"},
    '`"oauth"` or object': {"anyOf": [{"const": "oauth"}, *(_auth_schema(*each) for each in AUTH_KEYS.items())]},
    settings.EXPOSE: {"$ref": "#/properties/expose"},
    "`prompts`, `resources`": {
        "type": "object",
        "properties": {"prompts": {"type": "boolean"}, "resources": {"type": "boolean"}},
        "additionalProperties": False,
    },
    "as `type`": {"$ref": "#/properties/mcpServers/additionalProperties/properties/type"},
    "whole number": {"type": "integer"},
    settings.SECRET: _SECRET_SCHEMA,
    settings.SECRETS: {"anyOf": [*_SECRET_SCHEMA["anyOf"], {"type": "array", "items": _SECRET_SCHEMA}]},
}
"""Schemas by the words of the tables."""


def _typed(kind: str) -> dict[str, Any]:
    """Return the schema for a type as a table names it."""
    if kind in _TYPES:
        return _TYPES[kind]
    if kind.startswith("list of "):
        values = re.findall(r'"([^"]*)"', kind)
        return {"type": "array", "items": {"enum": values} if values else _TEXT}
    if found := re.fullmatch(r"whole number, (\d+) (?:or more|to (\d+))", kind):
        most = {} if found[2] is None else {"maximum": int(found[2])}
        return {"type": "integer", "minimum": int(found[1]), **most}
    values = re.findall(r'`"([^"]*)"`', kind)
    assert values, f"{kind}: no schema is known for it"
    return {"enum": values}


def _words(text: str) -> str:
    """Return the words of a cell: without links and marks."""
    text = re.sub(r"(?:; s| ?S)ee \[(?:below|above)\]\([^)]*\)", "", text)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").strip(" .;") or "An object"


def fields(model: Any, defaults: object = None) -> tuple[tuple[str, str, str, str], ...]:
    """Return a row for each field with a docstring of a dataclass of settings.

    Args:
        defaults: an object with the default of each field, where the fields do not have them.
    """
    docs = _docs(model)
    found = []
    for each in dataclasses.fields(model):
        if each.name in docs:
            kind = each.metadata.get("kind") or _kind(model, str(each.type))
            if clamp := each.metadata.get("range"):
                kind += f", {clamp.lowest} to {clamp.highest}"
            is_made = each.default_factory is not dataclasses.MISSING
            value = {} if is_made else getattr(defaults, each.name, each.default)
            default = each.metadata.get("default") or _default(value)
            found.append((settings.key_of(each), kind, default, _said(docs[each.name])))
    return tuple(found)


def _said(text: str) -> str:
    """Return a docstring as the file has it: its words for values."""
    return text.replace("`False`", "`false`").replace("; None:", "; by default:").replace("None:", "By default:")


_KINDS: Mapping[str, str] = {
    "bool": "`true`, `false`",
    "int": "whole number",
    "str": "string",
    "tuple[str, ...]": "list of strings",
    "Mapping[str, Any]": "object",
}


def _kind(model: Any, annotation: str) -> str:
    """Return the words for a type. The names of other types than these stand for a `Literal`."""
    name = annotation.removesuffix(" | None")
    if name in _KINDS:
        return _KINDS[name]
    if listed := re.fullmatch(r"tuple\[(\w+), \.\.\.\]", name):
        return f"list of {_kind(model, listed[1])}"
    if name.startswith("Literal["):
        values = ast.literal_eval(name.removeprefix("Literal"))
    else:
        values = get_args(getattr(inspect.getmodule(model), name))
    return ", ".join(f'`"{value}"`' for value in values)


def _default(value: object) -> str:
    match value:
        case dataclasses.MISSING:
            return "required"
        case dict():
            return "`{}`"
        case bool() as flag:
            return f"`{str(flag).lower()}`"
        case int() as number:
            return str(number)
        case str() as text:
            return f'`"{text}"`'
        case tuple() as values:
            return "`[" + ", ".join(f'"{value}"' for value in values) + "]`"
    return ""


def _docs(model: Any) -> dict[str, str]:
    """Return the docstrings behind the fields of a class."""
    tree = ast.parse(inspect.getsource(model)).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for before, after in zip(tree.body, tree.body[1:], strict=False):
        match before, after:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                found[name] = " ".join(text.split())
    return found


def _sentence(model: Any) -> str:
    """Return the description of a class, without its path in the file."""
    text = " ".join((inspect.getdoc(model) or "").split()).partition(": ")[2]
    return text[0].upper() + text[1:]


# the globals of a program


def guest() -> str:
    """Write the page of `guest.d.ts`, with the comment and the text of each declaration."""
    text = (ROOT / "declarations" / "guest.d.ts").read_text("utf-8")
    parts = [
        MADE,
        "# Globals of a program\n",
        "What a program has besides the language itself (ES2023). `codemode-mcp types` writes these declarations for "
        "an editor. Not there: network, files, processes, modules, environment.\n",
    ]
    for title, names in _GUEST.items():
        parts.append(f"## {title}\n")
        blocks: list[tuple[str, list[str]]] = []
        for name in names:
            comment, declared = _declaration(text, name)
            if comment or not blocks:
                blocks.append((comment, []))
            blocks[-1][1].append(declared)
        for comment, declarations in blocks:
            parts += [f"{comment}\n"] if comment else []
            parts.append("```ts\n" + "\n".join(declarations) + "\n```\n")
    missing = set(re.findall(r"^(?:declare \w+|interface) (\w+)", text, re.MULTILINE)) - {
        n for g in _GUEST.values() for n in g
    }
    assert not missing, f"give {', '.join(sorted(missing))} a place in _GUEST"
    return broken("\n".join(parts))


_GUEST: Mapping[str, tuple[str, ...]] = {
    "Calling MCP tools": ("MCP", "McpToolResult", "ToolCallError", "McpCall", "McpApiHeader", "unwrap"),
    "Finding MCP tools": ("API", "ApiHit", "ApiFile"),
    "What the model gets to see": ("text", "json", "image", "show", "Console", "console"),
    "Across steps and programs": ("yield_control", "store", "load", "programs", "save_program", "args"),
    "Tools that are no MCP tools": ("ALL_TOOLS", "tools", "Tools", "ToolCatalogEntry", "ToolHit", "namespaces"),
    "Timers": ("setTimeout", "clearTimeout", "setInterval", "clearInterval", "queueMicrotask"),
    "Of the web": (
        *("URL", "URLSearchParams", "TextEncoder", "TextDecoder", "structuredClone"),
        *("Crypto", "crypto", "Performance", "performance", "btoa", "atob"),
    ),
    "Beyond the standard library": ("JSON",),
}


def _declaration(text: str, name: str) -> tuple[str, str]:
    """Return the comment above a declaration, as prose, and the declaration."""
    found = re.search(rf"^(?:declare \w+|interface) {name}\b", text, re.MULTILINE)
    assert found, name
    line = text[found.start() : text.index("\n", found.start())]
    end = (
        text.index("\n", found.start()) if line.count("{") == line.count("}") else text.index("\n}", found.start()) + 2
    )
    if text[end : end + 1] == ";":
        end += 1
    before = re.search(r"/\*\*((?:(?!\*/).)*)\*/\n\Z", text[: found.start()], re.DOTALL)
    comment = " ".join(re.sub(r"^\s*\* ?", "", before[1], flags=re.MULTILINE).split()) if before else ""
    return comment, text[found.start() : end]


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands,
    "configuration.md": configuration,
    "guest.md": guest,
}


if __name__ == "__main__":
    main()
