"""Releases a version: `python scripts/release.py VERSION [--repository OWNER/NAME] [--push]`.

Writes the version into the package, CHANGELOG.md and server.json, and the owner of the repository on GitHub into
server.json and README.md, where the MCP registry looks for it. Records the suspended programs of the version, makes one
commit, and tags it. `--push` then pushes both; the tag starts `.github/workflows/release.yml`, which builds, tests,
attests and publishes. Without `--push`, nothing leaves this machine.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.release_notes import UNRELEASED, NoNotesError, notes  # noqa: E402

VERSION: Final = re.compile(r"(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)\.(?:0|[1-9]\d*)")
"""The form that PyPI, the MCP registry and bundles read in the same way."""

PACKAGE: Final = "codemode_mcp/__init__.py"

_REPOSITORY: Final = re.compile(r"[A-Za-z0-9-]+/[A-Za-z0-9._-]+")
_ON_GITHUB: Final = re.compile(
    r"(?:https://|ssh://git@|git@)github\.com[:/]([A-Za-z0-9-]+/[A-Za-z0-9._-]+?)(?:\.git)?/?"
)
_REGISTRY_NAME: Final = re.compile(r"(?<=<!-- mcp-name: )\S+(?= -->)")


class RefusedError(Exception):
    """A release that cannot be made. The message says what to do."""


def version_in(package: str) -> str:
    """Return the version in the text of `PACKAGE`."""
    (found,) = re.findall(r'^__version__ = "(.*)"$', package, re.MULTILINE)
    return str(found)


def with_version(package: str, version: str) -> str:
    """Return the text of `PACKAGE` with another version."""
    return re.sub(r'^(__version__ = ").*(")$', rf"\g<1>{version}\g<2>", package, count=1, flags=re.MULTILINE)


def released_changelog(changelog: str, version: str, day: datetime.date) -> str:
    """Return CHANGELOG.md with the unreleased entries under the version, and a new empty section above.

    Older entries of the same version, which was not released, follow under a heading of their own.

    Raises:
        NoNotesError: no entry is unreleased.
        RefusedError: the version is released already.
    """
    notes(changelog, UNRELEASED)
    if re.search(rf"^## \[?{re.escape(version)}\]? - ", changelog, re.MULTILINE):
        raise RefusedError(f"CHANGELOG.md says that {version} is released; choose a higher version")
    older = rf"^## {re.escape(version)} \(unreleased\)$"
    text = re.sub(older, f"### Before these, in {version}", changelog, count=1, flags=re.MULTILINE)
    text = re.sub(r"^## (\S+) \(unreleased\)$", r"## \1 (not released)", text, flags=re.MULTILINE)
    heading = f"## {UNRELEASED}\n\n## {version} - {day.isoformat()}"
    return re.sub(rf"^## {UNRELEASED}$", heading, text, count=1, flags=re.MULTILINE)


def registry_name(repository: str) -> str:
    """Return the name in the MCP registry that the workflows of a repository on GitHub may publish."""
    owner, name = repository.split("/")
    return f"io.github.{owner}/{name}"


def released_server(server: str, version: str, repository: str) -> str:
    """Return server.json for a version, published from a repository on GitHub."""
    value = json.loads(server)
    value["name"], value["version"] = registry_name(repository), version
    value["repository"] = {"url": f"https://github.com/{repository}", "source": "github"}
    for package in value["packages"]:
        package["version"] = version
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def with_registry_name(readme: str, repository: str) -> str:
    """Return README.md with the name in the MCP registry, by which this checks who owns the package on PyPI."""
    return _REGISTRY_NAME.sub(registry_name(repository), readme)


def on_github(url: str) -> str | None:
    """Return `OWNER/NAME` of the URL of a repository on GitHub; None for another URL."""
    found = _ON_GITHUB.fullmatch(url)
    return None if found is None else found[1]


def release(version: str, repository: str | None, *, push: bool) -> None:
    """Write, commit and tag a version, and push it if asked.

    Raises:
        RefusedError: the release cannot be made.
        NoNotesError: CHANGELOG.md has no unreleased entry.
    """
    if not VERSION.fullmatch(version):
        raise RefusedError(f"{version!r} is no version; write three numbers, such as 1.2.0")
    package = (ROOT / PACKAGE).read_text("utf-8")
    older = version_in(package)
    if [*map(int, version.split("."))] < [*map(int, older.split("."))]:
        raise RefusedError(f"{version} is lower than the version of this tree, {older}")
    if left := git("status", "--porcelain"):
        raise RefusedError(f"commit or remove these changes first:\n{left}")
    if git("tag", "--list", f"v{version}"):
        raise RefusedError(f"the tag v{version} exists; choose a higher version")
    repository = repository or on_github(git("config", "--default", "", "--get", "remote.origin.url"))
    if repository is None or not _REPOSITORY.fullmatch(repository):
        raise RefusedError(
            f"the repository is {repository or 'unknown'}: name the one on GitHub that publishes, as "
            "--repository OWNER/NAME"
        )
    day = datetime.datetime.now(datetime.UTC).date()
    texts = {
        PACKAGE: with_version(package, version),
        "CHANGELOG.md": released_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), version, day),
        "README.md": with_registry_name((ROOT / "README.md").read_text("utf-8"), repository),
        "server.json": released_server((ROOT / "server.json").read_text("utf-8"), version, repository),
    }
    for name, text in texts.items():
        (ROOT / name).write_text(text, "utf-8")
    if version != older:
        record_suspended_programs()
    git("add", "--all")
    git("commit", "--quiet", "--message", f"Release {version}")
    git("tag", "--annotate", "--message", f"codemode-mcp {version}", f"v{version}")
    print(f"made the commit and the tag v{version} for {repository}")
    pushing = ("push", "--atomic", "origin", "HEAD", f"v{version}")
    if push:
        git(*pushing)
        print("pushed them; the workflow Release publishes")
    else:
        print(f"to publish: git {' '.join(pushing)}")


def record_suspended_programs() -> None:
    """Record the suspended programs of the version that the tree now has, which its tests compare.

    Raises:
        RefusedError: this needs the packages of the product, or the engine has failed.
    """
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "scripts/record_snapshots.py"]
    if subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode != 0:
        raise RefusedError(
            "scripts/record_snapshots.py has failed: run this with the python of .venv. `git restore .` takes back "
            "what is written so far"
        )


def git(*arguments: str) -> str:
    """Run git in this tree, and return what it prints.

    Raises:
        RefusedError: git has failed.
    """
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    if done.returncode != 0:
        raise RefusedError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description="Commit and tag a version, which the release workflow publishes.")
    parser.add_argument("version", help="three numbers: 1.2.0")
    parser.add_argument("--repository", metavar="OWNER/NAME", help="on GitHub; default: that of the remote origin")
    parser.add_argument("--push", action="store_true", help="push both; this publishes the version")
    chosen = parser.parse_args()
    try:
        release(chosen.version, chosen.repository, push=chosen.push)
    except (RefusedError, NoNotesError) as refused:
        print(refused, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
