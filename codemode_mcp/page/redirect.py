"""The file that a browser opens to get to the page: it sends a token.

The command line hands the path of this file to the browser. All users of a machine may see the arguments of a process,
so the token must not be one.

Another user may have listened on the same port before, and may have left a service worker in the browser, which would
get the token. So the file first loads an address that has the browser remove what is stored for this origin. The file
has another origin, so no such worker sees this request.
"""

from __future__ import annotations

import hashlib
import html
import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from codemode_mcp.page.sessions import clean_mark
from codemode_mcp.paths import state_dir
from upstream_clients.private_files import exposure, make_private_folder

if TYPE_CHECKING:
    from pathlib import Path

_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="referrer" content="no-referrer">
<title>codemode-mcp</title></head>
<body><form method="post" action="{url}/open">
<input type="hidden" name="token" value="{token}"><input type="hidden" name="path" value="{path}">
<button>Open codemode-mcp</button></form><script>
const cleaned = new Image();
cleaned.onload = cleaned.onerror = () => document.forms[0].submit();
cleaned.src = "{url}/clean?{mark}";
</script></body></html>
"""


def redirect_path(token: str) -> Path:
    """Return the path of the file for a token."""
    return state_dir() / "page" / f"open-{hashlib.sha256(token.encode()).hexdigest()[:32]}.html"


def write_redirect(file: Path, url: str, token: str, path: str) -> None:
    """Write the file, which only this user can read.

    Args:
        url: the origin of the page.
        path: the path of the page that is shown first.

    Raises:
        OSError: the file cannot be written, or others could replace it.
    """
    make_private_folder(file.parent)
    why = exposure(file.parent)
    if why is not None:
        raise PermissionError(0, why, str(file))
    text = _PAGE.format(url=html.escape(url), token=html.escape(token), path=html.escape(path), mark=clean_mark(token))
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(text)


def remove_redirect(token: str) -> None:
    """Remove the file of a token that was used."""
    with suppress(OSError):
        redirect_path(token).unlink()
