"""A model endpoint over HTTP. Failures that pass are tried again; keys are in no message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx2

from benchmarks.agents.wire_forms import Reply, WireForm

RETRIES = 6
PASSES = frozenset({408, 409, 429, 500, 502, 503, 504, 529})
"""Codes of failures that may pass."""
LONGEST_PAUSE = 60.0
SECONDS = 600.0
"""Limit of one answer of a model."""


class EndpointError(Exception):
    """An endpoint that has not answered, or not in a form that can be read. It is no failure of the model."""


class Endpoint:
    """One endpoint.

    Attributes:
        retries: requests that were made again so far.
        paused: seconds between a failure and the next attempt, all together.
    """

    def __init__(
        self,
        base: str,
        form: WireForm,
        key: str,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._url = base.rstrip("/") + form.path
        self._form = form
        self._key = key
        self._sleep = sleep
        self._client = httpx2.AsyncClient(timeout=SECONDS, headers=form.headers(key))
        self._has_answered = False
        self.retries = 0
        self.paused = 0.0

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, body: dict[str, Any]) -> Reply:
        """Return the answer to a request.

        An address that cannot be reached at the beginning is probably wrong, and is not tried again.

        Raises:
            EndpointError: there is none after all attempts.
        """
        problem = ""
        for attempt in range(RETRIES + 1):
            if attempt:
                self.retries += 1
            pause = min(LONGEST_PAUSE, 2.0**attempt)
            try:
                response = await self._client.post(self._url, json=body)
            except httpx2.HTTPError as error:
                if isinstance(error, httpx2.ConnectError) and not self._has_answered:
                    raise EndpointError(f"{self._url} cannot be reached ({error}); check --base") from error
                problem = f"{type(error).__name__}: {error}"
                await self._pause(pause)
                continue
            self._has_answered = True
            if response.status_code == 200:
                return self._read(response)
            problem = f"{response.status_code}: {response.text[:500]}"
            if response.status_code not in PASSES:
                break
            await self._pause(_wanted(response.headers.get("retry-after"), pause))
        raise EndpointError(self.masked(f"{self._url} has not answered; the last failure was {problem}"))

    async def _pause(self, seconds: float) -> None:
        self.paused += seconds
        await self._sleep(seconds)

    def _read(self, response: httpx2.Response) -> Reply:
        try:
            return self._form.read(response.json())
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            problem = f"{self._url} has answered in another form ({type(error).__name__}: {error}): "
            raise EndpointError(self.masked(problem + response.text[:500])) from error

    def masked(self, text: str) -> str:
        """Return a text without the key."""
        return text.replace(self._key, "[key]") if self._key else text


def _wanted(retry_after: str | None, otherwise: float) -> float:
    try:
        return min(LONGEST_PAUSE, max(0.0, float(retry_after or "")))
    except ValueError:
        return otherwise
