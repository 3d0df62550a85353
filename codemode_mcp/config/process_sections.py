"""The sections `store`, `http` and `plugins`."""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
import re
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from codemode_mcp.base.settings import (
    HttpSettings,
    IssuerSettings,
    PluginSettings,
    StaticToken,
    StoreKind,
    StoreSettings,
    keys_of,
)
from codemode_mcp.config.nodes import (
    ANNOTATION_TESTS,
    Node,
    array_of,
    id_pattern,
    is_resource_url,
    is_safe_url,
    missing_reasons,
    quote,
    read_fields,
    readers_of,
    scope,
    text_that,
)
from upstream_clients.redaction import is_secret_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.secret_values import SecretValues


MIN_KEY_BYTES = 32
"""Minimum number of bytes of an encryption key."""

MAKE_A_KEY = "make one with `openssl rand -base64 32`"

_HEX = re.compile(r"[0-9A-Fa-f]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_MIN_VALUES = 16
"""Minimum number of different bytes in a random key."""

_MIN_STEPS = 8
"""Minimum number of different steps between neighbouring bytes in a random key."""


@dataclass(slots=True)
class StoreSection:
    """The section `store`. Its settings are complete after `SecretValues.run`.

    Attributes:
        settings: None if the configuration does not choose a store.
        secrets: values that must never be shown.
    """

    settings: StoreSettings | None = None
    secrets: list[str] = field(default_factory=list)

    def read(self, node: Node, expander: Expander, secrets: SecretValues) -> None:
        """Read the section."""
        if node.value is None:
            return
        fields = node.fields(keys_of(StoreSettings))
        if not fields:
            return
        if "kind" not in fields:
            node.fail('needs `kind`: "memory", "sqlite" or "postgres"')
            return
        kind = cast("StoreKind | None", fields["kind"].choice(*get_args(StoreKind)))
        if kind is None:
            return
        self.settings = StoreSettings(kind)
        path, url, key = (fields.get(name) for name in ("path", "url", "encryptionKey"))
        if path is not None and path.value is not None:
            self._read_path(path, expander, kind)
        if url is not None and kind != "postgres":
            url.fail(f'is only for "postgres"; "{kind}" has no address')
        elif url is not None:
            secrets.read(replace(url, secret=True), expander, self._take_url)
        elif kind == "postgres":
            node.fail('needs `url` too: "postgresql://user@host/database", or a variable with it: "${VAR}"')
        if key is not None and kind == "memory":
            key.fail('"memory" writes nothing to a disk, so nothing can be encrypted; remove `encryptionKey`')
        elif key is not None:
            key = replace(key, secret=True)
            if key.value == []:
                key.fail("must not be empty; to store without encryption, remove it")
            for item in key.items() if isinstance(key.value, list) else (key,):
                secrets.read(item, expander, self._take_key)

    def _read_path(self, node: Node, expander: Expander, kind: StoreKind) -> None:
        if kind != "sqlite":
            node.fail(f'is only for "sqlite"; "{kind}" has no file')
            return
        text = expander.nonblank(node).strip()
        if text == ":memory:" or text.startswith("file:"):
            node.fail('expected the path of a file; to keep nothing on disk, use "kind": "memory"')
        elif node.valid:
            self.settings = StoreSettings(kind, path=str(expander.path(node)))

    def _take_url(self, node: Node, text: str) -> None:
        # Most configurations have no such address, so most processes do not import this module.
        from codemode_mcp.stores.schema import BadAddress, address

        text = text.strip()
        try:
            address(text)
        except BadAddress as error:
            node.fail(f"is not the address of a database: {error}")
            return
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query))
        passwords = (parts.password, unquote(parts.password or ""), options.get("password"), options.get("sslpassword"))
        self.secrets += (text, *dict.fromkeys(filter(None, passwords)))
        assert self.settings is not None
        self.settings = replace(self.settings, url=text)

    def _take_key(self, node: Node, text: str) -> None:
        text = text.strip()
        key = key_of(text)
        if key is None:
            node.fail(f"expected random bytes in base64 or hexadecimal; {MAKE_A_KEY}")
        elif len(key) < MIN_KEY_BYTES:
            node.fail(f"a key needs at least {MIN_KEY_BYTES} bytes, but this key has {len(key)}; {MAKE_A_KEY}")
        elif not is_random(text, key):
            node.fail(f"this key is not random: it repeats itself, or consists of words; {MAKE_A_KEY}")
        else:
            self.secrets.append(text)
            assert self.settings is not None
            if key in self.settings.encryption_keys:
                node.fail("this key is given more than once; keep one")
            self.settings = replace(self.settings, encryption_keys=(*self.settings.encryption_keys, key))


def key_of(text: str) -> bytes | None:
    """Return the bytes of a key in hexadecimal or in base64, standard or URL-safe; None for another text."""
    if _HEX.fullmatch(text) and len(text) % 2 == 0:
        return bytes.fromhex(text)
    if not _BASE64.fullmatch(text):
        return None
    plain = text.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except binascii.Error:
        return None


def is_random(text: str, key: bytes) -> bool:
    """Return True if a key may be random. Fewer than one random key in a billion is rejected."""
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    if len(set(key)) < _MIN_VALUES or len(steps) < _MIN_STEPS:
        return False
    # Words can be read as base64, but all their letters have the same case.
    return bool(_HEX.fullmatch(text)) or not (text.islower() or text.isupper())


MIN_TOKEN = 16
"""Minimum number of characters of a bearer token. Shorter tokens can be guessed."""

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
        lists = {
            "allowed_hosts": array_of(_HOST),
            "allowed_origins": array_of(_ORIGIN),
            "trusted_proxies": array_of(_network),
        }
        given = node.settings(readers_of(HttpSettings, oauth=lambda node: node, **lists))
        auth = given.pop("auth", None)
        self.settings = HttpSettings(**given)
        if auth is not None and auth.value is not None:
            self._read_auth(replace(auth, secret=True), expander, secrets)

    def _read_auth(self, node: Node, expander: Expander, secrets: SecretValues) -> None:
        fields = node.fields(("tokens", *keys_of(IssuerSettings)))
        oauth = {key: fields[key] for key in keys_of(IssuerSettings) if key in fields}
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
            fields = entry.fields(keys_of(StaticToken))
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


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_DEFAULT_ATTRIBUTE = "register"


def read_plugins(node: Node, expander: Expander) -> tuple[PluginSettings, ...]:
    """Return the plugins in the order of the file, including disabled ones."""
    if node.value is None:
        return ()
    return tuple(_plugin(name, replace(entry, secret=True), expander.fresh()) for name, entry in node.entries().items())


def _plugin(name: str, node: Node, expander: Expander) -> PluginSettings:
    if not _NAME.fullmatch(name):
        node.fail("the name of a plugin must begin with a letter, and have at most 64 letters, digits, `_` and `-`")
    missing: dict[str, dict[str, None]] = {}
    node = replace(node, report=replace(node.report, missing=missing))
    given = node.settings(
        readers_of(
            PluginSettings,
            module=lambda node: None if node.value is None else _module(node),
            config=lambda node: _config(node, expander),
            hooks=array_of(_grant),
            middleware=array_of(_grant),
        )
    )
    if "config" in given:
        given["secrets"] = (*expander.used, *_secrets(given["config"]))
    return PluginSettings(name, **given, unusable=missing_reasons(missing))


def _config(node: Node, expander: Expander) -> dict[str, Any]:
    if not isinstance(node.value, dict):
        node.fail_type("an object with settings of the plugin")
        return {}
    return expander.value(node)  # type: ignore[no-any-return]


def _secrets(value: Any, *, is_secret: bool = False) -> Iterator[str]:
    """Yield the texts under names such as `password`, which are secret."""
    match value:
        case str() if is_secret:
            yield value
        case dict():
            for key, item in value.items():
                yield from _secrets(item, is_secret=is_secret_name(key))
        case list():
            for item in value:
                yield from _secrets(item, is_secret=is_secret)


def _module(node: Node) -> str | None:
    """Return `module:attribute` or `path/file.py:attribute`, with `register` as the default attribute."""
    text = node.nonblank().strip()
    if not node.valid:
        return None
    module, colon, attribute = text.rpartition(":")
    if text.endswith(".py") or not colon:
        module, attribute = text, _DEFAULT_ATTRIBUTE
    if not _MODULE.fullmatch(attribute) or not (module.endswith(".py") or _MODULE.fullmatch(module)):
        node.fail(f'{quote(text)} is neither "package.module:function" nor "folder/file.py:function"')
    return f"{module}:{attribute}"


def _grant(node: Node) -> str:
    pattern = id_pattern(node)
    if pattern in ANNOTATION_TESTS:
        node.fail(f"{quote(pattern)} is an annotation test; grants are ids or globs of ids")
    return pattern
