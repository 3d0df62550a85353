"""Checks of upstream servers and HTTP APIs, and of the size of `exec` and `wait` in the tool list."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio.to_thread

from codemode_mcp.base.display import counted, cut
from codemode_mcp.base.text import listed
from codemode_mcp.cli.check import CORRECT, Check, elapsed_ms
from codemode_mcp.extensions.setup.doctor.configuration import hidden, known_of
from declarations.untrusted_text import escape_line
from upstream_clients.environment import find_executable, is_passed_on

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from codemode_mcp.config import Config
    from codemode_mcp.rules.trust.comparison import ItemReport
    from codemode_mcp.rules.trust.service import Trust
    from codemode_mcp.server.services import App
    from upstream_clients.openapi.served import ApiReport
    from upstream_clients.pool import UpstreamPool
    from upstream_clients.spec import UpstreamSpec
    from upstream_clients.tools import UpstreamView


GRACE_SECONDS: Final = 10.0
"""Seconds to wait beyond the connect timeout of a server.

They leave time to try the older transport, and to stop a server that hangs.
"""

PATIENCE: Final = 2
"""Timeout of the second attempt to start a server that has not answered in time, relative to its own timeout."""

_TOO_SLOW: Final = "no complete answer"
"""Words of the error of a server that has not answered in time."""

HUGE_DESCRIPTION: Final = 8_000
"""Number of characters above which a tool's description is reported. Models read it together with the tool's types."""

MAX_PROBLEMS: Final = 10
"""Maximum number of problems of one tool list that are shown."""

MAX_PARTS: Final = 3
"""Maximum number of parts of one schema that are shown."""

_VARIABLE: Final = re.compile(r"\b[A-Z][A-Z0-9]*_[A-Z0-9_]+\b|\b[A-Z]{4,}\b")
"""A word in a message that is probably the name of a variable."""

_UNSET: Final = re.compile(r"the variable (\w+) is not set")

NOT_IN_APPS: Final = "an app that is not started from a shell does not see variables of a shell"

_REPORT = "report this to the maintainers of the server"

_LAUNCHERS: Final = {
    "npx": "npx comes with Node.js: install it (https://nodejs.org)",
    "npm": "npm comes with Node.js: install it (https://nodejs.org)",
    "node": "install Node.js (https://nodejs.org)",
    "bunx": "install Bun (https://bun.sh)",
    "deno": "install Deno (https://deno.com)",
    "uvx": "uvx comes with uv: install it (https://docs.astral.sh/uv)",
    "uv": "install uv (https://docs.astral.sh/uv)",
    "pipx": "install pipx (https://pipx.pypa.io)",
    "docker": "install Docker, or start the machine on which it runs",
    "python": "on many systems the command is python3",
}
"""Usual commands of servers, with advice for a missing one."""


async def check_server(app: App, config: Config, spec: UpstreamSpec) -> list[Check]:
    pool = await app.pool()
    await pool.wait_begun(spec.name)
    began = time.monotonic()
    view, problem = await connect(pool, spec)
    took, title = elapsed_ms(began), f"server {spec.name}"
    if problem is not None and problem.status == "fail":
        return [problem]
    await pool.wait_listed([spec.name], GRACE_SECONDS)
    view = next(view for view in pool.views() if view.name == spec.name)
    stored = await anyio.to_thread.run_sync(is_stored, pool, view)
    spoken = "OpenAPI" if spec.is_api else f"protocol {cut(view.protocol_version or '?', 20)} ({view.era})"
    detail = f"{counted(len(app.trust.trusted(view).tools), 'tool')}, {spoken}"
    if view.server_version:
        detail += f", version {cut(view.server_version, 40)}"
    detail += f"; started and listed in {took:,} ms"
    checks = [] if problem is None else [problem]
    checks.append(Check(title, "ok", detail + (", list stored" if stored else "")))
    if spec.is_api:
        checks += await check_api(spec, title)
    if not stored:
        why = "its tool list cannot be stored (it quotes a secret of the entry, or the cache folder is not writable)"
        checks.append(Check(title, "info", f"{why}, so every process starts the server"))
    checks += [Check(title, "warn", problem, _REPORT) for problem in view.problems[:MAX_PROBLEMS]]
    if len(view.problems) > MAX_PROBLEMS:
        detail = f"{len(view.problems) - MAX_PROBLEMS} more such problems in its lists"
        checks.append(Check(title, "warn", detail, _REPORT))
    checks += held(app.trust, spec.name, title)
    of_policy = hidden(known_of(view, config), title, app, config)
    return [*checks, *oddities(view, title), *unfit_overrides(view, title, config), *of_policy]


def unfit_overrides(view: UpstreamView, title: str, config: Config) -> Iterable[Check]:
    from codemode_mcp.catalog.overrides import Overrides

    for tool, problem in Overrides(config.tools.overrides).problems(view):
        advice = f"correct mcpServers.{view.name}.override in the configuration"
        yield Check(title, "warn", f"the override of {cut(tool, 60)!r} {problem}", advice)


async def check_names(app: App) -> list[Check]:
    """Report servers and tools that have a longer name in programs, because another one had the name before."""
    found = app.catalog_of(app.operator).contested
    checks = []
    for name, sentence in list(found.items())[:MAX_PROBLEMS]:
        server, _, tool = name.partition(".")
        advice = f'"override" in the entry of {server} can give a tool another name' if tool else "rename one of them"
        checks.append(Check("names", "info" if tool else "warn", sentence, advice))
    if len(found) > MAX_PROBLEMS:
        checks.append(Check("names", "info", f"{len(found) - MAX_PROBLEMS} more names that several would have"))
    return checks


async def check_disabled(name: str) -> list[Check]:
    return [Check(f"server {name}", "info", "disabled in the configuration")]


async def connect(pool: UpstreamPool, spec: UpstreamSpec) -> tuple[UpstreamView, Check | None]:
    """Connect to a server, within the server's connect timeout and `GRACE_SECONDS`.

    A server that does not answer in this time is started once more, with more time, since a busy machine and a first
    start that fetches packages make healthy servers slow.

    Returns:
        The view of the server, and None, or a check that has failed if the server is not connected, or has a warning
        if it took too long.
    """
    view, failure = await _connect(pool, spec)
    if failure is None or not spec.is_process or _TOO_SLOW not in failure.detail:
        return view, failure
    patient = replace(pool.spec(spec.name), connect_timeout=PATIENCE * spec.connect_timeout)
    pool.apply([patient if each.name == spec.name else pool.spec(each.name) for each in pool.views()])
    await pool.wait_begun(spec.name)
    began = time.monotonic()
    view, again = await _connect(pool, patient)
    if again is not None:
        return view, failure
    detail = (
        f"slow to start: it did not answer within {spec.connect_timeout:g} s, and was ready after "
        f"{time.monotonic() - began:.0f} s when it was started once more"
    )
    advice = (
        f"if the machine was not busy, and it was not the first start, raise mcpServers.{spec.name}.connectTimeoutMs "
        f"(now {spec.connect_timeout * 1000:.0f})"
    )
    return view, Check(f"server {spec.name}", "warn", detail, advice)


async def _connect(pool: UpstreamPool, spec: UpstreamSpec) -> tuple[UpstreamView, Check | None]:
    began = time.monotonic()
    await pool.connect([spec.name], spec.connect_timeout + GRACE_SECONDS)
    view = next(view for view in pool.views() if view.name == spec.name)
    title = f"server {spec.name}"
    if view.login_required:
        return view, Check(title, "fail", "needs a login", f"run codemode-mcp login {shlex.quote(spec.name)}")
    if view.state == "ready":
        return view, None
    why = view.error or f"still {view.state} after {time.monotonic() - began:.0f} s"
    why = why.removeprefix(f"server {spec.name!r} ")
    return view, Check(title, "fail", why, advice_for(spec, why, os.environ))


def held(trust: Trust, server: str, title: str) -> Iterable[Check]:
    """Report items of a server that differ from what was accepted."""
    from codemode_mcp.rules.trust.items import reference
    from codemode_mcp.rules.trust.views import named, state_of

    named_server = shlex.quote(server)
    problem = trust.problem(server)
    if problem is not None:
        detail = f"{problem}, so everything of this server is held"
        yield Check(
            title,
            "fail",
            detail,
            f"remove the file, then accept again: codemode-mcp trust accept {named_server}{trust.option}",
        )
        return
    reports = trust.reports(server)
    for entry in (report for report in reports if report.kind == "entry" and report.status != "accepted"):
        about_entry = _decision_about(reference(server, entry.kind, entry.name), "it", trust.option)
        yield Check(title, "warn", state_of(entry), about_entry)
    kept_back = [report for report in reports if report.held and report.kind != "entry"]
    if kept_back:
        them = _pronoun(kept_back)
        detail = f"{counted(len(kept_back), 'item')} held until you accept {them}: {named(kept_back)}"
        yield Check(title, "warn", detail, _decision_about(server, them, trust.option))
    texts = [report for report in reports if not report.held and report.status == "text_changed"]
    if texts:
        detail = f"{counted(len(texts), 'item')} used with the accepted texts, since these have changed: {named(texts)}"
        yield Check(title, "info", detail, _decision_about(server, _pronoun(texts), trust.option))


def _pronoun(reports: Sequence[ItemReport]) -> str:
    return "it" if len(reports) == 1 else "them"


def _decision_about(target: str, pronoun: str, option: str) -> str:
    named = shlex.quote(target) + option
    return f"look at {pronoun}: codemode-mcp trust diff {named}; accept {pronoun}: codemode-mcp trust accept {named}"


def oddities(view: UpstreamView, title: str) -> Iterable[Check]:
    """Check for oddities: no tools, schemas that cannot be used, and missing or very long descriptions."""
    if not view.tools and not view.resources and not view.prompts:
        detail = "it lists no tools, resources or prompts, so programs can do nothing with it"
        advice = 'check "args" and "env" of its entry: some servers list nothing without a token'
        yield Check(title, "warn", detail, advice)
    yield from _unenforced(view, title)
    undescribed = [cut(tool.name, 60) for tool in view.tools if not tool.description.strip()]
    if undescribed:
        detail = f"{len(undescribed)} of {len(view.tools)} tools have no description: {listed(undescribed)}"
        yield Check(title, "info", detail, f"search finds these by their names only; {_REPORT}")
    long = [cut(tool.name, 60) for tool in view.tools if len(tool.description) > HUGE_DESCRIPTION]
    if long:
        detail = f"descriptions of more than {HUGE_DESCRIPTION:,} characters: {listed(long)}"
        yield Check(title, "info", detail, "models that read the types of these tools read all of it")


def _unenforced(view: UpstreamView, title: str) -> Iterable[Check]:
    """Report parts of schemas that are not enforced, since no value satisfies them or no validator can read them."""
    from upstream_clients.schema_relaxation import relax
    from upstream_clients.schemas import usable

    found: list[Check] = []
    for tool in view.tools:
        named = repr(cut(tool.name, 60))
        schema, result = tool.as_sent.input_schema, tool.as_sent.output_schema
        _, validator, reasons, problem = usable(schema)
        if validator is None:
            detail = f"arguments of {named} are not checked before they are sent: {problem}"
            found.append(Check(title, "warn", detail, _REPORT))
        elif reasons:
            detail = f"arguments of {named} are not checked against all of its schema: {_shown(reasons)}"
            found.append(Check(title, "info" if reasons == relax(schema).reasons else "warn", detail, _REPORT))
        if result is not None and (reasons := relax(result).reasons):
            detail = f"results of {named} are not compared with all of its schema: {_shown(reasons)}"
            found.append(Check(title, "info", detail, _REPORT))
    yield from found[:MAX_PROBLEMS]
    if len(found) > MAX_PROBLEMS:
        yield Check(title, "info", f"{len(found) - MAX_PROBLEMS} more schemas are not enforced in full", _REPORT)


def _shown(reasons: Sequence[str]) -> str:
    more = [f"and {len(reasons) - MAX_PARTS} more"] if len(reasons) > MAX_PARTS else []
    return "; ".join([*(escape_line(each, 300) for each in reasons[:MAX_PARTS]), *more])


def advice_for(spec: UpstreamSpec, why: str, environ: Mapping[str, str]) -> str:
    """Return advice for a server that is not connected.

    Args:
        why: the reason, from the error message.
        environ: the environment variables of this process.
    """
    key = f"mcpServers.{spec.name}"
    if spec.unusable is not None:
        unset = dict.fromkeys(_UNSET.findall(spec.unusable))
        if not unset:
            return CORRECT
        exported = " ".join(f"{name}=..." for name in unset)
        return f"export {exported} where codemode-mcp is started, or correct the file; {NOT_IN_APPS}"
    if spec.is_api:
        if "names no address" in why:
            return f'write "baseUrl" in {key}'
        if "HTTP 401" in why or "HTTP 403" in why:
            return f'write "auth" in {key} or correct it, or download the document and name the file as "openapi"'
        if "cannot be reached" in why:
            return f'start the server of the API, or check "openapi" in {key}'
        return f'check "openapi" in {key}'
    if not spec.is_process:
        if "HTTP 401" in why or "HTTP 403" in why:
            return f"codemode-mcp login {shlex.quote(spec.name)}, or correct the token in {key}.headers"
        if "cannot be reached" in why:
            return "start it, or check the network, proxy and VPN"
        return f'check "url" and "type" in {key}'
    command = spec.command or ""
    path = spec.env.get("PATH") or environ.get("PATH", "")
    if "was not found on PATH" in why and find_executable(command, path) is None:
        get = _LAUNCHERS.get(command, f"install {cut(command, 60)}")
        # Values of `env` are never shown.
        searched = " ".join(cut(spec.redact(path), 600).split(os.pathsep)) or "no folder: PATH is empty"
        searched = f"PATH of {key}.env" if "PATH" in spec.env else searched
        return f"{get}, or give {key}.command its full path. Searched in {searched}"
    if "must be the program without its arguments" in why:
        return f"split it in two in {key}: the first word is the command, the others are its arguments"
    if left_behind := not_passed_on(spec, why, environ):
        named = ", ".join(f'"{name}": "${{{name}}}"' for name in left_behind)
        verb, pronoun = ("is", "it") if len(left_behind) == 1 else ("are", "them")
        cause = f"{' and '.join(left_behind)} {verb} set in this shell, but the server does not get {pronoun}"
        return f"{cause}: add {named} to {key}.env"
    if _TOO_SLOW in why:
        return (
            f"run it once by hand, because a first start may fetch packages: {by_hand(spec)}; or raise "
            f"{key}.connectTimeoutMs (now {spec.connect_timeout * 1000:.0f})"
        )
    if "exited" in why:
        return f"run it by hand: {by_hand(spec)}"
    return f"check {key}, then run it by hand: {by_hand(spec)}"


def not_passed_on(spec: UpstreamSpec, why: str, environ: Mapping[str, str]) -> list[str]:
    """Return at most three variables that an error message names, and that are set here but not for the server."""
    named = dict.fromkeys(_VARIABLE.findall(why))
    return [
        name
        for name in named
        if environ.get(name) and name not in spec.env and (name in spec.withheld or not is_passed_on(name))
    ][:3]


def by_hand(spec: UpstreamSpec) -> str:
    """Return the command line that starts a server in a shell, with secrets hidden."""
    return cut(spec.redact(shlex.join([spec.command or "", *spec.args])), 300)


def is_stored(pool: UpstreamPool, view: UpstreamView) -> bool:
    """Store the tool list of a server. Return True if the next process can read the list. Blocks.

    The connection stores the list too, but possibly later than this call.
    """
    from codemode_mcp.base.paths import listings_dir
    from upstream_clients.listing import ListingCache

    spec = pool.spec(view.name)
    cache = ListingCache(listings_dir())
    cache.save(spec, view)
    return cache.load(spec) is not None


MAX_SKIPPED: Final = 10
"""Maximum number of skipped operations that are shown."""

MAX_REASON: Final = 400
"""Characters of the reason why an operation is skipped. It may name an origin, which a person copies."""

MAX_SERVERS: Final = 5
"""Maximum number of servers of single operations that are shown."""


async def check_api(spec: UpstreamSpec, title: str) -> list[Check]:
    from upstream_clients.errors import LoginError, UpstreamCallError
    from upstream_clients.openapi.served import report_of

    try:
        report = await report_of(spec)
    except (UpstreamCallError, LoginError) as error:
        return [Check(title, "warn", str(error), f"check mcpServers.{spec.name}")]
    return list(_checks(spec, report, title))


def _checks(spec: UpstreamSpec, report: ApiReport, title: str) -> Iterator[Check]:
    entry = f"mcpServers.{spec.name}"
    origin = "from baseUrl" if report.is_address_written else "from the document"
    found = f"{counted(report.operations, 'operation')}; base address {report.address} ({origin})"
    if report.own_servers:
        servers = [cut(each, 200) for each in report.own_servers]
        found += f"; servers of single operations: {listed(servers, MAX_SERVERS)}"
    yield Check(title, "ok", found)
    if report.skipped:
        shown = [f"{cut(each.operation, 80)} ({cut(each.reason, MAX_REASON)})" for each in report.skipped]
        total = report.operations + len(report.skipped)
        detail = f"{len(report.skipped)} of {total} operations skipped: {listed(shown, MAX_SKIPPED)}"
        yield Check(title, "info", detail, "programs cannot call these")
    from upstream_clients.openapi.client import has_credentials
    from upstream_clients.token_store import LoginStore

    trusting = f'if you trust it, write "baseUrl": "{report.address}" in {entry}'
    if not report.is_reachable:
        detail = f"no request is sent to {report.address}: only the document names this address, which is not public"
        yield Check(title, "fail", detail, trusting)
    elif has_credentials(spec) and not report.gets_credentials:
        detail = f"credentials are not sent to {report.address}, because only the document names this address"
        yield Check(title, "warn", detail, trusting)
    elif has_credentials(spec) and _is_readable_on_the_way(report.address):
        detail = f"credentials are sent to {report.address} without encryption"
        yield Check(title, "warn", detail, f'write an address with https as "baseUrl" in {entry}')
    readable = [each for each in spec.other_origins if _is_readable_on_the_way(each)]
    if has_credentials(spec) and readable:
        detail = f"credentials may be sent to {listed(readable)} without encryption"
        yield Check(title, "warn", detail, f'write addresses with https in "otherOrigins" in {entry}')
    if spec.oauth is not None and LoginStore(spec).stamp() is None:
        yield Check(title, "fail", "calls need a login", f"run codemode-mcp login {shlex.quote(spec.name)}")
    named = listed([cut(each, 200) for each in report.logins])
    if report.logins and not has_credentials(spec):
        detail = f"its document names logins, and the entry has none: {named}"
        yield Check(title, "warn", detail, f'write "auth" in {entry} if calls need it')
    elif report.logins and spec.oauth is not None and not spec.names_endpoints:
        detail = f"its document names logins, whose addresses are not used: {named}"
        advice = (
            f'if the login fails, and you trust an address, write "authorizationUrl" and "tokenUrl" in {entry}.auth'
        )
        yield Check(title, "info", detail, advice)


def _is_readable_on_the_way(address: str) -> bool:
    from upstream_clients.fetch import is_loopback

    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


_CUT = re.compile(r"^.*?(\d+) (?:more|servers), see API\.list\(\)")


async def check_budget(app: App, config: Config) -> Iterable[Check]:
    from codemode_mcp.server.descriptions import TOOLS_BYTES, TOOLS_BYTES_NAMESPACES, tool_list

    if not config.tools.code_mode.enabled:
        advice = '"tools.codeMode": true lists two tools instead; codemode-mcp savings compares the sizes'
        return [Check("byte budget", "info", "pass-through: every tool of every server is listed", advice)]
    servers = app.servers(app.operator)
    namespaces = await app.namespace_texts(app.operator)
    programs = app.saved_programs(app.operator)
    plugins, topics = any(app.plugin_tools()), app.topics(app.operator)
    tools = tool_list(servers, config.tools, namespaces, topics, programs=programs, plugins=plugins)
    used = sum(
        len(text.encode())
        for tool in tools
        for text in (tool["name"], tool["description"], json.dumps(tool["inputSchema"]))
    )
    bound = TOOLS_BYTES_NAMESPACES if namespaces else TOOLS_BYTES
    if used > bound:
        detail = f"exec and wait take {used:,} bytes, more than their limit of {bound:,}"
        return [Check("byte budget", "fail", detail, "this is a fault of codemode-mcp; please report it")]
    detail = f"exec and wait take {used:,} of {bound:,} bytes, for {counted(len(servers), 'server')}"
    cut = _CUT.search(tools[0]["description"])
    if cut is None:
        return [Check("byte budget", "ok", detail)]
    advice = "programs find these servers with API.list(); shorter names, or fewer servers, would fit"
    return [Check("byte budget", "info", f"{detail}; {cut[1]} names of servers do not fit", advice)]
