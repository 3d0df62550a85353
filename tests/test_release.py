"""A release: the workflow that publishes, the command that starts it, its notes, and the entry of the MCP registry."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import typer
from ruamel.yaml import YAML

from codemode_mcp import __version__
from codemode_mcp.base.config_path import PATH_VARIABLE
from codemode_mcp.cli import app
from scripts import build_mcpb, release
from scripts.release_notes import NoNotesError, notes

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
SECONDS = 60
DAY = datetime.date(2026, 12, 1)
CHANGELOG = """# Changelog

## Unreleased

### Added

- One thing, which takes
  two lines ([page](docs/page.md), [site](https://example.com)).
- Another.

## 0.9.0 (unreleased)

First.

## 0.8.0 - 2026-01-02

Old.
"""


# the workflow


@pytest.mark.parametrize(
    ("linter", "options"),
    [
        ("zizmor", ("--offline", "--no-progress", "--quiet", "--persona", "pedantic", ".github")),
        ("check-jsonschema", ("--builtin-schema", "vendor.github-workflows", ".github/workflows/release.yml")),
        ("check-jsonschema", ("--builtin-schema", "vendor.dependabot", ".github/dependabot.yml")),
    ],
    ids=["zizmor", "workflow", "dependabot"],
)
def test_a_linter_finds_nothing_in_what_github_runs(linter: str, options: tuple[str, ...]) -> None:
    program = shutil.which(linter, path=sysconfig.get_path("scripts"))
    if program is None:
        pytest.skip(f"there is no wheel of {linter} for this system")
    command = [program, *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def jobs() -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe").load(WORKFLOW.read_text("utf-8"))["jobs"]
    return found


def test_nothing_is_published_before_all_is_built_tested_and_attested(jobs: dict[str, Any]) -> None:
    def before(job: str) -> set[str]:
        needs = jobs[job].get("needs", [])
        direct = {needs} if isinstance(needs, str) else {*needs}
        return direct.union(*map(before, direct))

    for job in ("pypi", "github", "registry"):
        assert {"build", "test", "attest"} <= before(job)


def test_a_job_that_may_publish_runs_no_code_of_the_repository(jobs: dict[str, Any]) -> None:
    writing = [job for job in jobs.values() if "write" in job["permissions"].values()]
    assert len(writing) == 4
    for job in writing:
        used = [step.get("uses", "").partition("@")[0] for step in job["steps"]]
        assert used[0] == "actions/download-artifact"
        assert not {"actions/checkout", "actions/setup-python"} & {*used}
        assert not [step for step in job["steps"] if re.search(r"\b(?:python|pip|npm|npx|uvx?)\b", step.get("run", ""))]


def test_the_workflow_starts_at_the_tag_that_the_command_makes_and_calls_scripts_that_exist() -> None:
    text = WORKFLOW.read_text("utf-8")
    assert 'tags: ["v*"]' in text
    for script in re.findall(r"\bpython (\S+\.py)", text):
        assert (ROOT / script).is_file()


# notes


def test_the_notes_are_the_section_of_the_version_with_whole_paragraphs_and_without_links_into_the_tree() -> None:
    assert notes(CHANGELOG, "Unreleased") == (
        "### Added\n\n- One thing, which takes two lines (page, [site](https://example.com)).\n- Another.\n"
    )
    assert notes(CHANGELOG, "0.8.0") == "Old.\n"
    with pytest.raises(NoNotesError, match=r"no section '0\.8'; it has Unreleased, 0\.9\.0 \(unreleased\), 0\.8\.0"):
        notes(CHANGELOG, "0.8")
    with pytest.raises(NoNotesError, match="is empty: write what users notice"):
        notes(CHANGELOG.replace("Old.", "### Added"), "0.8.0")


def test_the_notes_of_another_tag_than_the_version_are_refused() -> None:
    command = [sys.executable, "scripts/release_notes.py", "--tag", "v99.0.0"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"the tag is v99.0.0, but this tree has the version {__version__}\n"


# the command


def test_a_release_moves_the_entries_to_its_version_and_keeps_older_ones() -> None:
    text = release.released_changelog(CHANGELOG, "1.0.0", DAY)
    assert re.findall(r"^## .*$", text, re.MULTILINE) == [
        "## Unreleased",
        "## 1.0.0 - 2026-12-01",
        "## 0.9.0 (not released)",
        "## 0.8.0 - 2026-01-02",
    ]
    assert notes(text, "1.0.0") == notes(CHANGELOG, "Unreleased")
    same = release.released_changelog(CHANGELOG, "0.9.0", DAY)
    assert "Another.\n\n### Before these, in 0.9.0\n\nFirst." in notes(same, "0.9.0")
    with pytest.raises(NoNotesError):
        release.released_changelog(text, "1.0.1", DAY)
    again = text.replace("## Unreleased\n", "## Unreleased\n\n- New.\n")
    with pytest.raises(release.RefusedError, match=r"1\.0\.0 is released; choose a higher version"):
        release.released_changelog(again, "1.0.0", DAY)


@pytest.mark.parametrize(
    ("url", "repository"),
    [
        ("https://github.com/me/code.mode", "me/code.mode"),
        ("git@github.com:me/codemode-mcp.git", "me/codemode-mcp"),
        ("ssh://git@github.com/me/codemode-mcp.git", "me/codemode-mcp"),
        ("https://example.com/github.com/me/codemode-mcp", None),
        ("/srv/git/codemode-mcp", None),
    ],
)
def test_the_repository_is_that_of_the_remote_on_github(url: str, repository: str | None) -> None:
    assert release.on_github(url) == repository


class Clone:
    """A clone that has the files of a release and no others, and the bare repository that it pushes to."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.root = folder / "origin.git", folder / "clone"
        for name in (release.PACKAGE, "README.md", "server.json", "scripts/release.py", "scripts/release_notes.py"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        (self.root / "CHANGELOG.md").write_text(CHANGELOG, "utf-8")
        subprocess.run(["git", "init", "--quiet", "--bare", str(self.origin)], check=True)
        self.git("init", "--quiet", "--initial-branch", "main")
        for name, value in (("user.name", "Test"), ("user.email", "test@example.com"), ("commit.gpgSign", "false")):
            self.git("config", name, value)
        self.git("remote", "add", "origin", str(self.origin))
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "First")

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def release(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", "scripts/release.py", *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_one_command_commits_tags_and_pushes_a_version_of_the_repository_that_publishes_it(tmp_path: Path) -> None:
    clone = Clone(tmp_path)
    for arguments, message in (
        (("1.0rc1",), "'1.0rc1' is no version; write three numbers, such as 1.2.0"),
        (("0.0.9",), f"0.0.9 is lower than the version of this tree, {__version__}"),
        (
            (__version__,),
            "the repository is unknown: name the one on GitHub that publishes, as --repository OWNER/NAME",
        ),
    ):
        refused = clone.release(*arguments)
        assert (refused.returncode, refused.stderr) == (1, f"{message}\n")
    assert clone.git("status", "--porcelain") == ""
    done = clone.release(__version__, "--repository", "me/codemode-mcp", "--push")
    assert done.returncode == 0, done.stderr
    assert "the workflow Release publishes" in done.stdout
    there = subprocess.run(
        ["git", "-C", str(clone.origin), "for-each-ref", "--format=%(refname) %(*objectname)%(objectname)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    head = clone.git("rev-parse", "HEAD").strip()
    assert f"refs/heads/main {head}\n" in there
    assert re.search(rf"^refs/tags/v{re.escape(__version__)} {head}", there, re.MULTILINE)
    assert "<!-- mcp-name: io.github.me/codemode-mcp -->" in (clone.root / "README.md").read_text("utf-8")
    server = json.loads((clone.root / "server.json").read_text("utf-8"))
    assert (server["name"], server["repository"]["url"]) == (
        "io.github.me/codemode-mcp",
        "https://github.com/me/codemode-mcp",
    )
    check_server(server)
    again = clone.release(__version__, "--repository", "me/codemode-mcp")
    assert (again.returncode, again.stderr) == (1, f"the tag v{__version__} exists; choose a higher version\n")
    (clone.root / "left.txt").touch()
    assert clone.release("99.0.0").stderr == "commit or remove these changes first:\n?? left.txt\n"


def test_a_higher_version_is_written_wherever_a_version_is() -> None:
    package = (ROOT / release.PACKAGE).read_text("utf-8")
    assert release.version_in(package) == __version__
    assert release.version_in(release.with_version(package, "9.8.7")) == "9.8.7"
    server = json.loads(release.released_server((ROOT / "server.json").read_text("utf-8"), "9.8.7", "me/other"))
    assert {server["version"], *(package["version"] for package in server["packages"])} == {"9.8.7"}
    check_server(server)
    both = json.loads(build_mcpb.registry_entry(json.dumps(server), "codemode-mcp-9.8.7.mcpb", b"bundle"))
    check_server(both)
    assert both["packages"][1]["identifier"] == (
        "https://github.com/me/other/releases/download/v9.8.7/codemode-mcp-9.8.7.mcpb"
    )
    assert both["packages"][1]["fileSha256"] == hashlib.sha256(b"bundle").hexdigest()


# the MCP registry

TEXT = {"type": "string", "minLength": 1}
INPUT: dict[str, Any] = {
    "description": TEXT,
    "format": {"enum": ["string", "number", "boolean", "filepath"]},
    "isRequired": {"type": "boolean"},
    "isSecret": {"type": "boolean"},
    "default": TEXT,
    "value": TEXT,
}
VERSION: dict[str, Any] = {"type": "string", "maxLength": 255, "pattern": r"^\d+\.\d+\.\d+$"}
PYPI: dict[str, Any] = {
    "type": "object",
    "required": ["registryType", "identifier", "version", "transport"],
    "additionalProperties": False,
    "properties": {
        "registryType": {"const": "pypi"},
        "identifier": {"const": "codemode-mcp"},
        "version": VERSION,
        "runtimeHint": {"const": "uvx"},
        "transport": {"const": {"type": "stdio"}},
        "packageArguments": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["type", "value"],
                "properties": {"type": {"const": "positional"}, **INPUT},
                "additionalProperties": False,
            },
        },
        "environmentVariables": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": TEXT, **INPUT},
                "additionalProperties": False,
            },
        },
    },
}
BUNDLE: dict[str, Any] = {
    "type": "object",
    "required": ["registryType", "identifier", "fileSha256", "transport"],
    "additionalProperties": False,
    "properties": {
        "registryType": {"const": "mcpb"},
        "identifier": {
            "type": "string",
            "pattern": r"^https://github\.com/[^/]+/[^/]+/releases/download/v[^/]+/[^/]+\.mcpb$",
        },
        "version": VERSION,
        "fileSha256": {"type": "string", "pattern": "^[a-f0-9]{64}$"},
        "transport": {"const": {"type": "stdio"}},
    },
}
SERVER: dict[str, Any] = {
    "type": "object",
    "required": ["$schema", "name", "title", "description", "version", "packages"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"},
        "name": {"type": "string", "maxLength": 200, "pattern": r"^io\.github\.[a-zA-Z0-9-]+/[a-zA-Z0-9._-]+$"},
        "title": {**TEXT, "maxLength": 100},
        "description": {**TEXT, "maxLength": 100},
        "version": VERSION,
        "repository": {
            "type": "object",
            "required": ["url", "source"],
            "properties": {"url": {"type": "string", "format": "uri"}, "source": {"const": "github"}},
            "additionalProperties": False,
        },
        "packages": {
            "type": "array",
            "minItems": 1,
            "items": {"oneOf": [PYPI, BUNDLE]},
        },
    },
}
"""The rules of the registry's schema of 2025-12-11, and of the registry itself, for the members that we use. No package
of npm or PyPI has the schema, and it allows members that it does not know; here, a misspelt one is an error."""


def check_server(server: Any) -> None:
    jsonschema_rs.validator_for(SERVER, validate_formats=True).validate(server)


def test_the_entry_of_the_registry_keeps_its_rules_and_is_of_this_version_and_package() -> None:
    server = json.loads((ROOT / "server.json").read_text("utf-8"))
    check_server(server)
    (package,) = server["packages"]
    assert server["version"] == package["version"] == __version__
    names = re.findall(r"^<!-- mcp-name: (\S+) -->$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    assert names == [server["name"]], "the registry looks for it in the description on PyPI"


def test_the_command_of_the_registrys_entry_is_one_of_the_command_line() -> None:
    (package,) = json.loads((ROOT / "server.json").read_text("utf-8"))["packages"]
    words = [each["value"] for each in package["packageArguments"]]
    with typer.main.get_command(app).make_context(package["identifier"], list(words)) as context:
        name, command, rest = context.command.resolve_command(context, words)  # type: ignore[attr-defined]
        command.make_context(name, rest, parent=context).close()
    assert [each["name"] for each in package["environmentVariables"]] == [PATH_VARIABLE]
