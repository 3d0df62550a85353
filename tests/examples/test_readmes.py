"""READMEs of the examples: their commands give the output that they show.

In a block of `console`, a line with `$` is a command and the others are its output; `...` stands for any lines, and
what follows `approve or deny? ` was typed. Commands of `sh` blocks only have to work.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest
from typer.testing import CliRunner

from codemode_mcp.base.errors import RuntimeUnavailable
from codemode_mcp.base.paths import cache_dir
from codemode_mcp.cli import app
from codemode_mcp.program.esbuild import find_esbuild
from tests.integration.harness import SECONDS
from tests.integration.terminal import terminal

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
ON_ONE_SCREEN = ("approval", "long_running", "many_servers")
MOST_LINES = 60
ASKED = "approve or deny? "

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no python3 in an environment on Windows")


def environment() -> dict[str, str]:
    """Return the environment of a user who has activated the checkout's virtual environment."""
    return {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def blocks(language: str) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each block."""
    for page in sorted(EXAMPLES.glob("*/README.md")):
        for number, block in enumerate(re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), re.DOTALL)):
            yield f"{page.parent.name}-{number}", block


CONSOLES = dict(blocks("console"))
COMMANDS = {place: block for place, block in blocks("sh") if place.startswith("many_servers")}
"""The others are those of every day, which other tests run, or wait for a person."""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def run(command: str, typed: str = "") -> Done:
    """Return a command of a README; ours, but for the quick start's, in this process."""
    program, *arguments = shlex.split(command.removesuffix("< /dev/null"))
    if program == "codemode-mcp" and "quickstart" not in command:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(ROOT)
            ours = CliRunner().invoke(
                app, arguments, env=environment(), input=typed, prog_name=program, catch_exceptions=False
            )
        return Done(ours.exit_code, ours.stdout, ours.stderr)
    done = subprocess.run(
        ["sh", "-c", command],
        cwd=ROOT,
        env=environment(),
        input=typed,
        capture_output=True,
        encoding="utf-8",
        timeout=2 * SECONDS,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("place", CONSOLES)
def test_a_command_of_a_readme_prints_what_the_readme_says(place: str) -> None:
    block = CONSOLES[place]
    if ".ts " in block and not has_esbuild():
        pytest.skip("esbuild is not there")
    command, _, output = block.removeprefix("$ ").partition("\n")
    typed = "".join(f"{answer}\n" for answer in re.findall(rf"^{re.escape(ASKED)}(.*)$", output, re.MULTILINE))
    done = run(command, typed)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    if "client.py" in command and "long_running" in command:
        assert steady(done.stdout) == steady(output)
        assert "progress:" in done.stdout or "progress:" not in output
    else:
        # What is typed is not on a pipe; a terminal shows it.
        wanted = re.sub(rf"^({re.escape(ASKED)}).*\n", r"\1", output, flags=re.MULTILINE)
        pattern = re.escape(wanted).replace(re.escape("...\n"), r"(?:.*\n)+")
        assert re.fullmatch(pattern, done.stdout), done.stdout


def has_esbuild() -> bool:
    try:
        find_esbuild(None, environ=os.environ, cache_dir=cache_dir())
    except RuntimeUnavailable:
        return False
    return True


def steady(output: str) -> list[str]:
    """Return the lines that do not depend on the speed of a machine: without waits and what is seen meanwhile."""
    passing = ("→ wait", "← waiting: pending_tools")
    return [line for line in output.splitlines() if line not in passing and "progress:" not in line]


@pytest.mark.parametrize("place", COMMANDS)
def test_the_other_commands_of_a_readme_work(place: str) -> None:
    for command in COMMANDS[place].splitlines():
        done = run(command)
        assert done.returncode == 0, done.stderr
        assert done.stdout


@pytest.mark.anyio
async def test_a_person_decides_in_another_terminal_for_a_client_that_cannot_ask() -> None:
    readme = (EXAMPLES / "approval" / "README.md").read_text("utf-8")
    (command,) = re.findall(r"^python .*--mute$", readme, re.MULTILINE)
    async with await anyio.open_process(command, cwd=ROOT, env=environment(), stderr=None) as client:
        assert client.stdout is not None
        text = ""

        async def read_until(pattern: str) -> str:
            nonlocal text
            assert client.stdout is not None
            with anyio.fail_after(SECONDS):
                while not (found := re.search(pattern, text)):
                    text += (await client.stdout.receive()).decode()
            return found[1]

        name = await read_until(r"runs approve (run_[\w-]+)`")
        async with terminal("runs", "approve", name) as person:
            await person.confirm()
            assert await person.end() == 0
            assert '"title": "Old plan"' in person.text
        assert await read_until(r"(\d) notes are left") == "2"


def test_the_configuration_of_the_dozen_servers_is_the_generated_one() -> None:
    folder = EXAMPLES / "many_servers"
    generated = runpy.run_path(str(folder / "generate.py"))["configuration"]()
    assert (folder / "codemode-mcp.json").read_text("utf-8") == generated


def test_every_example_has_a_readme_and_the_small_ones_fit_a_screen() -> None:
    folders = [folder for folder in EXAMPLES.iterdir() if folder.is_dir()]
    assert {*ON_ONE_SCREEN, "deployment", "openapi", "plugin", "quickstart"} == {folder.name for folder in folders}
    for folder in folders:
        assert (folder / "README.md").is_file(), folder.name
    for name in ON_ONE_SCREEN:
        for path in (EXAMPLES / name).iterdir():
            if path.is_file():
                assert len(path.read_text("utf-8").splitlines()) <= MOST_LINES, path


def test_every_link_of_the_readmes_leads_to_a_file() -> None:
    for page in EXAMPLES.glob("*/README.md"):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page}: {target}"
