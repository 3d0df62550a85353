"""A configuration that lies in the working directory, in a folder that was never used before."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

from codemode_mcp.config import confirmation, find_config
from tests.integration.harness import cli, invoke
from tests.integration.terminal import terminal

SECRET = "sk-0123456789-verysecret"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fresh checkout whose configuration starts a program that leaves a file, and nothing confirmed yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "codemode-mcp.json").write_text(json.dumps(leaving_a_file(folder)))
    monkeypatch.chdir(folder)
    return folder


def leaving_a_file(folder: Path) -> dict[str, Any]:
    code = f"open({str(folder / 'started')!r}, 'w')"
    return {"mcpServers": {"mark": {"command": sys.executable, "args": ["-c", code, "--token", SECRET]}}}


@pytest.mark.parametrize("command", [("run", "-e", "return await MCP.mark.x()"), ("tools",), ("doctor",), ("serve",)])
def test_without_a_terminal_it_is_refused_with_the_option_to_give(checkout: Path, command: tuple[str, ...]) -> None:
    done = invoke(*command)
    assert done.exit_code == 2
    said = " ".join(done.output.split())
    assert f"--config {checkout / 'codemode-mcp.json'}" in said
    assert "starts programs as you" in said
    assert said.count("at a terminal") == 1
    assert not (checkout / "started").exists()


def test_one_that_is_named_or_starts_nothing_needs_no_answer(checkout: Path) -> None:
    named = invoke("run", "--config", "codemode-mcp.json", "-e", "return 1")
    assert (named.exit_code, named.stdout) == (0, "1\n"), named.output
    (checkout / "codemode-mcp.json").write_text('{"tools": {"deny": ["mcp:a:*"]}, "mcpServers": {}}')
    found = invoke("run", "-e", "return 1")
    assert (found.exit_code, found.stdout) == (0, "1\n"), found.output


@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals there")
@pytest.mark.anyio
async def test_at_a_terminal_it_is_shown_and_confirmed_once(checkout: Path) -> None:
    command = ("run", "-q", "-e", "return 40 + 2")
    async with terminal(*command, cwd=checkout) as shell:
        await shell.see(r"server mark: \S+ -c open.*anything else: no.*> ")
        assert SECRET not in shell.text
        shell.type("no\n")
        assert await shell.end() == 2
        words = shell.text.split()  # lines are broken by the length of the path
        assert "42" not in words
        assert "was started" in " ".join(words)
        assert "not confirmed" not in " ".join(words)
    async with terminal(*command, cwd=checkout) as shell:
        await shell.see("Type yes")
        shell.type("yes\n")
        assert await shell.end() == 0
        assert "42" in shell.text
    again = await anyio.to_thread.run_sync(partial(cli, *command, cwd=checkout))
    assert (again.returncode, again.stdout) == (0, "42\n"), again.stderr
    assert not (checkout / "started").exists()


def test_a_change_of_what_it_starts_asks_again_and_a_change_of_a_rule_does_not(tmp_path: Path) -> None:
    path, kept = tmp_path / "codemode-mcp.json", tmp_path / "kept"
    config = leaving_a_file(tmp_path)
    path.write_text("{}")
    assert not confirmation.is_confirmed(path, config, kept)
    confirmation.confirm(path, config, kept)
    assert confirmation.is_confirmed(path, config, kept)
    assert confirmation.is_confirmed(path, {**config, "tools": {"deny": ["write"]}, "clients": {}}, kept)
    link = tmp_path / "link.json"
    link.symlink_to(path)
    assert confirmation.is_confirmed(link, config, kept)
    changes: list[dict[str, Any]] = [
        {"mcpServers": {"mark": {**config["mcpServers"]["mark"], "env": {"PATH": "/tmp"}}}},
        {"plugins": {"p": {"module": "p.py"}}},
        {"tools": {"approval": {"notify": ["sh"]}}},
        {"tools": {"esbuild": "./esbuild"}},
        {"store": {"kind": "sqlite", "path": "x"}},
        {"audit": {"trajectory": "/etc/x"}},
    ]
    for change in changes:
        assert not confirmation.is_confirmed(path, {**config, **change}, kept), change
    assert not confirmation.is_confirmed(tmp_path / "other" / "codemode-mcp.json", config, kept)


@pytest.mark.skipif(sys.platform == "win32", reason="no modes there")
def test_an_answer_that_another_user_can_write_counts_for_nothing(tmp_path: Path) -> None:
    path, kept = tmp_path / "codemode-mcp.json", tmp_path / "kept"
    config = leaving_a_file(tmp_path)
    confirmation.confirm(path, config, kept)
    (record,) = kept.iterdir()
    os.chmod(record, 0o666)
    assert not confirmation.is_confirmed(path, config, kept)


@pytest.mark.skipif(sys.platform == "win32", reason="no links without rights there")
def test_a_link_in_another_folder_to_a_confirmed_file_is_asked_about(tmp_path: Path) -> None:
    mine, theirs, kept = tmp_path / "mine", tmp_path / "theirs", tmp_path / "kept"
    mine.mkdir()
    theirs.mkdir()
    config = {"mcpServers": {"local": {"command": "./server"}}}
    (mine / "codemode-mcp.json").write_text("{}")
    (theirs / "codemode-mcp.json").symlink_to(mine / "codemode-mcp.json")
    confirmation.confirm(mine / "codemode-mcp.json", config, kept)
    assert confirmation.is_confirmed(mine / "codemode-mcp.json", config, kept)
    assert not confirmation.is_confirmed(theirs / "codemode-mcp.json", config, kept)


@pytest.mark.parametrize("harmless", ["{}", "not JSON"])
def test_what_is_put_in_its_place_after_it_was_found_is_not_obeyed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, harmless: str
) -> None:
    path = checkout / "codemode-mcp.json"
    malign = path.read_text()
    path.write_text(harmless)

    def exchanging(*args: Any, **options: Any) -> Path | None:
        found = find_config(*args, **options)
        path.write_text(malign)
        return found

    monkeypatch.setattr("codemode_mcp.config.find_config", exchanging)
    done = invoke("tools")
    assert done.exit_code == 2, done.output
    assert "starts programs as you" in " ".join(done.output.split())
    assert not (checkout / "started").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
def test_the_owner_of_the_very_file_that_is_read_decides(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = checkout / "codemode-mcp.json"
    path.write_text("{}")

    def exchanging(*args: Any, **options: Any) -> Path | None:
        found = find_config(*args, **options)
        os.chown(path, 65534, 65534)
        return found

    monkeypatch.setattr("codemode_mcp.config.find_config", exchanging)
    done = invoke("tools")
    assert done.exit_code == 2, done.output
    assert "belongs to another user" in " ".join(done.output.split())


def test_the_question_shows_commands_that_print_values_and_names_of_variables() -> None:
    value = {
        "mcpServers": {
            "good": {
                "command": "npx",
                "args": ["good"],
                "cwd": "sub",
                "env": {"LD_PRELOAD": "./evil.so", "TOKEN": {"command": ["sh", "-c", "evil", "--token", SECRET]}},
            },
            "far": {"url": "https://x.test/", "headers": {"X-Key": {"command": ["evil-header"]}}},
        },
        "store": {"kind": "redis", "url": {"command": ["evil-store"]}},
        "plugins": {"p": {"config": {"deep": [{"command": ["evil-plugin"]}]}}},
    }
    shown = confirmation.described_parts(value)
    assert shown[:4] == [
        "server good: npx good",
        "  cwd: sub",
        "  variables: LD_PRELOAD, TOKEN",
        "  for a value: sh -c evil --token ***",
    ]
    pushed = {"mcpServers": {"far": {"command": "npx", "args": ["good" + " " * 5000 + "; evil"]}}}
    assert confirmation.described_parts(pushed) == ["server far: npx good ; evil"]
    assert {"  for a value: evil-header", "  for a value: evil-store", "  for a value: evil-plugin"} < set(shown)
