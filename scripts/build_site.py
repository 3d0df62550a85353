"""Builds the site: `.venv/bin/python scripts/build_site.py`, then open `build/site/index.html`.

The pages are those of `docs`, and the large files of the repository's root and the READMEs of the examples. They are
copied to `build/pages`, where their links are made to fit; then Zensical builds them, and whatever is wrong with a link
or with the navigation fails the build. Nothing is fetched, and no page asks another host for anything.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urldefrag, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "docs" / "zensical.toml"
BUILD = ROOT / "build"
ROOT_PAGES = ("SECURITY.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
ALSO = {"declarations/guest.d.ts": "reference/guest.md", "README.md": "index.md", "docs": "index.md"}
"""Targets of links to files that the site has in another form."""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)(```+).*?^\1\2[ ]*$", re.DOTALL | re.MULTILINE)


def main() -> int:
    problems = build(BUILD)
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        print(BUILD / "site" / "index.html")
    return 1 if problems else 0


def build(folder: Path) -> list[str]:
    """Build into `folder`, which is ours alone; what is wrong, or nothing."""
    if importlib.util.find_spec("zensical") is None:
        return ["Zensical is missing: .venv/bin/pip install --group docs (pip 25.1 or newer) installs it"]
    pages = gather()
    if problems := navigation(pages):
        return problems
    for part in ("pages", "site", ".cache"):
        shutil.rmtree(folder / part, ignore_errors=True)
    for place, source in pages.items():
        target = folder / "pages" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(fitted(source.read_text("utf-8"), source, place, pages), "utf-8")
        else:
            shutil.copyfile(source, target)
    # Zensical keeps a cache beside its configuration: that has to be a folder where nothing else is.
    shutil.copyfile(CONFIG, folder / CONFIG.name)
    built = subprocess.run(
        (sys.executable, "-m", "zensical", "build", "--strict"),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if built.returncode != 0:
        said = re.sub(r"\x1b\[[0-9;]*m", "", built.stdout + built.stderr).partition("Traceback")[0]
        return [f"zensical build --strict fails:\n{said}"]
    return broken(folder / "site")


def gather() -> dict[str, Path]:
    """Return the files of the site, by their path there."""
    docs = CONFIG.parent
    found = {path.relative_to(docs).as_posix(): path for path in sorted(docs.rglob("*")) if path.is_file()}
    del found[CONFIG.name]
    found |= {name.lower(): ROOT / name for name in ROOT_PAGES}
    found |= {f"examples/{path.parent.name}.md": path for path in sorted(ROOT.glob("examples/*/README.md"))}
    return found


def fitted(text: str, source: Path, place: str, pages: Mapping[str, Path]) -> str:
    """Return a page with links that fit its place; what the site does not have is named and not linked."""
    places = {path: where for where, path in pages.items()} | {ROOT / name: where for name, where in ALSO.items()}

    def relink(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        if urlsplit(target).scheme or target.startswith("#"):
            return match[0]
        path, anchor = urldefrag(target)
        where = places.get(Path(os.path.normpath(source.parent / path)))
        if where is None:
            return match[0] if image else label
        relative = os.path.relpath(where, Path(place).parent).replace(os.sep, "/")
        return f"{image}[{label}]({relative}{anchor and '#' + anchor})"

    # Links are looked for between the blocks of code.
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(relink, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join((*parts, _LINK.sub(relink, text[end:])))


def navigation(pages: Mapping[str, Path]) -> list[str]:
    """Pages that the navigation does not lead to, and the other way round."""
    listed = set(_leaves(tomllib.loads(CONFIG.read_text("utf-8"))["project"]["nav"]))
    there = {place for place in pages if place.endswith(".md")}
    return [
        *(f"{place} is not in `nav` of docs/{CONFIG.name}; add it" for place in sorted(there - listed)),
        *(f"`nav` of docs/{CONFIG.name} has {place}, which is not there" for place in sorted(listed - there)),
    ]


def _leaves(nav: Any) -> Iterator[str]:
    for entry in nav:
        for value in entry.values():
            yield from [value] if isinstance(value, str) else _leaves(value)


class _Page(HTMLParser):
    """The links of a page, what it loads, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if "id" in given:
            self.anchors.add(given["id"])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(given["href"])
        elif "src" in given:
            self.loaded.append(given["src"])


def broken(site: Path) -> list[str]:
    """Links and pictures of built pages that lead nowhere, and all that a page would load from elsewhere."""
    pages = {path: _Page() for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        page.feed(path.read_text("utf-8"))
    problems = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are absolute
        name = path.relative_to(site).as_posix()
        problems += [f"{name} loads {each}" for each in page.loaded if urlsplit(each).netloc]
        for link in (*page.links, *page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                problems.append(f"{name}: nothing is at {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                problems.append(f"{name}: no such place: {link}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
