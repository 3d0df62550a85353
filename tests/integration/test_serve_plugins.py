"""Plugins in the real process: the example package, installed as any package is, and plugins in files."""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner, Result

from codemode_mcp.cli import app
from tests.integration.harness import (
    ENDS_WITHIN,
    REPOSITORY,
    SECONDS,
    Session,
    cli,
    counting,
    events,
    raw,
    serve,
    until,
)

pytestmark = pytest.mark.anyio

EXAMPLE = REPOSITORY / "examples" / "plugin"


def install(folder: Path) -> dict[str, str]:
    """Install the example as a wheel's files are, without building one; the environment of a process that has it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    for package in ("issues_plugin",):
        shutil.copytree(EXAMPLE / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", "utf-8"
    )
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
    path = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": str(folder) if path is None else f"{folder}{os.pathsep}{path}"}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return install(tmp_path_factory.mktemp("site"))


def write(folder: Path, plugins: dict[str, Any], **more: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({"plugins": plugins, **more}), "utf-8")
    return path


def in_file(folder: Path, name: str, code: str, **more: Any) -> dict[str, Any]:
    """Return the entry of a plugin in a file beside the configuration."""
    text = "from codemode_mcp.plugins import *\nimport os, sys, time, threading\n" + textwrap.dedent(code)
    (folder / f"{name}.py").write_text(text, "utf-8")
    return {"module": f"./{name}.py", **more}


HELLO = """
    def register(api):
        api.tool(PluginTool(name="hello", description="Says hello.", run=lambda _: api.config.get("say", "hello")))
"""


# the example


@pytest.fixture(scope="module")
async def example(folder: Path, installed: dict[str, str]) -> AsyncIterator[Session]:
    """Yield a server with the example, whose issues are in `folder / "issues.json"`."""
    issues = {"config": {"file": str(folder / "issues.json"), "labels": ["bug", "wish"]}}
    async with serve(write(folder, {"issues": issues}), env=installed) as session:
        yield session


async def test_a_program_uses_the_tools_and_the_namespace_of_the_installed_example(
    example: Session, folder: Path
) -> None:
    program = """
        const first = await issues.create("The export   is slow", "bug");
        await tools.call("plugin:issues:create", { title: "Another" });
        const all = await issues.list();
        await issues.closeAll(first.number);
        const open = await tools.call("plugin:issues:list", { state: "open" });
        const since = (issue) => issue.number - first.number;
        return {
            first, titles: all.issues.filter((issue) => since(issue) >= 0).map((issue) => issue.title),
            open: open.issues.map(since).filter((number) => number >= 0),
            labels: issues.labels, same: namespaces.issues === issues,
            ids: ALL_TOOLS.filter((tool) => tool.source === "plugin").map((tool) => tool.id),
        };
    """
    value = await example.value(program)
    assert value["first"].pop("author") is not None
    number = value["first"].pop("number")
    assert value == {
        # The hook has changed the title.
        "first": {"title": "The export is slow", "labels": ["bug"], "state": "open"},
        "titles": ["The export is slow", "Another"],
        "open": [1],
        "labels": ["bug", "wish"],
        "same": True,
        "ids": ["plugin:issues:close", "plugin:issues:create", "plugin:issues:list"],
    }
    stored = {issue["number"]: issue for issue in json.loads((folder / "issues.json").read_text("utf-8"))}
    assert [stored[each]["state"] for each in (number, number + 1)] == ["closed", "open"]


async def test_an_optional_tool_is_there_where_a_rule_names_it_and_no_server_is_called_without_its_guard(
    tmp_path: Path, installed: dict[str, str]
) -> None:
    guard = in_file(tmp_path, "guard", "def register(api): raise ValueError", hooks=["mcp:*"])
    plugins = {"issues": {}, "guard": guard}
    servers, rules = {"up": counting(tmp_path / "log")}, {"allow": ["*", "plugin:issues:purge"]}
    async with serve(write(tmp_path, plugins, mcpServers=servers, tools=rules), env=installed) as session:
        program = 'await issues.closeAll((await issues.create("x")).number); return await tools.purge()'
        assert await session.value(program) == {"deleted": 1}
        answer = await session.exec("return await MCP.up.count({ name: 'x' })")
        assert "plugin 'guard', which must see its calls, could not be loaded" in answer.error
        assert await session.value("return 1") == 1
    assert events(tmp_path / "log") == []


def test_the_examples_own_tests_pass(installed: dict[str, str], tmp_path: Path) -> None:
    import subprocess

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLE / "tests")],
        cwd=tmp_path,
        env={**os.environ, **installed},
        capture_output=True,
        encoding="utf-8",
        timeout=2 * SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout


# the command line


def invoke(*arguments: str) -> Result:
    """Return a command in this process."""
    return CliRunner().invoke(app, list(arguments), prog_name="codemode-mcp", catch_exceptions=False)


@pytest.fixture
def found(installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is installed for this process, too."""
    monkeypatch.syspath_prepend(installed["PYTHONPATH"].partition(os.pathsep)[0])


@pytest.mark.usefixtures("found")
def test_doctor_says_what_each_plugin_has_registered_what_is_refused_and_what_is_not_loaded(tmp_path: Path) -> None:
    config = write(
        tmp_path,
        {
            "tracker": {"module": "issues_plugin:register"},
            "broken": in_file(tmp_path, "broken", "raise ValueError('no good')"),
            "off": {"enabled": False},
            "eager": in_file(tmp_path, "eager", HELLO, hooks=["mcp:*"]),
        },
    )
    done = invoke("doctor", "--json", "--config", str(config))
    listed = json.loads(done.stdout)
    checks = {(check["name"], check["status"]): check for check in listed}
    assert "4 tools, 1 hook, 1 middleware, 1 namespace" in [check["detail"] for check in listed]
    assert done.exit_code == 1
    # The last one of this name and status.
    off = "optional tools are off, because no rule names them: plugin:tracker:purge"
    assert checks["plugin tracker", "info"]["detail"] == off
    assert checks["plugin tracker", "warn"]["detail"] == (
        "its middleware want to see calls of mcp:*, but it is granted none of them"
    )
    assert "plugins.tracker.middleware" in checks["plugin tracker", "warn"]["advice"]
    assert "ValueError: no good (broken.py:3)" in checks["plugin broken", "fail"]["detail"]
    assert checks["plugin off", "info"]["detail"] == "disabled in the configuration"
    assert "has no effect" in checks["plugin eager", "warn"]["detail"]
    assert "refused" not in done.stderr, "it is a check already"
    # Installed, and under its own name not configured.
    assert "is in the installed package codemode-issues" in checks["plugin issues", "info"]["detail"]


@pytest.mark.usefixtures("found")
def test_the_plugins_tools_are_in_the_listing_of_the_command_line(tmp_path: Path) -> None:
    done = invoke("tools", "--json", "--config", str(write(tmp_path, {"issues": {}})))
    assert done.exit_code == 0, done.stderr
    assert "plugin:issues:create" in done.stdout
    assert "plugin:issues:purge" not in done.stdout


def test_what_a_plugin_prints_is_not_in_the_output_of_a_command(tmp_path: Path) -> None:
    code = "print('loud')\n" + textwrap.dedent(HELLO)
    config = write(tmp_path, {"p": in_file(tmp_path, "p", code)})
    done = cli("run", "--config", str(config), "-e", "return await tools.hello()")
    assert (done.stdout.strip(), "loud" in done.stderr) == ("hello", True)


# the process


async def test_the_server_ends_in_time_while_a_plugins_tool_hangs(tmp_path: Path) -> None:
    code = """
        def register(api):
            def hang(input):
                open("hanging", "w").close()
                threading.Event().wait()
            api.tool(PluginTool(name="hang", description="x", run=hang))
    """
    config = write(tmp_path, {"p": in_file(tmp_path, "p", code)})
    async with raw(config) as client:
        await client.initialize("2025-11-25")
        await client.send(
            id=7, method="tools/call", params={"name": "exec", "arguments": {"code": "await tools.hang()"}}
        )
        await until((tmp_path / "hanging").exists)
        with anyio.fail_after(ENDS_WITHIN):
            await client.end()


async def change(session: Session, folder: Path, plugins: dict[str, Any], words: str) -> None:
    """Change the configuration, and return when the log has these words once more."""
    before = session.stderr.count(words)
    write(folder, plugins)
    await until(lambda: session.stderr.count(words) > before)


async def test_programs_wait_for_plugins_listing_does_not_and_plugins_come_and_go_but_not_from_an_open_run(
    tmp_path: Path,
) -> None:
    proceed = tmp_path / "proceed"
    code = f"""
        while not os.path.exists({str(proceed)!r}):
            time.sleep(0.01)
    """
    first = in_file(tmp_path, "p", textwrap.dedent(code) + textwrap.dedent(HELLO))
    second = in_file(tmp_path, "q", HELLO, config={"say": "hi"})
    changed = {**second, "config": {"say": "ho"}}
    async with serve(write(tmp_path, {"p": first})) as session:
        names = [tool.name for tool in (await session.client.list_tools()).tools]
        assert names == ["exec", "wait"]
        async with anyio.create_task_group() as group:
            values: list[Any] = []

            async def run() -> None:
                values.append(await session.value("return await tools.hello()"))

            group.start_soon(run)
            # Other requests are answered meanwhile.
            await session.client.list_tools(cache_mode="refresh")
            assert values == []
            proceed.touch()
        assert values == ["hello"]

        suspended = await session.exec(
            "await yield_control(); try { await tools.call('plugin:p:hello') } catch (error) { return error.message }"
        )
        await change(session, tmp_path, {"p": first, "q": second}, "plugin 'q' loaded")
        assert await session.value("return await tools.call('plugin:q:hello')") == "hi"
        await change(session, tmp_path, {"p": first, "q": changed}, "plugin 'q' loaded")
        assert await session.value("return await tools.call('plugin:q:hello')") == "ho"
        await change(session, tmp_path, {"q": changed}, "removed plugin 'p'")
        listed = await session.value("return ALL_TOOLS.map((tool) => tool.id)")
        assert "plugin:q:hello" in listed
        assert "plugin:p:hello" not in listed
        gone = (await session.wait(suspended.run_id)).value
        assert "plugin 'p' was removed or loaded again while this program ran" in gone
        assert "plugin 'p' failed" not in session.stderr


async def test_the_plugin_redact_hides_secrets_of_results_from_programs(tmp_path: Path) -> None:
    token = "npm" + "_" + "aB3" * 12
    path = tmp_path / "config.json"
    plugins = {"redact": {"middleware": ["mcp:library:count"]}}
    path.write_text(json.dumps({"mcpServers": {"library": counting(tmp_path / "log")}, "plugins": plugins}), "utf-8")
    async with serve(path) as session:
        program = "return unwrap(await MCP.library.{}({{ name: {} }}))"
        assert await session.value(program.format("count", json.dumps(f"the token {token}."))) == (
            "the token [redacted: npm token]."
        )
        assert events(tmp_path / "log") == [f"call the token {token}."]
        assert token not in session.stderr
