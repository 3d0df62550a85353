"""Login to an upstream server through a browser, and logout.

The browser returns to a listener on this machine. Any other request to the listener is answered and ignored.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import asynccontextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

import anyio
import anyio.abc
import anyio.to_thread
from msgspec.structs import replace

from codemode_mcp.cli.messages import suggestion
from upstream_clients.errors import LoginError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from anyio.streams.memory import MemoryObjectReceiveStream

    from codemode_mcp.config import Config
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.token_store import Login

LOGIN_SECONDS = 300.0
"""Timeout for the browser to return."""

_PATH = "/callback"
_MAX_REQUEST_BYTES = 16 * 1024
_REQUEST_SECONDS = 10.0

Answer = dict[str, str]
"""The query of the request with which the browser returns."""


class NoLoginPossible(Exception):
    """Error for a server that has no login. The message says why."""


def find_server(config: Config, name: str) -> UpstreamSpec:
    """Return the server of this name.

    Raises:
        NoLoginPossible: there is no such server, or no login for it.
    """
    for spec in config.upstreams:
        if spec.name == name:
            if spec.unusable is not None:
                raise NoLoginPossible(spec.unusable)
            if spec.is_process:
                raise NoLoginPossible(
                    f"server {name!r} is started by a command; only a server with a URL has a login; "
                    "put its credentials into its env"
                )
            if spec.is_api and spec.oauth is None:
                raise NoLoginPossible(
                    f'server {name!r} is an API without a login; write "auth": "oauth" in its entry to log in, or give '
                    "it other credentials there"
                )
            if spec.login_url is None:
                raise NoLoginPossible(
                    f'server {name!r} has no address for a login; write "baseUrl", or "authorizationUrl" and '
                    '"tokenUrl" in its "auth"'
                )
            if not spec.may_log_in:
                raise NoLoginPossible(
                    f"server {name!r} has an Authorization header; remove it from its headers to log in instead"
                )
            return spec
    if name in config.disabled:
        raise NoLoginPossible(
            f'server {name!r} is disabled in the configuration; remove "disabled" from its entry to log in'
        )
    names = [spec.name for spec in config.upstreams]
    raise NoLoginPossible(f"there is no server {name!r}; {suggestion(name, names)}")


async def log_in(spec: UpstreamSpec, show: Callable[[str], None], *, timeout: float = LOGIN_SECONDS) -> str:
    """Log in, and store the login. Return where it is stored, in words.

    Args:
        show: called with the address to open in the browser.
        timeout: seconds to wait for the browser.

    Raises:
        LoginError: the login failed.
    """
    from upstream_clients import oauth
    from upstream_clients.fetch import Fetcher
    from upstream_clients.spec import Challenge
    from upstream_clients.token_store import LoginStore

    assert spec.login_url is not None
    store = LoginStore(spec)
    # The messages of a probe are MCP, which an API does not understand.
    status, challenge = (HTTPStatus.UNAUTHORIZED, None) if spec.is_api else await oauth.probe(spec)
    refused = status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
    if not refused:
        challenge = None
    elif challenge is None and spec.oauth is not None and not spec.is_api:
        challenge = Challenge()
    async with Fetcher(spec.login_url, trusted=spec.names_endpoints) as fetcher:
        offer = await oauth.discover(spec, fetcher, challenge)
        if offer is None and spec.is_api:
            raise LoginError(
                "it publishes no metadata of a login; write the addresses of its authorization server: "
                '"auth": {"type": "oauth", "clientId": "...", "authorizationUrl": "...", "tokenUrl": "..."} in '
                f"mcpServers.{spec.name}; codemode-mcp doctor shows those that its document names"
            )
        if offer is None:
            if refused:
                raise LoginError(
                    f"it requires authentication (HTTP {status}) but offers no OAuth login; "
                    f'give it credentials in "headers" of mcpServers.{spec.name}'
                )
            raise LoginError(f"it offers no OAuth login, and needs none: it answered HTTP {status} without one")
        before = await _previous(store.load)
        if before is not None and before.wanted:
            offer = replace(offer, scope=_union_of_scopes(offer.scope, before.scope, before.wanted))
        port = None if spec.oauth is None else spec.oauth.redirect_port
        async with _listening(port) as (redirect_uri, answers):
            client = await oauth.become_client(spec, fetcher, offer, redirect_uri)
            attempt = oauth.begin(offer, client, redirect_uri)
            spec.learn(secret for secret in (client.secret, attempt.verifier) if secret)
            show(attempt.url)
            answer: Answer | None = None
            with anyio.move_on_after(timeout):
                async for received in answers:
                    if oauth.is_answer_to(attempt, received):
                        answer = received
                        break
            if answer is None:
                raise LoginError(f"the browser did not return within {timeout:g} s")
            code = oauth.read_code(attempt, answer)
            spec.learn((code,))
            login = await oauth.redeem(fetcher, attempt, code)
    spec.learn(login.secrets)
    async with store.locked():
        kept = await anyio.to_thread.run_sync(store.save, login)
    return "the system keyring" if kept == "keyring" else str(store.path)


async def log_out(spec: UpstreamSpec) -> bool:
    """Delete the login, and revoke it if the authorization server supports that. Return whether there was one.

    Raises:
        LoginError: it could not be deleted.
    """
    from upstream_clients import oauth
    from upstream_clients.token_store import LoginStore

    store = LoginStore(spec)
    if store.stamp() is None:
        return False
    async with store.locked():
        login = await _previous(store.load)
        had_login = await anyio.to_thread.run_sync(store.forget)
    if login is not None:
        await oauth.revoke(spec, login)
    return had_login


def can_open_browser() -> bool:
    """Return True if a browser would open a window rather than run in the terminal."""
    return not sys.platform.startswith("linux") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")
    )


def open_browser(url: str) -> threading.Thread:
    """Start to open an address in the user's browser. Failures are ignored.

    Returns the daemon thread that opens it. Do not join the thread: some browsers run until the user closes them.
    """
    import webbrowser

    def show() -> None:
        with suppress(webbrowser.Error, OSError, ValueError):  # no browser, or `$BROWSER` is not a command
            webbrowser.open(url)

    thread = threading.Thread(target=show, name="browser", daemon=True)
    thread.start()
    return thread


async def _previous(load: Callable[[], Login | None]) -> Login | None:
    with suppress(StoreError):  # an unreadable login is replaced or deleted anyway
        return await anyio.to_thread.run_sync(load)
    return None


def _union_of_scopes(*scopes: str | None) -> str:
    return " ".join(dict.fromkeys(word for scope in scopes for word in (scope or "").split()))


@asynccontextmanager
async def _listening(port: int | None) -> AsyncIterator[tuple[str, MemoryObjectReceiveStream[Answer]]]:
    """Listen for the browser. Yield the redirect URI, and a stream of the queries of requests to it."""
    try:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port or 0)
    except OSError as error:
        raise LoginError(f"cannot listen on 127.0.0.1 port {port} for the browser: {error.strerror}") from None
    sending, receiving = anyio.create_memory_object_stream[Answer](16)
    local_port = listener.extra(anyio.abc.SocketAttribute.local_port)
    failure: LoginError | None = None

    async def answer(stream: anyio.abc.SocketStream) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with stream:
                status, found = await _read_request(stream)
                if found is not None:
                    with suppress(anyio.WouldBlock):  # too many requests at the same time
                        sending.send_nowait(found)
                await stream.send(_page(status))

    async with listener, sending, receiving, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(listener.serve, answer))
        try:
            yield f"http://127.0.0.1:{local_port}{_PATH}", receiving
        except LoginError as error:
            failure = error  # raised outside the task group, which would wrap it in an exception group
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _read_request(stream: anyio.abc.SocketStream) -> tuple[HTTPStatus, Answer | None]:
    """Read one HTTP request. Return the status to answer with, and its query if it is to the redirect URI."""
    request = b""
    with anyio.move_on_after(_REQUEST_SECONDS), suppress(anyio.EndOfStream):
        while b"\r\n\r\n" not in request and len(request) <= _MAX_REQUEST_BYTES:
            request += await stream.receive()
    method, _, rest = request.partition(b"\r\n")[0].decode("latin-1").partition(" ")
    try:
        target = urlsplit(rest.partition(" ")[0])
        # The first value of a repeated parameter counts, so that an appended one cannot replace it.
        answer = dict(reversed(parse_qsl(target.query, max_num_fields=50)))
    except ValueError:
        return HTTPStatus.BAD_REQUEST, None
    if method != "GET":
        return HTTPStatus.METHOD_NOT_ALLOWED, None
    if target.path != _PATH:
        return HTTPStatus.NOT_FOUND, None
    return HTTPStatus.OK, answer


def _page(status: HTTPStatus) -> bytes:
    """Return the response for a status. It contains no text from the request."""
    text = "You can close this window; the terminal says how it went." if status == HTTPStatus.OK else status.phrase
    body = f"<!doctype html><meta charset=utf-8><title>codemode-mcp</title><p>{text}</p>".encode()
    head = (
        f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: text/html; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nContent-Security-Policy: default-src 'none'\r\n"
        "Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
