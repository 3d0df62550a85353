"""Builds the bundle for Claude Desktop: `python scripts/build_mcpb.py [--wheels DIR] [--out FILE] [--registry FILE]`.

The bundle has the wheels of this version that `scripts/build_wheels.py` has put into `dist`: with the wheels of all
platforms, TypeScript works everywhere. The host installs the wheel for its platform, and what it depends on, with uv.
The same wheels give the same bundle, byte for byte. `--registry` writes server.json with this bundle as a second
package, for the MCP registry.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from codemode_mcp import __version__  # noqa: E402

SOURCES: Final = ROOT / "scripts" / "bundle"
LEAST_PYTHON: Final = ">=3.11"

_PROJECT: Final = """\
[project]
name = "codemode-mcp-bundle"
version = "{version}"
requires-python = "{python}"
dependencies = ["codemode-mcp=={version}"]

[tool.uv]
package = false

# The wheels of this bundle, and no package of this name from elsewhere.
[[tool.uv.index]]
name = "bundle"
url = "wheels"
format = "flat"
explicit = true

[tool.uv.sources]
codemode-mcp = {{ index = "bundle" }}
"""

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)


def manifest() -> dict[str, Any]:
    """Return the manifest of this version."""
    value: dict[str, Any] = json.loads((SOURCES / "manifest.json").read_text("utf-8"))
    return {**value, "version": __version__}


def contents(wheels: Sequence[Path]) -> dict[str, bytes]:
    """Return the files of the bundle by their names in it."""
    project = _PROJECT.format(version=__version__, python=LEAST_PYTHON)
    return {
        "manifest.json": (json.dumps(manifest(), indent=2, ensure_ascii=False) + "\n").encode(),
        "pyproject.toml": project.encode(),
        "server/main.py": (SOURCES / "main.py").read_bytes(),
        **{f"wheels/{wheel.name}": wheel.read_bytes() for wheel in wheels},
    }


def write(files: dict[str, bytes], out: Path) -> None:
    """Write the bundle: a zip archive without times, whose files are in order."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EARLIEST)
            entry.external_attr = 0o644 << 16
            # Wheels are compressed already.
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".whl") else zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)


def registry_entry(server: str, bundle: str, data: bytes) -> str:
    """Return server.json with the bundle, at its address in the release on GitHub."""
    value = json.loads(server)
    address = f"{value['repository']['url']}/releases/download/v{value['version']}/{bundle}"
    package = {
        "registryType": "mcpb",
        "identifier": address,
        "version": value["version"],
        "fileSha256": hashlib.sha256(data).hexdigest(),
        "transport": {"type": "stdio"},
    }
    return json.dumps({**value, "packages": [*value["packages"], package]}, indent=2, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the bundle of codemode-mcp for Claude Desktop.")
    parser.add_argument("--wheels", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: dist/codemode-mcp-VERSION.mcpb")
    parser.add_argument("--registry", type=Path, metavar="FILE", help="write server.json with the bundle to this file")
    chosen = parser.parse_args()
    server = (ROOT / "server.json").read_text("utf-8")
    if chosen.registry is not None and "repository" not in json.loads(server):
        print("server.json names no repository: scripts/release.py writes it", file=sys.stderr)
        return 1
    wheels = sorted(chosen.wheels.glob(f"codemode_mcp-{__version__}-*.whl"))
    if not wheels:
        print(
            f"{chosen.wheels} has no wheel of {__version__}; build it: {sys.executable} scripts/build_wheels.py",
            file=sys.stderr,
        )
        return 1
    out = chosen.out or ROOT / "dist" / f"codemode-mcp-{__version__}.mcpb"
    write(contents(wheels), out)
    if chosen.registry is not None:
        chosen.registry.parent.mkdir(parents=True, exist_ok=True)
        chosen.registry.write_text(registry_entry(server, out.name, out.read_bytes()), "utf-8")
    print(out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
