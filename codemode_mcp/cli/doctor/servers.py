"""Each upstream server: whether it starts, what it lists, what is odd about that, and why it is not there."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from codemode_mcp.cli.doctor.check import Check, some
from codemode_mcp.cli.doctor.policy import hidden, known_of
from codemode_mcp.control.display import counted, cut
from upstream_clients.environment import is_passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from codemode_mcp.app.app import App
    from codemode_mcp.config import Config
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView

GRACE_SECONDS: Final = 10.0
"""Beyond a server's own time to connect: for the older transport, and for ending what does not end by itself."""

HUGE_DESCRIPTION: Final = 8_000
"""Characters of one tool's description. Programs read it with the tool's types."""

MOST_PROBLEMS: Final = 10

_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b[A-Z]{4,}\b")

_TELL = "tell the server's maintainers"

_LAUNCHERS: Final = {
    "npx": "npx comes with Node.js: install it (https://nodejs.org)",
    "npm": "npm comes with Node.js: install it (https://nodejs.org)",
    "node": "install Node.js (https://nodejs.org)",
    "bunx": "install Bun (https://bun.sh)",
    "deno": "install Deno (https://deno.com)",
    "uvx": "uvx comes with uv: install it (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "pipx": "install pipx (https://pipx.pypa.io)",
    "docker": "install Docker, or start the machine it runs on",
    "python": "on many systems it is called python3",
}
"""Usual commands of servers, and the way to install each."""


async def check(app: App, config: Config, name: str, seconds: float) -> list[Check]:
    """Check one server: wait until it has connected or failed, at most some seconds beyond its time to connect."""
    pool = await app.pool()
    began = time.monotonic()
    await pool.connect([name], seconds + GRACE_SECONDS)
    took = time.monotonic() - began
    view = next(view for view in pool.views() if view.name == name)
    spec = next(spec for spec in config.upstreams if spec.name == name)
    title = f"server {name}"
    if view.login_required:
        return [Check(title, "fail", "needs a login", f"run codemode-mcp login {shlex.quote(name)}")]
    if view.state != "ready":
        why = view.error or f"still {view.state} after {took:.0f} s"
        why = why.removeprefix(f"server {name!r} ")
        return [Check(title, "fail", why, advice_for(spec, why, os.environ))]
    kept = await anyio.to_thread.run_sync(is_kept, pool, view)
    detail = f"{counted(len(view.tools), 'tool')}, protocol {cut(view.protocol_version or '?', 20)} ({view.era})"
    if view.server_version:
        detail += f", version {cut(view.server_version, 40)}"
    detail += f"; started and listed in {round(took * 1000):,} ms"
    checks = [Check(title, "ok", detail + (", listing kept" if kept else ""))]
    if not kept:
        why = "its listing cannot be kept (it quotes a secret of the entry, or the cache folder is not writable)"
        checks.append(Check(title, "info", f"{why}: it is started with every process"))
    checks += [Check(title, "warn", problem, _TELL) for problem in view.problems[:MOST_PROBLEMS]]
    if len(view.problems) > MOST_PROBLEMS:
        detail = f"{len(view.problems) - MOST_PROBLEMS} more such problems in its listing"
        checks.append(Check(title, "warn", detail, _TELL))
    return [*checks, *oddities(view, title), *hidden(known_of(view, config), title, app, config)]


def oddities(view: UpstreamView, title: str) -> Iterable[Check]:
    """Yield warnings about valid but odd tools."""
    from upstream_clients.schemas import UnusableSchema, compile_schema

    if not view.tools and not view.resources and not view.prompts:
        detail = "it lists no tools, resources or prompts: programs can do nothing with it"
        yield Check(title, "warn", detail, 'see "args" and "env" of its entry: some list nothing without a token')
    for tool in view.tools:
        try:
            compile_schema(tool.input_schema)
        except UnusableSchema as error:
            detail = f"arguments of {cut(tool.name, 60)!r} are not checked before they are sent: {error}"
            yield Check(title, "warn", detail, _TELL)
    silent = [cut(tool.name, 60) for tool in view.tools if not tool.description.strip()]
    if silent:
        detail = f"{len(silent)} of {len(view.tools)} tools say nothing of themselves: {some(silent)}"
        yield Check(title, "info", detail, "search finds these by their names alone; tell the server's maintainers")
    long = [cut(tool.name, 60) for tool in view.tools if len(tool.description) > HUGE_DESCRIPTION]
    if long:
        detail = f"descriptions of more than {HUGE_DESCRIPTION:,} characters: {some(long)}"
        yield Check(title, "info", detail, "every reader of their types reads all of it")


def advice_for(spec: UpstreamSpec, why: str, environ: Mapping[str, str]) -> str:
    """Return advice on a server that is not connected."""
    key = f"mcpServers.{spec.name}"
    if spec.url is not None:
        if "HTTP 401" in why or "HTTP 403" in why:
            return f"codemode-mcp login {shlex.quote(spec.name)}, or correct the token in {key}.headers"
        if "cannot be reached" in why:
            return "start it, or see whether a network, proxy or VPN is missing"
        return f'see "url" and "type" in {key}'
    command = spec.command or ""
    path = spec.env.get("PATH") or environ.get("PATH", "")
    if "was not found on PATH" in why and shutil.which(command, path=path) is None:
        get = _LAUNCHERS.get(command, f"install {cut(command, 60)}")
        # What stands in `env` is never shown.
        looked = " ".join(cut(spec.redact(path), 600).split(os.pathsep)) or "nowhere: PATH is empty"
        looked = f"PATH of {key}.env" if "PATH" in spec.env else looked
        return f"{get}, or give {key}.command its full path. It was looked for in {looked}"
    if "is the program alone" in why:
        return f"split it in two in {key}: the first word is the command, the others are its arguments"
    if left_behind := not_passed_on(spec, why, environ):
        named = ", ".join(f'"{name}": "${{{name}}}"' for name in left_behind)
        verb = "is" if len(left_behind) == 1 else "are"
        said = f"{' and '.join(left_behind)} {verb} set in this shell, and the server does not get it"
        return f"{said}: add {named} to {key}.env"
    if "no complete answer" in why:
        return (
            f"run it once by hand, for a first start may fetch packages: {by_hand(spec)}; or raise "
            f"{key}.connectTimeoutMs (now {spec.connect_timeout * 1000:.0f})"
        )
    if "exited" in why:
        return f"run it by hand: {by_hand(spec)}"
    return f"see {key}, then run it by hand: {by_hand(spec)}"


def not_passed_on(spec: UpstreamSpec, why: str, environ: Mapping[str, str]) -> list[str]:
    """Return the variables of this shell that a message names and that the server does not get."""
    named = dict.fromkeys(_VARIABLE.findall(why))
    return [
        name
        for name in named
        if environ.get(name) and name not in spec.env and (name in spec.withheld or not is_passed_on(name))
    ][:3]


def by_hand(spec: UpstreamSpec) -> str:
    """Return the command as one would type it, without its secrets."""
    return cut(spec.redact(shlex.join([spec.command or "", *spec.args])), 300)


def is_kept(pool: UpstreamPool, view: UpstreamView) -> bool:
    """Return True if the next process will know the tools of a server.

    The listing is kept again here: the connection may not have done so yet. Blocks.
    """
    from codemode_mcp.paths import listings_dir
    from upstream_clients.listing_cache import ListingCache
    from upstream_clients.upstream import Upstream

    upstream = pool.source(view.name)
    assert isinstance(upstream, Upstream)
    cache = ListingCache(listings_dir())
    cache.save(upstream.spec, view)
    return cache.load(upstream.spec) is not None
