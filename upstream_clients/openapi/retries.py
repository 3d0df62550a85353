"""The rules for repeating a request to an API. Pure: time is an argument.

A request is repeated at most `MAX_RETRIES` times, and only if that cannot act twice: nothing was sent, or the operation
is repeatable. The server may say how long to wait (RFC 9110, 10.2.3).
"""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final

MAX_RETRIES: Final = 2

RETRIED_STATUSES: Final = frozenset(
    (
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    )
)
"""Statuses of answers that a later request may not get."""

FIRST_PAUSE: Final = 0.5
"""Seconds before the first retry, without a word of the server. The pause doubles each time."""

MAX_PAUSE: Final = 60.0
"""Longest pause in seconds. A server that asks for more gets no retry, and the program gets its answer."""


def pause_before_retry(retries: int, retry_after: str | None, now: float) -> float | None:
    """Return the seconds to wait before a request is repeated; None if it must not be repeated.

    Args:
        retries: the number of retries so far.
        retry_after: the header `Retry-After` of the answer.
        now: seconds since the epoch.
    """
    if retries >= MAX_RETRIES:
        return None
    wanted = None if retry_after is None else _seconds(retry_after.strip(), now)
    pause = FIRST_PAUSE * 2**retries if wanted is None else wanted
    return pause if pause <= MAX_PAUSE else None


def _seconds(retry_after: str, now: float) -> float | None:
    """Return the seconds that a server asks for; None if the header is malformed."""
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after) if len(retry_after) < 10 else math.inf
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
