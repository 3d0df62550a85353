"""The browser of these tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from playwright.async_api import Browser

from tests.extensions.page.browsers import BROWSER_ARGUMENTS, chromium_path


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    """Return the backend, in module scope: the tests of a module share a browser."""
    return "asyncio"


@pytest.fixture(scope="module")
async def browser(anyio_backend: str) -> AsyncIterator[Browser]:
    """Return the Chromium of the system; skip the test where there is none."""
    path = chromium_path()
    if path is None:
        pytest.skip("Chromium is not installed; as root on Debian, python3 tests/run.py installs it")
    api = pytest.importorskip("playwright.async_api")
    async with api.async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=path, args=BROWSER_ARGUMENTS)
        try:
            yield launched
        finally:
            await launched.close()
