"""The browsers that may use the page: tokens, sessions, and the file that a browser opens.

A browser gets a token once, from a file of its user. The token becomes a session, which has two secrets. The browser
sends the first one as a cookie. Cookies are not bound to a port: every other server on this machine that the browser
visits receives the cookie, too. So the second secret, which only the pages of this origin can read, must come with
every request that changes something.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import os
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from codemode_mcp.base.paths import state_dir
from upstream_clients.private_files import exposure, make_private_folder

TOKEN_SECONDS: Final = 60.0
"""Time for which a token can be used, once."""

IDLE_SECONDS: Final = 12 * 3600.0
"""Time without requests after which a session ends."""

MAX_TOKENS: Final = 16
"""Maximum number of unused tokens. The oldest is dropped."""

MAX_SESSIONS: Final = 32
"""Maximum number of sessions. The one that was not used for the longest time ends."""

_BYTES: Final = 32
"""Random bytes of a token and of each secret."""


@dataclass(slots=True, repr=False)
class Session:
    """A browser that was admitted.

    Attributes:
        cookie: the secret that the browser sends with every request.
        secret: the secret that pages of this origin send with every change.
        used: monotonic seconds of the latest request.
    """

    cookie: str
    secret: str
    used: float

    def admits_change(self, secret: str) -> bool:
        """Return True if a request that changes something has the secret of the page. Takes constant time."""
        return hmac.compare_digest(self.secret.encode(), secret.encode("utf-8", "replace"))


class Sessions:
    """All tokens and sessions. They are in memory only, by the digests of their secrets."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[bytes, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Sessions: {len(self._tokens)} tokens, {len(self._sessions)} browsers>"

    def issue(self, now: float) -> str:
        token = secrets.token_urlsafe(_BYTES)
        self._tokens[_digest(token)] = now + TOKEN_SECONDS
        while len(self._tokens) > MAX_TOKENS:
            self._tokens.popitem(last=False)
        return token

    def awaits(self, mark: str, now: float) -> bool:
        """Return True if the token with this `clean_mark` was issued and not used yet."""
        return any(
            hmac.compare_digest(_mark(digest).encode(), mark.encode("utf-8", "replace")) and expires > now
            for digest, expires in self._tokens.items()
        )

    def redeem(self, token: str, now: float) -> Session | None:
        """Return a new session for a token; None if the token is unknown, was used before, or is too old."""
        expires = self._tokens.pop(_digest(token), 0.0)
        if expires <= now:
            return None
        session = Session(secrets.token_urlsafe(_BYTES), secrets.token_urlsafe(_BYTES), now)
        self._sessions[_digest(session.cookie)] = session
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def find(self, cookie: str, now: float) -> Session | None:
        """Return the session of a cookie, and note that it is used; None if there is none, or if it has ended."""
        key = _digest(cookie)
        session = self._sessions.pop(key, None)
        if session is None or now - session.used > IDLE_SECONDS:
            return None
        session.used = now
        self._sessions[key] = session
        return session

    def end(self, session: Session) -> None:
        self._sessions.pop(_digest(session.cookie), None)


def clean_mark(token: str) -> str:
    """Return a text that shows that its sender has a token. The token cannot be computed from it."""
    return _mark(_digest(token))


def _mark(digest: bytes) -> str:
    return hashlib.sha256(b"clean" + digest).hexdigest()


def _digest(secret: str) -> bytes:
    """Return the key of a secret. A look-up of the secret itself could take longer the more of it is right."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


# The file that a browser opens to get to the page: it sends a token.
#
# The command line hands the path of this file to the browser. All users of a machine may see the arguments of a
# process, so the token must not be one.
#
# Another user may have listened on the same port before, and may have left a service worker in the browser, which would
# get the token. So the file first loads an address that has the browser remove what is stored for this origin. The file
# has another origin, so no such worker sees this request.


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
    with suppress(OSError):
        redirect_path(token).unlink()
