"""Make `thesaurus_stems.txt` of `thesaurus.txt` in `codemode_mcp/catalog/search`.

.venv/bin/python scripts/compile_thesaurus.py
"""

from __future__ import annotations

from pathlib import Path

from codemode_mcp.catalog.search.index import compiled

FOLDER = Path(__file__).resolve().parents[1] / "codemode_mcp" / "catalog" / "search"


def main() -> None:
    """Read, find the stems, write."""
    entries = compiled((FOLDER / "thesaurus.txt").read_text("utf-8").splitlines())
    (FOLDER / "thesaurus_stems.txt").write_text("\n".join(entries) + "\n", "utf-8")


if __name__ == "__main__":
    main()
