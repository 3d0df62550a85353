"""What the documentation shows works, and says what the code says."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mcp_types as types
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from codemode_mcp.cli import COMMANDS
from codemode_mcp.config import load_config
from codemode_mcp.errors import ERROR_CODES
from codemode_mcp.settings import CLAMPS, CodeModeSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    async with Client(StdioServerParameters(command=str(command), args=arguments)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["exec", "wait"]
        for program in snippets("ts"):
            result = await client.call_tool("exec", {"code": program, "language": "typescript"})
            assert not result.is_error, result.content
            rows: list[dict[str, Any]] = (result.structured_content or {})["value"]
            assert {"name", "open", "hours"} == set(rows[0])


def test_the_configuration_of_the_readme_is_valid(tmp_path: Path) -> None:
    (text,) = snippets("jsonc")
    path = tmp_path / "codemode-mcp.json"
    path.write_text(text, "utf-8")
    config = load_config(path, environ={"HOME": "/home/me", "DOCS_TOKEN": "a-token-of-mine"})
    assert [spec.name for spec in config.upstreams] == ["files", "docs"]


def configurations() -> Iterator[tuple[str, str]]:
    for page in [*sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "plugin" / "README.md"]:
        for number, text in enumerate(re.findall(r"```jsonc?\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
            yield f"{page.parent.name}/{page.name}#{number}", text


@pytest.mark.parametrize(("place", "text"), [pytest.param(*each, id=each[0]) for each in configurations()])
def test_every_configuration_that_a_page_shows_is_valid(place: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "codemode-mcp.json"
    printing = json.dumps([sys.executable, "-c", "print('a-secret-of-twenty-letters')"])
    path.write_text(re.sub(r'\["pass".*?\]', lambda _: printing, text), "utf-8")
    config = load_config(path, environ={name: f"a-secret-of-{name}" for name in re.findall(r"\$\{(\w+)\}", text)})
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
        command=sys.executable, args=["-m", "codemode_mcp", "serve", "--config", str(quickstart)]
    )
    async with Client(command, elicitation_callback=elicit, sampling_callback=sample) as client:
        first, second = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
        result = await client.call_tool("exec", {"code": first + "return [hits[0].id, more.id, value, same]"})
        answer = {"accepted": True, "action": "accept", "content": {}}
        assert (result.structured_content or {})["value"] == ["client:session:elicit"] * 2 + [answer] * 2
        assert asked == ["[the program] Go on?"] * 2
        # Of some rows: there are eight rounds of sixteen at most in one answer.
        few = second.replace(".issues;", ".issues.slice(0, 10);")
        result = await client.call_tool("exec", {"code": few})
        assert (result.structured_content or {})["value"] == ["bug"] * 10


def test_the_readme_leads_to_every_page_and_names_every_command() -> None:
    for page in (ROOT / "docs").glob("*.md"):
        assert f"](docs/{page.name})" in README, page.name
    for name in COMMANDS:
        assert re.search(rf"^\| `codemode-mcp {name}\b|^\|.*`{name} SERVER`", README, re.MULTILINE), name


def test_the_layers_in_the_architecture_are_those_of_the_import_contracts() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = {each["name"]: each["layers"] for each in contracts if each["type"] == "layers"}
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")

    def drawn(beginning: str) -> list[set[str]]:
        (found,) = re.findall(rf"^{beginning}((?:.*)(?:\n  →.*)*)", text, re.MULTILINE)
        return [set(re.findall(r"[\w]+", layer)) for layer in found.split("→")]

    for beginning, name in (
        ("(?=__main__ →)", "Rooms of codemode_mcp"),
        ("inside runs:", "Inside runs: the state machine knows nobody"),
        ("inside sandbox:", "Inside the sandbox"),
    ):
        assert drawn(beginning) == [set(re.findall(r"\w+", layer)) for layer in layers[name]]


def test_every_link_of_the_documentation_leads_to_a_file() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def rows(page: str) -> Iterator[list[str]]:
    for line in (ROOT / "docs" / page).read_text("utf-8").splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def test_the_table_of_settings_names_every_field_with_its_default_and_range() -> None:
    documented = {row[0].strip("`"): row for row in rows("configuration.md") if len(row) == 4}
    defaults = CodeModeSettings()
    fields = {re.sub(r"_(\w)", lambda m: m[1].upper(), f.name): f.name for f in dataclasses.fields(defaults)}
    assert set(documented) == set(fields)
    for key, name in fields.items():
        if key in CLAMPS:
            assert documented[key][2] == f"{CLAMPS[key].lowest} to {CLAMPS[key].highest}"
            if key not in ("maxRunningRuns", "maxSuspendedRunsPerOwner"):  # by the machine, by the transport
                assert documented[key][1] == str(getattr(defaults, name))


def test_the_table_of_errors_has_every_code_once() -> None:
    assert sorted(row[0].strip("`") for row in rows("errors.md")) == sorted(ERROR_CODES)


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
