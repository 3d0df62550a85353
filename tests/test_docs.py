"""Examples of the documentation work, and its facts match the code."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from itertools import dropwhile, groupby
from pathlib import Path, PurePosixPath
from typing import Any

import mcp_types as types
import pytest
import typer
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from codemode_mcp.base.errors import ERROR_CODES
from codemode_mcp.base.settings import CodeModeSettings, ranges
from codemode_mcp.cli import app
from codemode_mcp.config import load_config
from codemode_mcp.extensions.setup.mcp_clients.locations import CLIENTS
from codemode_mcp.program.syntax import parse as parse_program
from codemode_mcp.program.syntax import utf16_units
from tests.integration.harness import tsc
from upstream_clients import environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
QUICKSTART = ROOT / "examples" / "quickstart"


def snippets(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    """A configuration with the two servers the README's programs speak of."""
    servers = {
        name: {"command": sys.executable, "args": [str(QUICKSTART / f"{name}.py")]} for name in ("tracker", "reports")
    }
    path = tmp_path / "codemode-mcp.json"
    path.write_text(json.dumps({"mcpServers": servers}), "utf-8")
    return path


@pytest.mark.anyio
async def test_the_clients_entry_of_the_readme_starts_a_server_that_runs_the_programs_of_the_readme(
    quickstart: Path,
) -> None:
    (entry,) = (json.loads(text)["mcpServers"]["codemode"] for text in snippets("json"))
    assert Path(entry["command"]).name == "codemode-mcp"
    command = Path(sys.executable).with_name("codemode-mcp")
    arguments = [str(quickstart) if argument.endswith(".json") else argument for argument in entry["args"]]
    async with Client(StdioServerParameters(command=str(command), args=arguments, env=dict(os.environ))) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["exec", "wait"]
        for program in snippets("ts"):
            result = await client.call_tool("exec", {"code": program, "language": "typescript"})
            assert not result.is_error, result.content
            rows: list[dict[str, Any]] = (result.structured_content or {})["value"]
            assert {"name", "open", "hours"} == set(rows[0])


def test_the_configuration_of_the_readme_works_with_no_variable_but_home(tmp_path: Path) -> None:
    (text,) = snippets("jsonc")
    path = tmp_path / "codemode-mcp.json"
    path.write_text(text, "utf-8")
    config = load_config(path, environ={"HOME": "/home/me"})
    assert [spec.name for spec in config.upstreams] == ["files", "memory"]


# every block of every page

PAGES = [
    *(path for path in sorted(ROOT.glob("*.md"))),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.parent.name != "reference"),
    *(path for path in sorted(ROOT.glob("examples/*/README.md"))),
]
"""All but the generated ones."""
COOKBOOK = "docs/cookbook.md"
"""Its programs and answers are checked by tests/real_servers/test_cookbook.py."""
TESTING = "docs/testing-programs.md"
"""Its expectations are checked by tests/extensions/program_tools/program_tests."""
PROGRAMS = frozenset(
    (
        *("cat", "cd", "mkdir", "printf", "git", "keyring", "openssl", "ssh", "docker", "podman", "npm", "npx"),
        *("opentelemetry-instrument", "pip", "pipx", "python", "python3", "uv", "uvx"),
    )
)
"""Programs in shell blocks besides `codemode-mcp`."""
LAUNCHERS = {"opentelemetry-instrument", "pipx", "uv", "uvx"}
"""Those that start a program that is named behind them."""


def blocks() -> Iterator[tuple[str, str, str]]:
    """Place, language and text of each fenced block."""
    for page in PAGES:
        fences = re.findall(r"^( *)```(\w*)[ ]*\n(.*?)^\1```[ ]*$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        for number, (_, language, text) in enumerate(fences):
            yield f"{page.relative_to(ROOT).as_posix()}#{number}", language, text


def blocks_of(*languages: str) -> Iterator[tuple[str, str]]:
    return ((place, text) for place, language, text in blocks() if language in languages)


def test_every_block_has_a_language_that_is_checked_or_is_output() -> None:
    known = {"js", "ts", "json", "jsonc", "sh", "python", "toml", "console", "text"}
    assert [(place, language) for place, language, _ in blocks() if language not in known] == []
    # What `console` shows is run by the tests of examples alone.
    assert [place for place, _ in blocks_of("console") if not place.startswith("examples/")] == []


def misused(line: str) -> list[str]:
    """Return the mistakes of a line of a shell: unknown commands and options of ours, unknown programs."""
    words = shlex.split(line, comments=True)
    problems: list[str] = []
    for is_operator, group in groupby(words, lambda word: word in ("&&", "||", "|", ";")):
        command = list(dropwhile(lambda word: re.match(r"\w+=", word), group))
        if is_operator or not command:
            continue
        command = command[: next((at for at, word in enumerate(command) if word in ("<", ">", ">>")), len(command))]
        ours = next((at for at, word in enumerate(command) if PurePosixPath(word).name == "codemode-mcp"), None)
        if ours is not None and (not ours or (command[0] in LAUNCHERS and command[ours - 1] != "install")):
            problems += _unknown(command[ours + 1 :])
        elif PurePosixPath(command[0]).name not in PROGRAMS:
            problems.append(f"{command[0]}: what is not checked is marked as `text`")
        else:
            problems += [
                f"{word} is not there"
                for word in command
                if re.fullmatch(r"[\w/]+\.py", word) and not (ROOT / word).exists()
            ]
    return problems


def _unknown(arguments: list[str]) -> list[str]:
    command: Any = typer.main.get_command(app)
    path = ["codemode-mcp"]
    while arguments and hasattr(command, "get_command") and not arguments[0].startswith("-"):
        name, *arguments = arguments
        path.append(name)
        found = command.get_command(command.context_class(command), name)
        if found is None:
            return [f"{' '.join(path)}: no such command"]
        command = found
    # Parsed, and nothing more: no callback is called, and eager options such as `--install-completion` do nothing.
    context = command.context_class(command, info_name=path[-1])
    try:
        given, rest, _ = command.make_parser(context).parse_args([*arguments])
    except Exception as error:
        return [f"{' '.join([*path, *arguments])}: {error}"]
    problems = [f"{' '.join(path)}: what is {rest[0]}?"] if rest else []
    for parameter in command.params:
        choices = re.search(r"<(\S+\|\S+)>", parameter.display_type(context))
        value = given.get(parameter.name)
        if choices and isinstance(value, str) and value not in choices[1].split("|"):
            problems.append(f"{' '.join(path)}: {value} is none of {choices[1]}")
        # `install` takes any name, and prints an entry to copy for those that it does not know.
        if parameter.name == "client" and isinstance(value, str) and value not in CLIENTS:
            problems.append(f"{' '.join(path)}: {value} is no client")
    return problems


def test_every_command_of_the_pages_is_there() -> None:
    for place, text in blocks_of("sh"):
        lines = text.replace("\\\n", " ").splitlines()
        assert [problem for line in lines for problem in misused(line)] == [], place


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("codemode-mcp serv", "no such command"),
        ("cd x && codemode-mcp tools --limit 3", "--limit"),
        ("LEVEL=1 codemode-mcp runs list --html x", "--html"),
        ("python3 tests/gone.py", "is not there"),
        ("codemode-mcp install --client absent", "absent"),
        ("codemode-mcp login one two", "what is two?"),
        ("frobnicate", "marked as `text`"),
    ],
)
def test_a_command_that_is_not_there_is_noticed(line: str, problem: str) -> None:
    assert problem in "".join(misused(line))


def test_every_program_of_the_pages_parses() -> None:
    for place, text in blocks_of("js", "ts"):
        tree = parse_program(utf16_units(text))
        assert tree is not None
        assert not tree.root_node.has_error, place


def test_every_typescript_program_of_the_pages_fits_the_types_of_programs(tmp_path: Path) -> None:
    (tmp_path / "guest.d.ts").write_text((ROOT / "declarations" / "guest.d.ts").read_text("utf-8"), "utf-8")
    servers: set[str] = set()
    for number, (_, text) in enumerate(blocks_of("ts")):
        servers |= set(re.findall(r"\bMCP\.(\w+)", text))
        is_saved = "export default" in text
        whole = text if is_saved else f"async function program() {{\n{text}\n}}\n"
        (tmp_path / f"{number}.ts").write_text(whole, "utf-8")
    declared = "".join(f"  const {name}: any;\n" for name in sorted(servers))
    (tmp_path / "servers.d.ts").write_text(f"declare namespace MCP {{\n{declared}}}\n", "utf-8")
    # What these servers return is unknown here.
    assert [error for error in tsc(tmp_path) if not re.search("TS(7006|7031|18046|2339)", error)] == []


def test_every_piece_of_python_of_the_pages_compiles_and_imports_what_there_is() -> None:
    for place, text in blocks_of("python"):
        for node in ast.walk(ast.parse(text, place)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("codemode_mcp"):
                module = import_module(node.module or "")
                assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == [], place


def test_every_piece_of_toml_of_the_pages_is_sound() -> None:
    for place, text in blocks_of("toml"):
        assert tomllib.loads(text), place


def configurations() -> Iterator[tuple[str, str]]:
    """All whole configurations: not what clients have, the answers of the cookbook, and expectations of tests."""
    for place, text in blocks_of("json", "jsonc"):
        if not place.startswith((COOKBOOK, "README.md", TESTING)):
            yield place, text


@pytest.mark.parametrize(("place", "text"), [pytest.param(*each, id=each[0]) for each in configurations()])
def test_every_configuration_that_a_page_shows_is_valid(place: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    printing = json.dumps([sys.executable, "-c", "print('a-secret-of-twenty-letters')"])
    path.write_text(re.sub(r'\["pass".*?\]', lambda _: printing, text), "utf-8")
    environ = {name: hashlib.sha256(name.encode()).hexdigest() for name in re.findall(r"\$\{(\w+)\}", text)}
    environ["DATABASE_URL"] = "postgresql://me:secret@db.example/runs"
    config = load_config(path, environ=environ)
    assert config.notes == (), place


@pytest.mark.anyio
async def test_the_programs_of_the_page_on_other_tools_run(quickstart: Path) -> None:
    page = (ROOT / "docs" / "tools.md").read_text("utf-8")
    asked: list[str] = []

    async def elicit(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={})

    async def sample(context: object, params: types.CreateMessageRequestParams) -> types.CreateMessageResult:
        content = types.TextContent(type="text", text="bug")
        return types.CreateMessageResult(role="assistant", content=content, model="m")

    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "codemode_mcp", "serve", "--config", str(quickstart)],
        env=dict(os.environ),
    )
    async with Client(command, elicitation_callback=elicit, sampling_callback=sample) as client:
        first, second = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
        result = await client.call_tool("exec", {"code": first + "return [hits[0].id, more.id, value, same]"})
        answer = {"accepted": True, "action": "accept", "content": {}}
        assert (result.structured_content or {})["value"] == ["client:session:elicit"] * 2 + [answer] * 2
        assert asked == ["[the program] Continue?"] * 2
        # Of some rows: there are eight rounds of sixteen at most in one answer.
        few = second.replace(".issues;", ".issues.slice(0, 10);")
        result = await client.call_tool("exec", {"code": few})
        assert (result.structured_content or {})["value"] == ["bug"] * 10


def test_the_readme_leads_to_every_page_of_the_documentation() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        assert f"]({page.relative_to(ROOT).as_posix()})" in README, page.name


def test_the_layers_in_the_architecture_are_those_of_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = {each["name"]: each["layers"] for each in contracts if each["type"] == "layers"}
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

    def drawn(beginning: str) -> list[set[str]]:
        (found,) = re.findall(rf"^{beginning}((?:.*)(?:\n  →.*)*)", text, re.MULTILINE)
        return [set(re.findall(r"[\w]+", layer)) for layer in found.split("→")]

    assert drawn("(?=__main__ →)") == [set(re.findall(r"\w+", layer)) for layer in layers["Rooms of codemode_mcp"]]


def dangling(page: str) -> list[str]:
    """Return the tests and benchmarks that a page names and that do not exist."""
    named = re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)(?:::(\w+))?`", page)
    missing = []
    for file, test in named:
        path = ROOT / file
        if not path.is_file() or (test and not re.search(rf"^(?:async )?def {test}\(", path.read_text("utf-8"), re.M)):
            missing.append(f"{file}::{test}" if test else file)
    return missing


def test_every_promise_names_a_test_or_a_benchmark_that_exists() -> None:
    page = (ROOT / "docs" / "promises.md").read_text("utf-8")
    rows = [
        line for line in page.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| figure"))
    ]
    assert [row for row in rows if not re.search(r"`(?:tests|benchmarks)/", row)] == []
    assert dangling(page) == []


@pytest.mark.parametrize(
    "name", ["tests/gone.py::test_x", "tests/test_docs.py::test_that_does_not_exist", "benchmarks/gone.py"]
)
def test_a_dangling_name_is_found(name: str) -> None:
    assert dangling(f"| a promise | a figure | `{name}` |") == [name]


def test_every_link_of_the_documentation_leads_to_a_file() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("examples/*/README.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def rows(page: str) -> Iterator[list[str]]:
    for line in (ROOT / "docs" / page).read_text("utf-8").splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.skipif(sys.platform == "win32", reason="the page names only some of the variables of Windows")
def test_the_page_names_each_variable_that_a_server_inherits() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    section = page.split("### Variables that a server inherits\n")[1].split("\nPut all other variables")[0]
    named = set(re.findall(r"`([\w*]+)`", re.sub(r"On Windows .*", "", section)))
    # The page says of proxies that both cases count.
    lower = {name.lower() for name in named if name.endswith("_PROXY")}
    assert named | lower == environment.NAMES | {f"{prefix}*" for prefix in environment.PREFIXES}


def test_the_table_of_settings_names_every_field_with_its_default_and_range() -> None:
    documented = {row[0].strip("`"): row for row in rows("configuration.md") if len(row) == 4}
    defaults, limits = CodeModeSettings(), ranges(CodeModeSettings)
    fields = {re.sub(r"_(\w)", lambda m: m[1].upper(), f.name): f.name for f in dataclasses.fields(defaults)}
    assert set(documented) == set(fields)
    for key, name in fields.items():
        if key in limits:
            assert documented[key][2] == f"{limits[key].lowest} to {limits[key].highest}"
            if key not in ("maxRunningRuns", "maxSuspendedRunsPerOwner"):  # by the machine, by the transport
                assert documented[key][1] == str(getattr(defaults, name))


def test_the_table_of_errors_has_every_code_once_with_its_cause_and_its_cure() -> None:
    assert sorted(row[0].strip("`") for row in rows("errors.md")) == sorted(ERROR_CODES)
    assert [row[0] for row in rows("errors.md") if len(row) != 3 or not all(row)] == []


def test_the_architecture_names_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    for path in (ROOT / "codemode_mcp").iterdir():
        name = path.stem
        if not name.startswith(("__", "py", "_")) and (path.suffix == ".py" or (path / "__init__.py").exists()):
            assert f"`{name}" in text or f"{name}/" in text or f" {name} " in text, name


def test_the_architecture_names_every_folder_of_tests() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    for path in (ROOT / "tests").iterdir():
        if any(path.glob("test_*.py")):
            assert f"`tests/{path.name}`" in text, path.name
