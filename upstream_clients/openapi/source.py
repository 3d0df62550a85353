"""The bytes of an OpenAPI document, from a file or a URL, within limits of size and time.

A document that was read before is requested again only if it has changed, as far as its server can tell (RFC 9110, 13).

A document at a URL is requested without credentials first. Only if the server refuses that, the request is repeated
with the credentials and headers of the entry, and only to the origin that also gets them for calls. So a public page
with the document never sees them.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import httpx2

from upstream_clients.errors import UpstreamCallError
from upstream_clients.line_messages import MAX_MESSAGE_BYTES
from upstream_clients.openapi.client import with_credentials
from upstream_clients.openapi.exchanges import USER_AGENT, Address, Http, Outgoing
from upstream_clients.openapi.redirects import MAX_REDIRECTS, following, origin_of
from upstream_clients.openapi.response_body import ACCEPTED_ENCODINGS, UnreadableBody
from upstream_clients.spec import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from upstream_clients.openapi.api import ApiResponse
    from upstream_clients.openapi.client import Credentials
    from upstream_clients.spec import UpstreamSpec

_ACCEPT: Final = "application/json, application/yaml, application/vnd.oai.openapi, */*;q=0.5"
_MAX_REASON: Final = 300
"""Characters of the reason of a failure, which may quote any number of bytes of an answer."""

_REFUSED: Final = (401, 403, 404)
"""Statuses with which servers hide a document from requests without credentials."""
_VALIDATORS: Final = {"if-none-match": "etag", "if-modified-since": "last-modified"}
"""Headers of requests by which a server can tell whether a document has changed, and the headers of answers with their
values."""
_VALIDATOR: Final = re.compile(r"[!-~][ -~]{0,500}")
"""A value that is sent back."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A document, as its server has sent it.

    Attributes:
        data: the document; None if it is the one that was read before.
        url: the address after redirects; empty for a file.
        validators: the headers of a request for the document if it has changed.
        is_public: True if it was sent without credentials.
    """

    data: bytes | None
    url: str = ""
    validators: Mapping[str, str] = field(default_factory=dict)
    is_public: bool = True


async def load_document(spec: UpstreamSpec, credentials: Credentials | None, known: Loaded | None = None) -> Loaded:
    """Return the document of an entry.

    Args:
        known: the document that was read before.

    Raises:
        UpstreamCallError: the document cannot be read.
        LoginError: the document needs credentials, and there are none now.
    """
    assert spec.document is not None
    if not is_url(spec.document):
        try:
            return Loaded(await anyio.to_thread.run_sync(_read_file, spec.document))
        except OSError as error:
            raise _failure(spec, f"it cannot be read ({error.strerror or type(error).__name__})") from None
        except ValueError as error:
            raise _failure(spec, str(error)) from None
    headers = {"accept": _ACCEPT, "accept-encoding": ACCEPTED_ENCODINGS, "user-agent": USER_AGENT}
    http = Http(guarded=False)
    try:
        with anyio.fail_after(spec.connect_timeout):
            response, url = await _fetch(spec, http, headers, None, known)
            is_public = True
            has_any = credentials is not None or bool(spec.headers)
            if response.status in _REFUSED and has_any and _may_get_credentials(spec):
                headers |= {name.lower(): value for name, value in spec.headers.items()}
                response, url = await _fetch(spec, http, headers, credentials, known)
                is_public = False
    except TimeoutError:
        raise _failure(spec, f"its server has not answered completely within {spec.connect_timeout:g} s") from None
    finally:
        with anyio.CancelScope(shield=True):
            await http.close()
    if response.status == HTTPStatus.NOT_MODIFIED and known is not None and _validators(known, url):
        return Loaded(None, url, known.validators, is_public)
    if not 200 <= response.status < 300:
        raise _failure(spec, f"its server answered HTTP {response.status} {response.reason}".rstrip())
    found = {name: response.headers.get(answered, "") for name, answered in _VALIDATORS.items()}
    validators = {name: value for name, value in found.items() if _VALIDATOR.fullmatch(value)}
    return Loaded(response.body, url, validators, is_public)


def _read_file(path: str) -> bytes:
    with open(path, "rb", opener=_open_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is not a regular file")
        data = file.read(MAX_MESSAGE_BYTES + 1)
    if len(data) > MAX_MESSAGE_BYTES:
        raise ValueError(f"it is larger than {MAX_MESSAGE_BYTES} bytes")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file, also a pipe without a writer, for which other readers wait. No thread could be freed from that."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _may_get_credentials(spec: UpstreamSpec) -> bool:
    """Return True if the server of the document is the one of the API, as far as the configuration says."""
    return spec.url is None or origin_of(spec.url) == origin_of(spec.document or "")


def _validators(known: Loaded | None, url: str) -> Mapping[str, str]:
    """Return the headers of a request for the known document if it has changed; empty at another address."""
    return known.validators if known is not None and known.url == url else {}


async def _fetch(
    spec: UpstreamSpec, http: Http, headers: dict[str, str], credentials: Credentials | None, known: Loaded | None
) -> tuple[ApiResponse, str]:
    """Return the answer for the document after redirects within its origin, and the address of the answer."""
    url = (spec.document or "").partition("#")[0]
    try:
        for _ in range(MAX_REDIRECTS + 1):
            request = Outgoing("GET", Address.read(url), {**headers, **_validators(known, url)})
            if credentials is not None:
                request = await with_credentials(credentials, request)
            response = await http.exchange(request)
            next_one = following("GET", url, response.status, response.headers.get("location"))
            if next_one is None:
                return response, url
            if origin_of(next_one.url) != origin_of(url):
                raise _failure(spec, f"it has moved to {next_one.url[:300]!r}; write that address")
            url = next_one.url
    except (httpx2.TransportError, httpx2.InvalidURL) as error:
        raise _failure(spec, f"its server cannot be reached ({str(error) or type(error).__name__})") from None
    except UnreadableBody as error:
        raise _failure(spec, str(error)) from None
    raise _failure(spec, "its server redirects without end")


def _failure(spec: UpstreamSpec, why: str) -> UpstreamCallError:
    key = f'"openapi" of mcpServers.{spec.name}'
    shown, why = spec.redact(spec.document or ""), spec.cut(why, _MAX_REASON)
    return UpstreamCallError(
        spec.name,
        f"server {spec.name!r}: the OpenAPI document {shown!r} is not usable: {spec.redact(why)}; check {key}",
        dispatched=False,
    )
