"""The section `http`: who is let in over HTTP, and how much of it."""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from codemode_mcp.config.expand import SECRET_SOURCES, Expander, secret_source
from codemode_mcp.config.nodes import Node, describe, quote
from codemode_mcp.settings import HTTP_CLAMPS, HttpSettings, IssuerSettings, StaticToken

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from codemode_mcp.config.expand import Reading

MIN_TOKEN = 16
"""Characters of a bearer token; shorter ones are guessed."""

_TOKEN_KEYS = ("tokens",)
_OAUTH_KEYS = ("issuer", "audience", "resource", "scopes", "jwksUrl", "groupsClaim")
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(:[0-9]{1,5})?")


@dataclass(slots=True)
class HttpSection:
    """The section so far; `settings` is whole once `run_programs` has run."""

    settings: HttpSettings = field(default_factory=HttpSettings)
    _sources: list[tuple[StaticToken, Node, Callable[[], str | None]]] = field(default_factory=list)

    def run_programs(self) -> None:
        """Fill in the tokens that programs print and the keyring has."""
        for token, node, source in self._sources:
            value = source()
            if value is not None:
                self._add(token, node, value)

    def read(self, node: Node, *, environ: Mapping[str, str], folder: Path, reading: Reading) -> None:
        """Read the section; problems go into the node's report."""
        if node.value is None:
            return
        fields = node.fields(
            ("auth", "allowUnauthenticated", "allowedHosts", "allowedOrigins", "trustedProxies", *HTTP_CLAMPS)
        )
        given: dict[str, Any] = {}
        for key, clamp in HTTP_CLAMPS.items():
            if key in fields and (value := fields[key].integer()) is not None:
                given[_snake(key)] = inside = min(max(value, clamp.lowest), clamp.highest)
                if inside != value:
                    fields[key].note(f"{describe(value)} is outside {clamp.lowest} - {clamp.highest}; {inside} is used")
        if "allowUnauthenticated" in fields:
            given["allow_unauthenticated"] = fields["allowUnauthenticated"].flag()
        if "allowedHosts" in fields:
            given["allowed_hosts"] = tuple(map(_host, fields["allowedHosts"].items()))
        if "allowedOrigins" in fields:
            given["allowed_origins"] = tuple(map(_origin, fields["allowedOrigins"].items()))
        if "trustedProxies" in fields:
            given["trusted_proxies"] = tuple(map(_network, fields["trustedProxies"].items()))
        self.settings = HttpSettings(**given)
        if "auth" in fields and fields["auth"].value is not None:
            self._read_auth(replace(fields["auth"], secret=True), Expander(environ, folder, reading=reading))

    def _read_auth(self, node: Node, expander: Expander) -> None:
        fields = node.fields((*_TOKEN_KEYS, *_OAUTH_KEYS))
        oauth = {key: fields[key] for key in _OAUTH_KEYS if key in fields}
        if "tokens" in fields and oauth:
            node.fail(f"has `tokens` and `{next(iter(oauth))}`; keep either the tokens or the authorization server")
        elif "tokens" in fields:
            self._read_tokens(fields["tokens"], expander)
        elif oauth:
            self._read_oauth(node, oauth, expander)

    def _read_tokens(self, node: Node, expander: Expander) -> None:
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
            name, token = fields["name"].filled(), fields["token"]
            if name in names:
                fields["name"].fail("another token has this name; one name is one principal")
            names.add(name)
            # Groups are no secret; `auth` is, as a whole.
            groups = replace(fields["groups"], secret=False).items() if "groups" in fields else ()
            known = StaticToken(name, b"", tuple(dict.fromkeys(group.filled() for group in groups)))
            if isinstance(token.value, str):
                text = expander.text(token)
                if token.sound:
                    self._add(known, token, text)
            elif isinstance(token.value, dict):
                source = secret_source(token, expander)
                if source is not None:
                    self._sources.append((known, token, source))
            else:
                token.fail_type(SECRET_SOURCES)

    def _add(self, known: StaticToken, node: Node, token: str) -> None:
        if len(token) < MIN_TOKEN:
            node.fail(f"a token has at least {MIN_TOKEN} characters; make one with `openssl rand -hex 32`")
        elif not _TOKEN.fullmatch(token):
            node.fail("a token has letters, digits and -._~+/ only, with = at its end")
        else:
            made = replace(known, digest=hashlib.sha256(token.encode()).digest())
            if any(other.digest == made.digest for other in self.settings.tokens):
                node.fail("another name has the same token; each needs one of its own")
            self.settings = replace(self.settings, tokens=(*self.settings.tokens, made))

    def _read_oauth(self, node: Node, fields: Mapping[str, Node], expander: Expander) -> None:
        for key in ("issuer", "audience"):
            if key not in fields:
                node.fail(f"needs `{key}` too")
        texts = {
            key: expander.text(fields[key]) for key in ("issuer", "audience", "resource", "jwksUrl") if key in fields
        }
        if not node.sound:
            return
        for key in ("issuer", "jwksUrl"):
            if key in texts and fields[key].sound and not _is_safe(texts[key]):
                fields[key].fail("expected a URL with https; http is for this very machine alone")
        if fields["audience"].sound and not texts["audience"].strip():
            fields["audience"].fail("must not be empty")
        resource = texts.get("resource", texts["audience"])
        where = fields.get("resource", fields["audience"])
        if where.sound and not _is_url(resource):
            where.fail(
                "expected the URL of this server, as clients have it"
                if "resource" in texts
                else "is no URL; then `resource` has to be the URL of this server, as clients have it"
            )
        scopes = tuple(item.text() for item in fields["scopes"].items()) if "scopes" in fields else ()
        for scope in scopes:
            if not _SCOPE.fullmatch(scope) and fields["scopes"].sound:
                fields["scopes"].fail(f"{quote(scope)} is no scope; each is one word")
        issuer = IssuerSettings(texts["issuer"], texts["audience"], resource, scopes, texts.get("jwksUrl"))
        if "groupsClaim" in fields:
            issuer = replace(issuer, groups_claim=fields["groupsClaim"].filled())
        self.settings = replace(self.settings, oauth=issuer)


def _host(node: Node) -> str:
    text = node.text()
    if node.sound and not _HOST.fullmatch(text):
        node.fail('expected "host" or "host:port", without wildcards, a scheme or a path')
    return text


def _network(node: Node) -> str:
    text = node.text()
    try:
        return str(ipaddress.ip_network(text))
    except ValueError:
        if node.sound:
            node.fail('expected an address or a network, like "10.0.0.7" or "10.0.0.0/8"')
        return text


def _origin(node: Node) -> str:
    text = node.text()
    if node.sound:
        scheme, _, rest = text.partition("://")
        if scheme not in ("http", "https") or not _HOST.fullmatch(rest):
            node.fail('expected an origin like "https://app.example", without wildcards or a path')
    return text


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and parts.port != 0
            and not parts.fragment
            and not parts.query
            and text.isascii()
            and text.isprintable()
            and not re.search(r'[\s"\\]', text)
        )
    except ValueError:
        return False


def _is_safe(text: str) -> bool:
    parts = urlsplit(text) if _is_url(text) else None
    return parts is not None and (parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1", "::1"))


def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda match: "_" + match[0].lower(), key)
