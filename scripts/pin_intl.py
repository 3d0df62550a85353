"""Build the bundle with `Intl`, write its digest into `intl_pin.py`, and keep it for this checkout.

Run this after a change to `codemode_mcp/sandbox/intl`, to `intl_data` or to the pins.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from codemode_mcp.program import esbuild_pin, intl_pin, npm_package

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    """Build, keep, write the digest."""
    bundled = ROOT / "codemode_mcp" / "_bundled"
    content = intl_pin.build(bundled / esbuild_pin.executable_name())
    digest = hashlib.sha256(content).hexdigest()
    npm_package.write_files(bundled, {intl_pin.NAME: content})
    pin = Path(intl_pin.__file__)
    line = f'SHA256: Final = "{digest}"'
    pin.write_text(re.sub(r'^SHA256: Final = ".*"', line, pin.read_text("utf-8"), flags=re.MULTILINE), "utf-8")
    print(f"{digest}: {len(content):,} bytes")


if __name__ == "__main__":
    main()
