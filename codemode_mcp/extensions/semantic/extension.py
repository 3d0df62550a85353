"""The parts that this extension adds to the core."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from codemode_mcp.extension_points import Extension

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from codemode_mcp.cli.check import Check
    from codemode_mcp.config import Config
    from codemode_mcp.extension_points import SentenceModel
    from codemode_mcp.server.services import App
    from upstream_clients.tools import UpstreamView


def _open(folder: Path) -> SentenceModel | None:
    if find_spec("onnxruntime") is None:
        return None  # without importing `model`, which is large
    from codemode_mcp.extensions.semantic.model import Meaning, available

    return Meaning(folder) if available() else None


async def _check(_: App, __: Config) -> Iterable[Check]:
    import anyio.to_thread

    from codemode_mcp.extensions.semantic.model import check_search

    return await anyio.to_thread.run_sync(lambda: list(check_search()), abandon_on_cancel=True)


async def _prepare(config: Config, report: Callable[[Check], None], views: Sequence[UpstreamView]) -> None:
    from codemode_mcp.extensions.semantic.model import prepare

    await prepare(config, report, views)


EXTENSION = Extension(open_model=_open, checks={"search": _check}, prepare_tools=_prepare)
