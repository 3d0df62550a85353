"""The credentials of an HTTP API, as the entry in the configuration has them. Pure.

`openapi.credentials` adds them to requests.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal, TypeAlias

KeyPlace = Literal["header", "query", "cookie"]


@dataclass(frozen=True, slots=True, repr=False)
class BearerToken:
    """A fixed token in the `Authorization` header."""

    token: str = ""

    @property
    def named_secrets(self) -> dict[str, str]:
        """The values that are never shown, each with the name of its place in the entry."""
        return {self.token: "auth_token"}


@dataclass(frozen=True, slots=True, repr=False)
class BasicLogin:
    """A user name and a password in the `Authorization` header (RFC 7617)."""

    username: str = ""
    password: str = ""

    @property
    def header(self) -> str:
        """The value of the header."""
        return f"Basic {base64.b64encode(f'{self.username}:{self.password}'.encode()).decode()}"

    @property
    def named_secrets(self) -> dict[str, str]:
        """The values that are never shown, each with the name of its place in the entry."""
        found = {self.password: "auth_password", self.header.partition(" ")[2]: "auth_basic"}
        # Some services take an API key as the user name.
        return found if self.password else {**found, self.username: "auth_username"}


@dataclass(frozen=True, slots=True, repr=False)
class ApiKey:
    """A key in a header, in the query or in a cookie.

    Attributes:
        name: the name of the header, the parameter or the cookie.
    """

    place: KeyPlace
    name: str
    value: str = ""

    @property
    def named_secrets(self) -> dict[str, str]:
        """The values that are never shown, each with the name of its place in the entry."""
        return {self.value: "auth_value"}


@dataclass(frozen=True, slots=True, repr=False)
class ClientCredentials:
    """A client that gets tokens for itself, without a person (RFC 6749, section 4.4).

    Attributes:
        token_url: the address of the token endpoint. A person has written it, so it may be on this machine or private.
        scopes: the scopes to request; empty for those that the authorization server chooses.
        audience: the API for which tokens are requested, for authorization servers that require it.
    """

    token_url: str
    client_id: str
    client_secret: str = ""
    scopes: tuple[str, ...] = ()
    audience: str | None = None

    @property
    def named_secrets(self) -> dict[str, str]:
        """The values that are never shown, each with the name of its place in the entry."""
        return {self.client_secret: "client_secret"}


CredentialSettings: TypeAlias = BearerToken | BasicLogin | ApiKey | ClientCredentials
