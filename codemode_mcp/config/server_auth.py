"""The key `auth` of a server entry: a login with OAuth, or the credentials of an HTTP API."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from codemode_mcp.config.nodes import Node, array_of, is_http_url, is_metadata_url, one_of, read_fields, scope
from upstream_clients.spec import ApiKey, BasicLogin, BearerToken, ClientCredentials, KeyPlace, OAuthSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.secret_values import SecretValues
    from upstream_clients.spec import CredentialSettings

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of HTTP: the name of a header or of a cookie."""

NOT_IN_A_HEADER: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

_ONE_WORD: Final = re.compile(r"[\x21-\x7e]+")
_COOKIE_VALUE: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+")
"""Characters of RFC 6265, section 4.1.1."""

_OAUTH_KEYS: Final = ("type", "clientId", "clientSecret", "clientMetadataUrl", "scopes", "redirectPort")
AUTH_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "bearer": ("type", "token"),
    "basic": ("type", "username", "password"),
    "apiKey": ("type", "in", "name", "value"),
    "oauth": (*_OAUTH_KEYS, "authorizationUrl", "tokenUrl"),
    "clientCredentials": ("type", "tokenUrl", "clientId", "clientSecret", "scopes", "audience"),
}
"""Kinds of `auth` for an HTTP API, with their keys."""

_PLACES: Final[tuple[KeyPlace, ...]] = ("header", "query", "cookie")


@dataclass(slots=True)
class ServerAuth:
    """The login and the credentials of one server; at most one of them."""

    oauth: OAuthSettings | None = None
    credentials: CredentialSettings | None = None

    @property
    def uses_authorization(self) -> bool:
        return self.oauth is not None or (self.credentials is not None and not isinstance(self.credentials, ApiKey))


@dataclass(frozen=True, slots=True)
class AuthReader:
    """The reader of `auth`.

    Attributes:
        is_api: True for the entry of an HTTP API, which may have other credentials than a login.
        headers: the names of the configured headers, in lower case.
        secrets: reads secret values.
        set_value: called by `secrets` with each value that is known only after the spec was made, and the name of the
            field that has it.
    """

    node: Node
    is_api: bool
    headers: frozenset[str]
    expander: Expander
    secrets: SecretValues
    set_value: Callable[[str, str], None]

    def read(self) -> ServerAuth:
        node, found = self.node, ServerAuth()
        if isinstance(node.value, dict):
            found = self._object()
        elif node.value == "oauth":
            found.oauth = OAuthSettings()
        elif self.is_api:
            node.fail('expected "oauth" or an object such as {"type": "bearer", "token": "${TOKEN}"}')
        else:
            node.fail('expected "oauth" or {"type": "oauth", ...}')
        if found.uses_authorization and "authorization" in self.headers:
            node.fail("contradicts the Authorization header in `headers`; keep one of them")
        return found

    def _object(self) -> ServerAuth:
        node = self.node
        kind = node.value.get("type")
        if not self.is_api:
            if isinstance(kind, str) and kind in AUTH_KEYS and kind != "oauth":
                kind_node = node.entries()["type"]
                kind_node.fail(
                    'expected "oauth", got a string; the other kinds are only for a server with `openapi`, and the '
                    "token of an MCP server belongs in `headers`"
                )
                return ServerAuth()
            return ServerAuth(oauth=self._oauth(_OAUTH_KEYS))
        if not isinstance(kind, str) or kind not in AUTH_KEYS:
            if "type" not in node.value:
                node.fail(f"needs `type`: {', '.join(AUTH_KEYS)}")
            else:
                node.entries()["type"].choice(*AUTH_KEYS)
            return ServerAuth()
        if kind == "oauth":
            return ServerAuth(oauth=self._oauth(AUTH_KEYS[kind]))
        fields = node.fields(AUTH_KEYS[kind])
        match kind:
            case "bearer":
                return ServerAuth(credentials=self._bearer(fields))
            case "basic":
                return ServerAuth(credentials=self._basic(fields))
            case "apiKey":
                return ServerAuth(credentials=self._api_key(fields))
            case _:
                return ServerAuth(credentials=self._client_credentials(fields))

    def _bearer(self, fields: Mapping[str, Node]) -> BearerToken:
        self._require(fields, ("token",))
        return BearerToken(
            **self._secret(
                fields,
                "token",
                "token",
                _ONE_WORD.fullmatch,
                "the token has a space or another character that is not allowed in headers; write it without `Bearer`",
            )
        )

    def _basic(self, fields: Mapping[str, Node]) -> BasicLogin:
        self._require(fields, ("username", "password"))
        user = self._secret(
            fields,
            "username",
            "username",
            lambda text: ":" not in text and not NOT_IN_A_HEADER.search(text),
            "the user name has a colon or a control character, which basic authentication does not allow",
        )
        password = self._secret(
            fields,
            "password",
            "password",
            lambda text: not NOT_IN_A_HEADER.search(text),
            "the password has a control character, such as a line break",
        )
        return BasicLogin(**user, **password)

    def _api_key(self, fields: Mapping[str, Node]) -> ApiKey:
        self._require(fields, ("in", "name", "value"))
        place = fields["in"].choice(*_PLACES) if "in" in fields else None
        name = self.expander.nonblank(fields["name"]) if "name" in fields else ""
        if place != "query" and name and not HEADER_NAME.fullmatch(name):
            fields["name"].refuse(f"the name of a {place} has a character that is not allowed, such as a space")
        if place == "header" and name.lower() in self.headers:
            self.node.fail("contradicts the header of the same name in `headers`; keep one of them")
        allowed: dict[str | None, tuple[Callable[[str], object], str]] = {
            "header": (_is_header_value, "the value has a character that is not allowed in headers"),
            "cookie": (
                _COOKIE_VALUE.fullmatch,
                "the value has a character that is not allowed in cookies, such as `;`",
            ),
        }
        check, problem = allowed.get(place, (bool, "must not be empty"))
        value = self._secret(fields, "value", "value", check, problem)
        return ApiKey(place or "header", name, **value)

    def _client_credentials(self, fields: Mapping[str, Node]) -> ClientCredentials:
        self._require(fields, ("tokenUrl", "clientId", "clientSecret"))
        given = read_fields(
            fields,
            {
                "tokenUrl": self._endpoint,
                "clientId": self.expander.nonblank,
                "scopes": array_of(scope),
                "audience": self.expander.nonblank,
            },
        )
        given |= self._secret(fields, "clientSecret", "client_secret", bool, "must not be empty")
        return ClientCredentials(**{"token_url": "", "client_id": "", **given})

    def _oauth(self, keys: tuple[str, ...]) -> OAuthSettings:
        node = self.node
        fields = node.fields(keys)
        if "type" not in fields:
            node.fail('needs `type`: "oauth"')
        given: dict[str, Any] = read_fields(
            fields,
            {
                "type": one_of("oauth"),
                "clientId": self.expander.nonblank,
                "clientMetadataUrl": self._metadata_url,
                "scopes": array_of(scope),
                "redirectPort": lambda node: node.integer("a port from 1 to 65535", lowest=1, highest=65535),
                "authorizationUrl": self._endpoint,
                "tokenUrl": self._endpoint,
            },
        )
        given.pop("type", None)
        if "clientSecret" in fields:
            if "clientId" not in fields:
                fields["clientSecret"].fail("needs `clientId` too")
            given |= self._secret(fields, "clientSecret", "client_secret")
        if "clientId" in fields and "clientMetadataUrl" in fields:
            node.fail("has `clientId` and `clientMetadataUrl`; keep one")
        if ("authorizationUrl" in fields) != ("tokenUrl" in fields):
            node.fail("needs both `authorizationUrl` and `tokenUrl`, or none of them")
        elif "tokenUrl" in fields and "clientId" not in fields:
            node.fail("needs `clientId` too: without metadata of the server, no client can be registered")
        return OAuthSettings(**given)

    def _require(self, fields: Mapping[str, Node], keys: tuple[str, ...]) -> None:
        if missing := [f"`{key}`" for key in keys if key not in fields]:
            self.node.fail(f"needs {' and '.join(missing)}")

    def _secret(
        self,
        fields: Mapping[str, Node],
        key: str,
        name: str,
        is_valid: Callable[[str], object] = lambda _: True,
        problem: str = "",
    ) -> dict[str, str]:
        """Return a value by the name of its field; nothing if a program or the keyring has it.

        Args:
            problem: the message for a value that is not valid. It must not quote the value.
        """
        values: dict[str, str] = {}
        if key not in fields:
            return values
        is_literal = isinstance(fields[key].value, str)

        def take(node: Node, value: str) -> None:
            if not is_valid(value):
                node.refuse(problem)
            elif is_literal:
                values[name] = value
            else:
                self.set_value(name, value)

        self.secrets.read(fields[key], self.expander, take)
        return values

    def _metadata_url(self, node: Node) -> str:
        url = self.expander.text(node)
        if node.valid and not is_metadata_url(url):
            node.refuse("expected a URL like https://host/path")
        return url

    def _endpoint(self, node: Node) -> str:
        url = self.expander.text(node)
        if node.valid and not is_endpoint(url):
            node.refuse(
                "expected a URL like https://host/path without a fragment; http is allowed for this machine and for "
                "private addresses"
            )
        return url


def is_endpoint(url: str) -> bool:
    """Return True for a URL that may get a client's secret: `https`, or an address of this machine or network."""
    if not is_http_url(url) or not url.isascii():
        return False
    parts = urlsplit(url)
    if parts.fragment or parts.username or parts.password:
        return False
    if parts.scheme == "https":
        return True
    from upstream_clients.fetch import may_be_public  # few entries have such an endpoint

    return not may_be_public(parts.hostname or "")


def _is_header_value(text: str) -> bool:
    return text.isascii() and bool(text.strip()) and not NOT_IN_A_HEADER.search(text)
