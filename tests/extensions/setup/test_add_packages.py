"""Packages in `codemode-mcp add`: their versions and indexes, which npm and uv know."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.extensions.setup.adding import PACKAGE, Managers, Web, server, would_add


def test_packages_are_found_by_their_names_in_the_latest_version(web: Web, managers: Managers, tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    web.lists()
    managers.has("files-mcp", deprecated="Use \x1b[2J another.")
    entries, said = would_add("files-mcp", config=config)
    assert entries == {"files": {"command": "npx", "args": ["-y", "files-mcp@2.0.1"]}}
    assert "npm package files-mcp 2.0.1 from https://npm.example " in said
    assert "CAUTION: npm says that it is deprecated: Use \\x1b[2J another." in said
    assert "PLANTED" not in said
    managers.answers(
        "uv files-mcp", "--index-url https://a.example\n\nfiles-mcp==1.10\n    # from https://u:PLANTED@b.example/"
    )
    _, said = would_add("files-mcp", config=config, code=2)
    assert "npm and PyPI both have a package 'files-mcp'; write npm:files-mcp or pypi:files-mcp" in said
    entries, said = would_add("pypi:files-mcp", "--", "/notes", config=config)
    assert entries == {"files": {"command": "uvx", "args": ["files-mcp==1.10", "/notes"]}}
    assert "PyPI package files-mcp 1.10 from https://b.example " in said
    _, said = would_add("file-mcp", config=config, code=2)
    assert "the registry and npm and PyPI do not have 'file-mcp'" in said
    managers.has("@acme/files@next")
    managers.answers(
        "npm @acme/files@next", json.dumps({"name": "@acme/files", "version": "3.0.0-1", "bin": {"f": "f"}})
    )
    entries, said = would_add("npm:@acme/files@next", config=config)
    assert entries["files"]["args"] == ["-y", "@acme/files@3.0.0-1"]
    assert "from https://acme.example " in said


def test_answers_of_package_managers_that_name_no_package_are_refused(managers: Managers, tmp_path: Path) -> None:
    of_other = {"name": "evil", "version": "1.0.0", "bin": {"a": "a"}}
    for source, output, code, message in (
        ("npm:a", json.dumps(of_other), 0, "npm answers with another package than 'a'"),
        ("npm:a", json.dumps({"name": "a", "version": "1.0.0"}), 0, "a 1.0.0 has no command, so npx cannot start it"),
        ("npm:a", json.dumps({**of_other, "version": "1 --eval"}), 0, "npm names no released version of 'a'"),
        ("npm:a", json.dumps([of_other, of_other]), 0, "cannot look up 'a' (exit code 0)"),
        ("npm:a", "[" * 100_000, 0, "name the version yourself: npm:a@VERSION"),
        (
            "npm:a",
            json.dumps({"error": {"code": "ECONNREFUSED", "summary": "https://u:PLANTED@h"}}),
            1,
            "(ECONNREFUSED)",
        ),
        ("npm:a", json.dumps({"error": {"code": "https://u:PLANTED@h"}}), 1, "(exit code 1)"),
        ("pypi:a", "a==--eval", 0, "PyPI names no released version of 'a'"),
        ("pypi:a", "", 1, "uv finds no version of 'a' that this machine can use without building it"),
        ("pypi:a", "", 2, "cannot look up 'a' (exit code 2); its index may be unreachable; name the version yourself"),
    ):
        managers.answers(f"{'npm' if source.startswith('npm') else 'uv'} a", output, code, "https://u:PLANTED@h")
        _, said = would_add(source, config=tmp_path / "c.json", code=2)
        assert message in said
        assert "PLANTED" not in said
    managers.answers("uv a", "", 2, "error: No interpreter found in search path or managed installations")
    _, said = would_add("pypi:a", config=tmp_path / "c.json", code=2)
    assert "uv finds no Python on this machine; uv python install gets one; name the version yourself" in said


def test_an_exact_version_needs_no_package_manager(
    web: Web, managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "c.json"
    web.lists()
    managers.answers("npm registry", "", 1, "npm error The registry option is protected")
    _, said = would_add("npm:a@1.0.0", config=config)
    assert "npm package a 1.0.0 from an index of which no host is shown" in said
    managers.has("a")
    (managers.folder / "uv.py").unlink()
    for each in (managers.folder / "uv", managers.folder / "uv.cmd"):
        each.unlink(missing_ok=True)
    entries, said = would_add("a", config=config)
    assert entries == {"a": {"command": "npx", "args": ["-y", "a@2.0.1"]}}
    assert "PyPI is not asked: uv is not installed, or not on PATH; install uv" in said
    monkeypatch.setenv("PATH", ".")
    monkeypatch.chdir(managers.folder)
    _, said = would_add("npm:a", config=config, code=2)
    assert "npm is not installed, or not on PATH; install Node.js, which has it, or name the version" in said
    entries, _ = would_add("npm:a@1.0.0", config=config)
    assert entries == {"a": {"command": "npx", "args": ["-y", "a@1.0.0"]}}


def test_an_index_that_a_project_names_for_npx_is_shown(
    managers: Managers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".npmrc").write_text("https://u:PLANTED@evil.example/PLANTED")
    managers.has("a")
    monkeypatch.chdir(folder)
    for source in ("npm:a", "npm:a@1.0.0"):
        _, said = would_add(source, config=tmp_path / "c.json")
        assert "from https://npm.example " in said
        assert "CAUTION: a .npmrc of this folder has npx fetch the package from https://evil.example;" in said
        assert "PLANTED" not in said


def test_packages_of_the_registry_come_from_the_index_that_their_entry_names(
    web: Web, managers: Managers, tmp_path: Path
) -> None:
    def adds(base: str, **more: Any) -> tuple[list[str], str]:
        web.lists(server(packages=[{**PACKAGE, "registryBaseUrl": base, **more}]))
        entries, said = would_add("io.github.acme/weather", config=tmp_path / "c.json")
        return entries["weather"]["args"], said

    args, said = adds("https://acme.example:443/any")
    assert args == ["-y", "@acme/weather@1.2.3"]
    assert "npx fetches it from https://acme.example " in said
    args, said = adds("https://pypi.example", registryType="pypi", identifier="weather")
    assert args == ["weather==1.2.3"]
    assert "uvx fetches it from https://pypi.example " in said
    for base, identifier, image in (
        ("https://images.example/", "acme/weather", "images.example/acme/weather:1.2.3"),
        ("https://images.example:5000", "weather:2.0.0", "images.example:5000/weather:2.0.0"),
        ("https://images.example", "images.example/weather", "images.example/weather:1.2.3"),
    ):
        args, _ = adds(base, registryType="oci", identifier=identifier)
        assert args == ["run", "-i", "--rm", image]
