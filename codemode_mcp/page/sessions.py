"""The browsers that may use the page: one-time tokens, and the sessions that they become. Time is an argument. Pure.

A browser gets a token once, from a file of its user. The token becomes a session, which has two secrets. The browser
sends the first one as a cookie. Cookies are not bound to a port: every other server on this machine that the browser
visits receives the cookie, too. So the second secret, which only the pages of this origin can read, must come with
every request that changes something.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

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
        """Return a new token."""
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
        """End a session."""
        self._sessions.pop(_digest(session.cookie), None)


def clean_mark(token: str) -> str:
    """Return a text that shows that its sender has a token. The token cannot be computed from it."""
    return _mark(_digest(token))


def _mark(digest: bytes) -> str:
    return hashlib.sha256(b"clean" + digest).hexdigest()


def _digest(secret: str) -> bytes:
    """Return the key of a secret. A look-up of the secret itself could take longer the more of it is right."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
