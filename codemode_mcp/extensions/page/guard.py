"""The checks of every request to the page, before any of its code runs.

A web page of another origin can send requests to this address, and can make its own name resolve to it. Another program
of this user can do more, but it can read the user's files anyway. So a request must name this address (`Host`), a page
or file is only shown to an admitted browser, and a change needs the origin of the page and the secret of its session.
"""

from __future__ import annotations

import logging
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import JSONResponse, PlainTextResponse, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from codemode_mcp.extensions.page.sessions import Session, Sessions

log = logging.getLogger("codemode_mcp.extensions.page")

SECRET_HEADER: Final = b"x-codemode-page"
"""Header with the secret of the page in requests that change something."""

OPEN_PATH: Final = "/open"
"""Path to which a token is sent. It needs no session."""

CLEAN_PATH: Final = "/clean"
"""Path that has a browser remove what is stored for this origin. It needs no session, and is loaded by a local file."""

ASSETS_PATH: Final = "/assets/"
"""Path of the files of the page, which are public. They need no session."""

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind} 'self'" for kind in ("script-src", "style-src", "img-src", "connect-src", "form-action")),
        "worker-src 'none'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)

HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""Headers of every response."""


class Guard:
    """An ASGI application that admits requests to another one.

    Args:
        port: the port of the listener on 127.0.0.1.
        locked: returns the answer for a browser without a session.
        clock: returns monotonic seconds.
    """

    def __init__(
        self, application: ASGIApp, port: int, sessions: Sessions, locked: Callable[[], Response], clock: Any
    ) -> None:
        self._application = application
        self._hosts = {f"{name}:{port}".encode() for name in ("127.0.0.1", "localhost")}
        self._sessions = sessions
        self._locked = locked
        self._clock = clock
        self._cookie = cookie_name(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message.get("headers", ())}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {
                    **message,
                    "headers": [*message.get("headers", ()), *(each for each in added if each[0] not in given)],
                }
            await send(message)

        refusal = self._refusal(scope)
        await (self._application if refusal is None else refusal)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not admitted; None for an admitted one, whose session is noted."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value)
        (host,) = headers.get(b"host", [b""])[:1]
        if len(headers.get(b"host", ())) != 1 or host.lower() not in self._hosts:
            log.warning("a request to the page was refused: it names another host")
            return PlainTextResponse("This address answers only under its own name.\n", 421)
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("This method is not supported.\n", 405)
        if b"service-worker" in headers:
            return PlainTextResponse("The page has no service worker.\n", 404)
        if path == OPEN_PATH or (path == CLEAN_PATH and method == "GET"):
            return None  # the token, or a text that is computed from it, is the authorization
        site = headers.get(b"sec-fetch-site", [b"none"])[0]
        shown = headers.get(b"sec-fetch-mode", [b"navigate"])[0] == b"navigate" and method != "POST"
        if site not in (b"same-origin", b"none") and not shown:
            return PlainTextResponse("Another page must not load this.\n", 403)
        if path.startswith(ASSETS_PATH) and method != "POST":
            return None
        session = self._session(headers.get(b"cookie", []))
        if session is None:
            if method == "POST":
                return JSONResponse({"error": "This browser is not admitted. Run codemode-mcp ui again."}, 401)
            return self._locked()
        scope["session"] = session
        return self._refusal_of_change(headers, host, session) if method == "POST" else None

    def _refusal_of_change(self, headers: dict[bytes, list[bytes]], host: bytes, session: Session) -> Response | None:
        origin, secret = headers.get(b"origin", []), headers.get(SECRET_HEADER, [])
        if origin != [b"http://" + host.lower()]:
            return JSONResponse({"error": "This request does not come from the page."}, 403)
        if len(secret) != 1 or not session.admits_change(secret[0].decode("latin-1")):
            return JSONResponse({"error": "The secret of the page is missing. Run codemode-mcp ui again."}, 403)
        if headers.get(b"content-type", [b""])[0].split(b";")[0].strip() != b"application/json":
            return JSONResponse({"error": "The body of this request must be JSON."}, 415)
        return None

    def _session(self, cookies: list[bytes]) -> Session | None:
        for each in cookies:
            try:
                found = SimpleCookie(each.decode("latin-1")).get(self._cookie)
            except CookieError:
                continue
            if found is not None and (session := self._sessions.find(found.value, self._clock())) is not None:
                return session
        return None


def cookie_name(port: int) -> str:
    """Return the name of the cookie. Pages of other processes have other ports, and must not replace it."""
    return f"codemode_mcp_{port}"
