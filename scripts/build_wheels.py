"""Builds what is published: `python scripts/build_wheels.py [--out DIR] [PLATFORM...]`.

Without a platform: the sdist, the pure wheel (`any`), and the wheel of each platform, which carries its esbuild. npm
fetches these, pinned by digest, so it can be done on any machine. Needs hatchling.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

if importlib.util.find_spec("hatchling") is None:
    sys.exit(f"hatchling is missing: {sys.executable} -m pip install hatchling")

from hatch_build import PLATFORM_VARIABLE, WHEEL_PLATFORMS  # noqa: E402

EVERYTHING = ("sdist", "any", *WHEEL_PLATFORMS)


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the sdist and wheels of codemode-mcp.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist")
    parser.add_argument("what", nargs="*", metavar="PLATFORM", help=f"of {', '.join(EVERYTHING)}; default: all")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.what if name not in EVERYTHING]
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; there are {', '.join(EVERYTHING)}")
    for name in chosen.what or EVERYTHING:
        code = build(name, chosen.out.resolve())
        if code:
            print(f"{name}: not built", file=sys.stderr)
            return code
    return 0


def build(name: str, out: Path) -> int:
    """Return one of `EVERYTHING`; the exit code of the build."""
    target = "sdist" if name == "sdist" else "wheel"
    environ = {
        key: value for key, value in os.environ.items() if key not in (PLATFORM_VARIABLE, "HATCH_BUILD_NO_HOOKS")
    }
    if name == "any":
        environ["HATCH_BUILD_NO_HOOKS"] = "true"
    elif name in WHEEL_PLATFORMS:
        environ[PLATFORM_VARIABLE] = name
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(out)]
    return subprocess.run(command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
