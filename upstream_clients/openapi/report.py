"""The facts about the document of an API that a person who checks an entry has to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from upstream_clients.address_guard import may_be_public
from upstream_clients.openapi.credentials import credentials_of
from upstream_clients.openapi.served import read_api

if TYPE_CHECKING:
    from upstream_clients.openapi.api import Skipped
    from upstream_clients.spec import UpstreamSpec


@dataclass(frozen=True, slots=True)
class ApiReport:
    """The document of one API.

    Attributes:
        operations: number of the operations that are tools.
        skipped: the operations that are no tools, with the reasons.
        logins: sentences about the logins that the document names.
        address: the base address of the API.
        own_servers: the addresses of the servers that only single operations have.
        is_address_written: True if the entry names the address, and not the document.
        gets_credentials: True if the credentials and headers of the entry are sent there.
        is_reachable: False if no request is sent there, because only the document names it and it is not public.
    """

    operations: int
    skipped: tuple[Skipped, ...]
    logins: tuple[str, ...]
    address: str
    own_servers: tuple[str, ...]
    is_address_written: bool
    gets_credentials: bool
    is_reachable: bool


async def report_of(spec: UpstreamSpec) -> ApiReport:
    """Read the document of an API.

    Raises:
        UpstreamCallError: the document cannot be used.
        LoginError: the document needs credentials, and there are none now.
    """
    read = await read_api(spec, credentials_of(spec))
    api, base = read.api, read.base
    return ApiReport(
        operations=len(api.tools),
        skipped=api.skipped,
        logins=api.security,
        address=base.shown,
        own_servers=api.own_servers,
        is_address_written=not api.base_from_document,
        gets_credentials=base.gets_credentials,
        is_reachable=base.is_configured or may_be_public(base.address.endpoint.host),
    )
