"""The section `http`: authentication and limits of `serve --transport http`."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from codemode_mcp.config.nodes import Node, array_of, clamps, read_fields, text_that
from codemode_mcp.config.oauth_fields import is_resource_url, is_safe_url, scope
from codemode_mcp.settings import HTTP_CLAMPS, HttpSettings, IssuerSettings, StaticToken

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.secret_values import SecretValues

MIN_TOKEN = 16
"""Minimum number of characters of a bearer token. Shorter tokens can be guessed."""

_OAUTH_KEYS = ("issuer", "audience", "resource", "scopes", "jwksUrl", "groupsClaim")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_AUTHORITY = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?"
_HOST = text_that(
    re.compile(_AUTHORITY).fullmatch, 'expected "host" or "host:port", without wildcards, a scheme or a path'
)
_ORIGIN = text_that(
    re.compile(f"https?://{_AUTHORITY}").fullmatch,
    'expected an origin such as "https://app.example", without wildcards or a path',
)


@dataclass(slots=True)
class HttpSection:
    """The section `http`. The tokens in its settings are complete after `SecretValues.run`."""

    settings: HttpSettings = field(default_factory=HttpSettings)

    def read(self, node: Node, expander: Expander, secrets: SecretValues) -> None:
        """Read the section."""
        if node.value is None:
            return
        given = node.settings(
            {
                "auth": lambda node: node,
                "allowUnauthenticated": Node.flag,
                "allowedHosts": array_of(_HOST),
                "allowedOrigins": array_of(_ORIGIN),
                "trustedProxies": array_of(_network),
                **clamps(HTTP_CLAMPS),
            }
        )
        auth = given.pop("auth", None)
        self.settings = HttpSettings(**given)
        if auth is not None and auth.value is not None:
            self._read_auth(replace(auth, secret=True), expander, secrets)

    def _read_auth(self, node: Node, expander: Expander, secrets: SecretValues) -> None:
        fields = node.fields(("tokens", *_OAUTH_KEYS))
        oauth = {key: fields[key] for key in _OAUTH_KEYS if key in fields}
        if "tokens" in fields and oauth:
            node.fail(f"has `tokens` and `{next(iter(oauth))}`; keep either the tokens or the authorization server")
        elif "tokens" in fields:
            self._read_tokens(fields["tokens"], expander, secrets)
        elif oauth:
            self._read_oauth(node, oauth, expander)

    def _read_tokens(self, node: Node, expander: Expander, secrets: SecretValues) -> None:
        if not isinstance(node.value, list) or not node.value:
            node.fail_type('a non-empty array of {"name": ..., "token": ...}')
            return
        names: set[str] = set()
        for entry in node.items():
            fields = entry.fields(("name", "token", "groups"))
            missing = [key for key in ("name", "token") if key not in fields]
            if missing:
                if isinstance(entry.value, dict):
                    entry.fail(f"needs `{missing[0]}`")
                continue
            name = fields["name"].nonblank()
            if name in names:
                fields["name"].fail("another token has this name; give each token its own name")
            names.add(name)
            # Messages quote nothing of `auth` except groups, which are not secret.
            groups = array_of(Node.nonblank)(replace(fields["groups"], secret=False)) if "groups" in fields else ()
            secrets.read(
                fields["token"], expander, partial(self._add, StaticToken(name, b"", tuple(dict.fromkeys(groups))))
            )

    def _add(self, principal: StaticToken, node: Node, token: str) -> None:
        if len(token) < MIN_TOKEN:
            node.fail(f"a token needs at least {MIN_TOKEN} characters; make one with `openssl rand -hex 32`")
        elif not _TOKEN.fullmatch(token):
            node.fail("a token may contain only letters, digits and -._~+/, and may end with =")
        else:
            digest = hashlib.sha256(token.encode()).digest()
            if any(other.digest == digest for other in self.settings.tokens):
                node.fail("another name has the same token; give each name its own token")
            tokens = (*self.settings.tokens, replace(principal, digest=digest))
            self.settings = replace(self.settings, tokens=tokens)

    def _read_oauth(self, node: Node, fields: Mapping[str, Node], expander: Expander) -> None:
        for key in ("issuer", "audience"):
            if key not in fields:
                node.fail(f"needs `{key}` too")
        given = read_fields(
            fields,
            {
                **dict.fromkeys(("issuer", "resource", "jwksUrl"), expander.text),
                "audience": expander.nonblank,
                "scopes": array_of(scope),
                "groupsClaim": Node.nonblank,
            },
        )
        if not node.valid:
            return
        for key, field_name in (("issuer", "issuer"), ("jwksUrl", "jwks_url")):
            if key in fields and fields[key].valid and not is_safe_url(given[field_name]):
                fields[key].fail("expected a URL with https; http is allowed for localhost only")
        resource = fields.get("resource", fields["audience"])
        given.setdefault("resource", given["audience"])
        if resource.valid and not is_resource_url(given["resource"]):
            resource.fail(
                "expected the URL that clients use for this server"
                if "resource" in fields
                else "is not a URL; add `resource`, the URL that clients use for this server"
            )
        self.settings = replace(self.settings, oauth=IssuerSettings(**given))


def _network(node: Node) -> str:
    text = node.text()
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        if node.valid:
            node.fail('expected an address or a network such as "10.0.0.7" or "10.0.0.0/8"')
        return text
