"""Tests of the plan of an import and of the file that it writes."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.config import load_config
from codemode_mcp.config.edit import ChangedMeanwhileError
from codemode_mcp.config.source import SourceError
from codemode_mcp.extensions.setup.mcp_clients.client_files import Change, Source, read_named
from codemode_mcp.extensions.setup.mcp_clients.importing import Plan, Secrets, existing_at, make_plan
from codemode_mcp.extensions.setup.mcp_clients.locations import ClientName, Machine
from codemode_mcp.extensions.setup.mcp_clients.own_entries import overlap_warnings, overlaps

GITHUB = {"command": "npx", "args": ["-y", "github"], "env": {"GITHUB_TOKEN": "hunter2"}}


def source(client: ClientName, scope: str = "user", **servers: object) -> Source:
    return Source(client, scope, Path(f"/home/me/{client}.json"), servers=servers)


def here(tmp_path: Path, **environ: str) -> Machine:
    return Machine("linux", tmp_path, environ, tmp_path)


def plan(target: Path, *sources: Source, secrets: Secrets = "keep", **env: str) -> Plan:
    before = existing_at(target)
    return make_plan(sources, target, before, here(target.parent, **env), secrets)


def write(made: Plan) -> Path | None:
    assert made.change is not None
    return made.change.write()


def statuses(made: Plan) -> list[tuple[str, str, str]]:
    return [(item.name, item.status, item.our_name) for item in made.items]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "config" / "codemode-mcp.json"


def test_a_new_configuration_loads_and_a_second_import_adds_nothing(target: Path) -> None:
    cursor = source("cursor", github=GITHUB, docs={"url": "https://d.example"}, me={"command": "codemode-mcp"})
    made = plan(target, cursor)
    assert statuses(made) == [("github", "new", "github"), ("docs", "new", "docs"), ("me", "itself", "")]
    assert [item.name for item in made.of_status("itself")] == ["me"]
    assert write(made) is None
    config = load_config(target, environ={})
    assert [(each.name, each.env.get("GITHUB_TOKEN")) for each in config.upstreams] == [
        ("github", "hunter2"),
        ("docs", None),
    ]
    again = plan(target, cursor)
    assert again.change is None
    assert [status for _, status, _ in statuses(again)] == ["there", "there", "itself"]
    # In both modes of secrets.
    assert plan(target, cursor, secrets="variables").change is None


def test_secrets_become_variables_on_request_and_it_says_which(target: Path) -> None:
    made = plan(target, source("cursor", github=GITHUB), secrets="variables", GITHUB_TOKEN="another")
    write(made)
    assert "hunter2" not in target.read_text()
    assert "hunter2" not in repr(made)
    (variable,) = made.variables
    assert (variable.name, variable.is_set, variable.differs) == ("GITHUB_TOKEN", True, True)
    assert variable.meaning == 'env.GITHUB_TOKEN of "github" in /home/me/cursor.json'
    assert load_config(target, environ={"GITHUB_TOKEN": "hunter2"}).upstreams[0].env == {"GITHUB_TOKEN": "hunter2"}
    assert plan(target, source("cursor", github=GITHUB), secrets="keep").change is None


def test_a_secret_never_gets_the_variable_that_another_server_refers_to(target: Path) -> None:
    goose = source("goose", other={"type": "stdio", "cmd": "x", "env_keys": ["GITHUB_TOKEN"]})
    made = plan(target, source("cursor", github=GITHUB), goose, secrets="variables")
    write(made)
    assert "hunter2" not in target.read_text()
    environ = {"GITHUB_TOKEN": "of goose", "GITHUB_TOKEN_2": "hunter2"}
    upstreams = {each.name: each.env for each in load_config(target, environ=environ).upstreams}
    assert upstreams == {"github": {"GITHUB_TOKEN": "hunter2"}, "other": {"GITHUB_TOKEN": "of goose"}}


def test_configured_servers_and_comments_are_kept_and_backed_up(target: Path) -> None:
    target.parent.mkdir()
    text = (
        '{\n  // mine\n  "servers": {\n    "github": { "command": "gh" }, // keep\n  },\n  "tools": {"deny": []}\n}\n'
    )
    target.write_text(text)
    made = plan(target, source("cursor", github=GITHUB, docs={"url": "https://d.example"}))
    assert statuses(made) == [("github", "new", "github-cursor"), ("docs", "new", "docs")]
    assert made.of_status("new")[0].notes == ('named "github-cursor": our configuration has another "github"',)
    backup = write(made)
    assert backup is not None
    assert backup.read_text() == text
    before, after = text.split('"gh" }, // keep\n')
    assert target.read_text().startswith(before + '"gh" }, // keep\n')
    assert target.read_text().endswith('    "docs": {\n      "url": "https://d.example"\n    },\n' + after)
    assert [each.name for each in load_config(target, environ={}).upstreams] == ["github", "github-cursor", "docs"]
    again = plan(target, source("cursor", github=GITHUB, docs={"url": "https://d.example"}))
    assert again.change is None, "a second import adds nothing"


def test_equal_servers_of_two_files_are_imported_once_and_different_ones_are_renamed(target: Path) -> None:
    same = {"type": "stdio", **GITHUB}
    other = {"command": "docker", "args": ["run", "github"]}
    made = plan(
        target,
        source("claude-desktop", github=GITHUB),
        source("vscode", github=same),
        source("cursor", github=other),
        source("cursor", "project", github={**other, "args": []}),
        source("windsurf", git=GITHUB),
    )
    assert statuses(made) == [
        ("github", "new", "github"),
        ("github", "same", "github"),
        ("github", "new", "github-cursor"),
        ("github", "new", "github-cursor-project"),
        ("git", "same", "github"),
    ]
    assert made.items[2].notes == ('named "github-cursor": another file has another "github"',)
    write(made)
    assert plan(target, source("cursor", github=other)).items[0].our_name == "github-cursor"


def test_a_server_disabled_in_one_client_and_used_by_another_is_enabled(target: Path) -> None:
    made = plan(target, source("cursor", a={"command": "x", "disabled": True}), source("vscode", a={"command": "x"}))
    assert made.shown == {"a": {"command": "x"}}


def test_an_enabled_server_is_enabled_in_both_modes_of_secrets(target: Path) -> None:
    off = source("cursor", github={**GITHUB, "disabled": True})
    made = plan(target, off, source("vscode", github=GITHUB), secrets="variables")
    assert made.shown == {"github": {**GITHUB, "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}}}


def test_a_trailing_slash_in_a_url_does_not_make_another_server(target: Path) -> None:
    made = plan(
        target,
        source("cursor", a={"url": "https://a.example/mcp"}),
        source("vscode", a={"url": "https://a.example/mcp/"}),
    )
    assert statuses(made) == [("a", "new", "a"), ("a", "same", "a")]


def test_a_server_whose_variable_is_not_set_is_added_and_used_once_it_is_set(target: Path) -> None:
    # A reference in a key is text.
    servers = source(
        "claude-code", a={"command": "x", "env": {"T": "${UNSET}"}}, b={"command": "y", "env": {"${K}": "1"}}
    )
    made = plan(target, servers)
    assert [each.name for each in made.variables if not each.is_set] == ["UNSET"]
    write(made)
    assert [each.unusable is None for each in load_config(target, environ={}).upstreams] == [False, True]
    assert [each.unusable for each in load_config(target, environ={"UNSET": "set"}).upstreams] == [None, None]


def test_invalid_names_are_changed(target: Path) -> None:
    made = plan(target, source("cursor", **{"a:b": {"command": "x"}, "a-b": {"command": "y"}}))
    assert [item.our_name for item in made.items] == ["a-b", "a-b-cursor"]
    write(made)
    assert len(load_config(target, environ={}).upstreams) == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param('{"mcpServers": }', "is not valid JSON: line 1", id="syntax"),
        pytest.param("[]", "does not contain an object", id="array"),
        pytest.param('{"mcpServers": []}', "mcpServers", id="servers"),
        pytest.param("", "is empty", id="empty"),
    ],
)
def test_an_unreadable_configuration_is_not_changed(target: Path, text: str, problem: str) -> None:
    target.parent.mkdir()
    target.write_text(text)
    with pytest.raises(SourceError, match=problem):
        plan(target, source("cursor", a={"command": "x"}))
    assert target.read_text() == text


def test_a_configuration_over_the_size_limit_is_not_written(target: Path) -> None:
    with pytest.raises(SourceError, match="has no room"):
        plan(target, source("cursor", a={"command": "x", "args": ["y" * 300_000]}))


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_a_reverted_file_has_its_content_and_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    path.chmod(0o644)
    change = Change(path, b"{}", '{"a": 1}', private=False)
    change.revert(change.write())
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("{}", 0o644)


def test_a_file_with_secrets_and_its_backup_are_private(target: Path) -> None:
    target.parent.mkdir()
    target.write_text('{"mcpServers": {}}')
    target.chmod(0o644)
    plain = write(plan(target, source("cursor", a={"command": "x"})))
    assert stat.S_IMODE(target.stat().st_mode) == 0o644
    backup = write(plan(target, source("cursor", github=GITHUB)))
    assert plain is not None
    assert backup is not None
    assert [stat.S_IMODE(each.stat().st_mode) for each in (target, backup)] == [0o600, 0o600]


def test_a_configuration_changed_in_the_meantime_is_not_overwritten(target: Path) -> None:
    target.parent.mkdir()
    target.write_text('{"mcpServers": {}}')
    made = plan(target, source("cursor", a={"command": "x"}))
    target.write_text('{"mcpServers": {"other": {"command": "y"}}}')
    with pytest.raises(ChangedMeanwhileError):
        write(made)
    assert "other" in target.read_text()


def test_a_configuration_behind_a_symbolic_link_is_changed_and_the_link_kept(target: Path, tmp_path: Path) -> None:
    target.parent.mkdir()
    real = tmp_path / "dotfiles.json"
    real.write_text('{"mcpServers": {}}')
    target.symlink_to(real)
    write(plan(target, source("cursor", a={"command": "x"})))
    assert target.is_symlink()
    assert "mcpServers" in json.loads(real.read_text())


def test_servers_that_a_client_starts_twice_are_reported(tmp_path: Path) -> None:
    us = {"command": "uvx", "args": ["codemode-mcp", "serve"]}
    ours: dict[str, Any] = {
        "gh": {"command": "npx", "args": ["-y", "github"], "env": {"GITHUB_TOKEN": "${GITHUB_TOKEN}"}}
    }
    both = source("cursor", github=GITHUB, codemode=us, other={"command": "x"})
    (shared,) = overlaps([both, source("vscode", github=GITHUB)], ours, here(tmp_path))
    assert (shared.source, shared.name, shared.our_name) == (both, "github", "gh")
    off = source("cursor", github={**GITHUB, "disabled": True}, codemode=us)
    assert overlaps([off], ours, here(tmp_path)) == ()
    assert overlaps([source("cursor", github=GITHUB, codemode={**us, "disabled": True})], ours, here(tmp_path)) == ()

    config = tmp_path / "codemode-mcp.json"
    config.write_text(json.dumps({"mcpServers": ours}))
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"github": GITHUB, "me": us}}))
    (sentence,) = overlap_warnings(config, Machine("linux", tmp_path, {}, tmp_path / "work"))
    assert sentence.startswith('Cursor, user starts "github" itself and through codemode-mcp; remove it from')
    assert "hunter2" not in sentence
    assert overlap_warnings(None, here(tmp_path)) == ()


def test_our_own_configuration_is_imported_unchanged(tmp_path: Path, target: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text('{"mcpServers": {"a": {"command": "x", "start": "eager", "deny": ["b*"]}}}')
    write(make_plan(read_named(file, here(tmp_path)), target, None, here(tmp_path)))
    assert json.loads(target.read_text()) == json.loads(file.read_text())
