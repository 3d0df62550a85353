"""The section `store`: the store of suspended programs, and its encryption keys."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from codemode_mcp.settings import StoreSettings

if TYPE_CHECKING:
    from codemode_mcp.config.expand import Expander
    from codemode_mcp.config.nodes import Node
    from codemode_mcp.config.secret_values import SecretValues
    from codemode_mcp.settings import StoreKind

MIN_KEY_BYTES = 32
"""Minimum number of bytes of an encryption key."""

MAKE_A_KEY = "make one with `openssl rand -base64 32`"

_KINDS = ("memory", "sqlite", "postgres")
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
        fields = node.fields(("kind", "path", "url", "encryptionKey"))
        if not fields:
            return
        if "kind" not in fields:
            node.fail('needs `kind`: "memory", "sqlite" or "postgres"')
            return
        kind = cast("StoreKind | None", fields["kind"].choice(*_KINDS))
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
        from codemode_mcp.stores.dialect import BadAddress, address

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
