"""The part that this extension adds to the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from codemode_mcp.extension_points import Extension

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from codemode_mcp.rules.trust.items import Finding


def _find(kind: str, definition: Mapping[str, object], *, server: str, others: Collection[str]) -> tuple[Finding, ...]:
    from codemode_mcp.extensions.findings.find import find

    return find(kind, definition, server=server, others=others)


EXTENSION = Extension(find=_find)
