"""Credentials that an API repeats in its answers: they are replaced, so that no program gets them. Pure.

The bytes of an answer are searched, before anything reads them. Short values are not replaced: they would match other
text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from upstream_clients.redaction import HIDDEN, encodings

if TYPE_CHECKING:
    from upstream_clients.openapi.api import ApiResponse
    from upstream_clients.spec import UpstreamSpec

_MIN_LENGTH: Final = 8

_CREDENTIAL_HEADER: Final = re.compile(r"authorization|cookie|key|token|secret", re.IGNORECASE)


def is_credential_header(name: str) -> bool:
    """Return True if the value of a configured header is probably a credential, by its name."""
    return _CREDENTIAL_HEADER.search(name) is not None


def sent_secrets(spec: UpstreamSpec) -> tuple[str, ...]:
    """Return the secret values that requests to an API may have: credentials, tokens of a login, and headers."""
    found: dict[str, None] = {}
    if spec.credentials is not None:
        found.update(dict.fromkeys(spec.credentials.named_secrets))
    for name, value in spec.headers.items():
        if is_credential_header(name):
            found.update(dict.fromkeys((value, *value.split()[1:])))
    found.update(dict.fromkeys(spec.learned))
    return tuple(value for value in found if len(value) >= _MIN_LENGTH)


def without_secrets(response: ApiResponse, secrets: tuple[str, ...]) -> ApiResponse:
    """Return an answer with `***` for each of the secrets: in its reason, its body and the values of its headers."""
    if not secrets:
        return response
    forms, body, reason = _forms(secrets), response.body, response.reason
    head = "\n".join([reason, *response.headers.values()])
    found = [form for form in forms if form.data in body or form.text in head]
    if not found:
        return response
    values = dict(response.headers)
    for form in found:
        body = body.replace(form.data, form.replacement.encode())
        reason = reason.replace(form.text, form.replacement)
        values = {name: value.replace(form.text, form.replacement) for name, value in values.items()}
    return replace(response, body=body, reason=reason, headers=values)


class _Form(NamedTuple):
    """One form of a secret, and its replacement."""

    text: str
    data: bytes
    replacement: str


@lru_cache(maxsize=64)
def _forms(secrets: tuple[str, ...]) -> tuple[_Form, ...]:
    """Return each form in which a secret is replaced, the longest first."""
    forms = sorted({form for secret in secrets for form in encodings(secret)}, key=len, reverse=True)
    # In a JSON number, only digits keep the text valid.
    return tuple(
        _Form(form, form.encode("utf-8", "surrogatepass"), "9" * len(form) if form.isdecimal() else HIDDEN)
        for form in forms
    )
