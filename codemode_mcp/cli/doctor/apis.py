"""Checks of HTTP APIs: the operations of the document, the address, and the logins that the document names."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from codemode_mcp.cli.doctor.check import Check, listed
from codemode_mcp.control.display import counted, cut

if TYPE_CHECKING:
    from collections.abc import Iterator

    from upstream_clients.openapi.report import ApiReport
    from upstream_clients.spec import UpstreamSpec

MAX_SKIPPED: Final = 10
"""Maximum number of skipped operations that are shown."""

MAX_REASON: Final = 400
"""Characters of the reason why an operation is skipped. It may name an origin, which a person copies."""

MAX_SERVERS: Final = 5
"""Maximum number of servers of single operations that are shown."""


async def check_api(spec: UpstreamSpec, title: str) -> list[Check]:
    """Read the document of an API that is connected, and check the entry against it."""
    from upstream_clients.errors import LoginError, UpstreamCallError
    from upstream_clients.openapi.report import report_of

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
    from upstream_clients.openapi.credentials import has_credentials
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
    from upstream_clients.loopback import is_loopback

    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")
