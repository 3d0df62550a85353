"""The parts that this extension adds to the core."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from codemode_mcp.extension_points import Command, Extension, Page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.routing import Route

    from codemode_mcp.extension_points import Site


def _routes(site: Site) -> Sequence[Route]:
    from codemode_mcp.extensions.savings.exposure import routes

    return routes(site)


EXTENSION = Extension(
    commands={"savings": Command(f"{__package__}.command", 260)},
    pages=(Page("/savings", "Savings", _routes, Path(__file__).parent / "templates"),),
)
