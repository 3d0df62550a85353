"""Mistakes in commands, options and arguments: each is answered with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from codemode_mcp.cli import app
from codemode_mcp.installation import command, install_command, requirements

MISTAKES = {
    "exec -e 1": "codemode-mcp run -e CODE",
    "list": "codemode-mcp tools, or codemode-mcp runs list",
    "tool": "codemode-mcp tools",
    "version": "codemode-mcp --version",
    "help": "codemode-mcp --help",
    "docter": "codemode-mcp doctor",
    "run --eval 1": "Did you mean -e?",
    "run -c x.json -e 1": "Did you mean --config?",
    "tools --sever git": "Did you mean --server?",
    "run": "the program itself: codemode-mcp run -e",
    "run -e 1 x.js": "not both",
    "run nowhere.js": "there is no file nowhere.js",
    "run return(1)": "codemode-mcp run -e 'return(1)'",
    "run --language py -e 1": "use javascript or typescript",
    "install cursor": "codemode-mcp install --client cursor",
    "install --client cursr": "did you mean: cursor",
    "import ./x.json": "codemode-mcp import --from ./x.json",
    "runs show": "codemode-mcp runs list shows the ids",
    "savings --since yesterday": "write a number, such as 7",
}


def said(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(words), prog_name="codemode-mcp")
    return done.exit_code, " ".join(done.stderr.replace("\u2502", " ").split())


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_with_what_to_write(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = said(*mistake.split())
    assert code == 2
    assert MISTAKES[mistake] in text
    assert "Value error" not in text


@pytest.mark.parametrize("words", [(), ("run",), ("runs", "show"), ("call",)])
def test_h_shows_the_help(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*words, "-h"], prog_name="codemode-mcp")
    assert done.exit_code == 0
    assert "Usage: codemode-mcp" in done.stdout


@pytest.mark.parametrize(("name", "text"), [("c.yaml", "mcpServers:\n  a: {}\n"), ("c.toml", "[mcpServers]\n")])
def test_a_configuration_in_another_format_is_told_to_be_json(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    code, told = said("run", "--config", str(tmp_path / name), "-e", "1")
    assert code == 2
    assert 'it has to begin with {, as in {"mcpServers": {}}' in told


@pytest.mark.parametrize(
    ("prefix", "has_pip", "expected"),
    [
        ("/home/ada/.local/share/pipx/venvs/codemode-mcp", True, "pipx inject codemode-mcp 'asyncpg>=0.31'"),
        ("/home/ada/.local/share/uv/tools/codemode-mcp", False, "uv pip install --python /py 'asyncpg>=0.31'"),
        ("/work/.venv", True, "/py -m pip install 'asyncpg>=0.31'"),
        ("/work/.venv", False, "uv pip install --python /py 'asyncpg>=0.31'"),
    ],
)
def test_packages_of_an_extra_are_installed_where_this_program_runs(prefix: str, has_pip: bool, expected: str) -> None:
    assert command(["asyncpg>=0.31"], Path(prefix), "/py", again=False, has_pip=has_pip) == expected


def test_the_command_for_an_extra_names_its_packages_and_never_this_one() -> None:
    assert requirements("postgres") == ["asyncpg>=0.31"]
    assert "codemode-mcp[" not in install_command("postgres")
    assert "onnxruntime" in install_command("semantic", again=True)
