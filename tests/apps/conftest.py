"""The browser and the host of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Browser

from tests.apps.hosts import Host, bundled_host, served_pages, showing_host
from tests.extensions.page.conftest import anyio_backend, browser

__all__ = ["anyio_backend", "browser"]


@pytest.fixture(scope="module")
def host_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the port of the pages of the host."""
    with served_pages(bundled_host(tmp_path_factory.mktemp("host"))) as port:
        yield port


@pytest.fixture
async def host(browser: Browser, host_port: int) -> AsyncIterator[Host]:
    """Return a host; in the end, no script must have failed."""
    async with showing_host(browser, host_port) as opened:
        yield opened
        assert opened.problems == []
