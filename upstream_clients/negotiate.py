"""Agree on a protocol version with a server of either era.

The same policy as the SDK's `Client(mode="auto")`, whose function for it is private: probe `server/discover`; every
answer that is no evidence of a modern server falls back to `initialize`. Two differences: the probe is given less
time, since a slow server answers the `initialize` behind it anyway, and a transport that failed is not asked twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import anyio
from mcp.shared.exceptions import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    UNSUPPORTED_PROTOCOL_VERSION,
    ClientCapabilities,
    DiscoverResult,
    Implementation,
    InitializedNotification,
    InitializeRequest,
    InitializeRequestParams,
    InitializeResult,
)
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from upstream_clients.faults import is_logged_out, is_transport_failure

if TYPE_CHECKING:
    from mcp.client.session import ClientSession

PROBE_TIMEOUT = 5.0
"""Seconds. A legacy server that keeps silent on methods it does not know costs this much at every start."""


CAPABILITIES: Final[dict[str, Any]] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
"""What a server may ask while it works on a call. Modern servers are told so with each call for which somebody can be
asked; legacy ones once and for all, at `initialize`."""


async def negotiate(session: ClientSession, client_info: Implementation) -> None:
    """Leave `session` with a negotiated version of one era or the other.

    Raises:
        MCPError: no common version, the handshake was refused, or the transport failed.
        RuntimeError: the server chose a version that the SDK does not know.
        ValidationError: the server's answer to `initialize` makes no sense.
    """
    try:
        if await _discover(session, LATEST_MODERN_VERSION):
            return
        await _initialize(session, client_info)
    except MCPError as error:
        if error.code == HEADER_MISMATCH:
            # It misses what a modern request has: it is modern, and was only slow to answer the probe.
            if await _discover(session, LATEST_MODERN_VERSION):
                return
            raise
        # The server is modern, but of another revision. Also the answer to an `initialize` that followed a probe
        # which the server had accepted too late: the connection is modern by then.
        version = _common_version(error)
        if version is None or not await _discover(session, version):
            raise


async def _initialize(session: ClientSession, client_info: Implementation) -> None:
    """`ClientSession.initialize`, which would derive the capabilities from callbacks that model what they are given."""
    params = InitializeRequestParams(
        protocol_version=LATEST_HANDSHAKE_VERSION,
        capabilities=ClientCapabilities.model_validate(CAPABILITIES),
        client_info=client_info,
    )
    result = await session.send_request(InitializeRequest(params=params), InitializeResult)
    if result.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise RuntimeError(f"Unsupported protocol version from the server: {result.protocol_version}")
    session.adopt(result)
    await session.send_notification(InitializedNotification())


async def _discover(session: ClientSession, version: str) -> bool:
    """Whether the server took up the modern protocol. Raises `MCPError` when it named other versions or is gone."""
    raw: dict[str, Any] | None = None
    with anyio.move_on_after(PROBE_TIMEOUT):
        try:
            raw = await session.send_discover(version)
        except MCPError as error:
            if (
                is_transport_failure(error)
                or is_logged_out(error)
                or _common_version(error) is not None
                or _modern_only(error)
            ):
                raise
    if raw is None:
        return False
    try:
        result = DiscoverResult.model_validate(raw)
    except ValidationError:
        return False
    if not any(known in result.supported_versions for known in MODERN_PROTOCOL_VERSIONS):
        return False
    session.adopt(result)
    return True


def _supported(error: MCPError) -> list[str] | None:
    """The versions that an "unsupported protocol version" error names."""
    if error.code != UNSUPPORTED_PROTOCOL_VERSION or not isinstance(error.data, dict):
        return None
    supported = error.data.get("supported")
    return [version for version in supported if isinstance(version, str)] if isinstance(supported, list) else None


def _common_version(error: MCPError) -> str | None:
    supported = _supported(error) or ()
    common = [version for version in MODERN_PROTOCOL_VERSIONS if version in supported]
    return common[-1] if common else None


def _modern_only(error: MCPError) -> bool:
    supported = _supported(error)
    return supported is not None and not any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)
