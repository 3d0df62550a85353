"""Prints the notes of a release, made from CHANGELOG.md: `python scripts/release_notes.py [VERSION]`.

Without a version: those of the next release. `--tag TAG` is for the release workflow: it also fails unless the tag is
the version of this tree.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from codemode_mcp import __version__  # noqa: E402

CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "Unreleased"

_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)")
"""A link to a file of this repository, which leads nowhere on the page of a release."""


class NoNotesError(Exception):
    """Raised if a version has no section, or an empty one. The message says what to do."""


def notes(changelog: str, version: str) -> str:
    """Return the section of a version, without its heading.

    Raises:
        NoNotesError: there is no such section, or nothing in it.
    """
    heading = re.compile(rf"^## \[?{re.escape(version)}\]?(?: [(-][^\n]*)?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
    found = heading.search(changelog)
    if found is None:
        have = re.findall(r"^## (.*)$", changelog, re.MULTILINE)
        raise NoNotesError(f"CHANGELOG.md has no section {version!r}; it has {', '.join(have) or 'none'}")
    text = found[1].strip()
    if not re.sub(r"^#+ .*$", "", text, flags=re.MULTILINE).strip():
        raise NoNotesError(f"the section {version!r} of CHANGELOG.md is empty: write what users notice")
    return _unwrapped(_LINK.sub(r"\1", text)) + "\n"


def _unwrapped(text: str) -> str:
    """Join the lines of each paragraph and item: on the page of a release, each line end is shown."""
    lines: list[str] = []
    fenced = False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        continues = bool(lines and lines[-1] and line.strip()) and not (fenced or fence)
        if continues and not re.match(r"\s*(?:[-*|#>]|\d+\. )", line) and not lines[-1].startswith(("#", "|", "```")):
            lines[-1] += f" {line.strip()}"
        else:
            lines.append(line)
        fenced ^= fence
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Print the notes of a release, made from CHANGELOG.md.")
    parser.add_argument("version", nargs="?", default=UNRELEASED, help="default: the next release")
    parser.add_argument("--tag", help="the tag of the release, `v` and the version of this tree")
    chosen = parser.parse_args()
    if chosen.tag is not None and chosen.tag != f"v{__version__}":
        print(f"the tag is {chosen.tag}, but this tree has the version {__version__}", file=sys.stderr)
        return 1
    try:
        text = notes(CHANGELOG.read_text("utf-8"), chosen.version if chosen.tag is None else __version__)
    except NoNotesError as error:
        print(error, file=sys.stderr)
        return 1
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
