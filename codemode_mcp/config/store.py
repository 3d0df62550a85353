"""The section `store`: where suspended programs are, and what encrypts them."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from codemode_mcp.config.expand import SECRET_SOURCES, Expander, secret_source
from codemode_mcp.settings import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from codemode_mcp.config.expand import Reading
    from codemode_mcp.config.nodes import Node
    from codemode_mcp.settings import StoreKind

KEY_BYTES = 32
"""Least bytes of an encryption key."""

MAKE_A_KEY = "make one with `openssl rand -base64 32`"

_KINDS = ("memory", "sqlite", "postgres")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")
_LEAST_VALUES = 16
_LEAST_STEPS = 8


@dataclass(slots=True)
class StoreSection:
    """The section so far; `settings` is whole once `run_programs` has run.

    Attributes:
        settings: None: it says nothing.
        secrets: what must never be shown.
    """

    settings: StoreSettings | None = None
    secrets: list[str] = field(default_factory=list)
    _sources: list[tuple[Node, Callable[[], str | None], Callable[[Node, str], None]]] = field(default_factory=list)

    def run_programs(self) -> None:
        """Fill in what programs print and the keyring has."""
        for node, source, take in self._sources:
            value = source()
            if value is not None:
                take(node, value)

    def read(self, node: Node, *, environ: Mapping[str, str], folder: Path, reading: Reading) -> None:
        """Read the section; problems go into the node's report."""
        if node.value is None:
            return
        fields = node.fields(("kind", "path", "url", "encryptionKey"))
        if not fields:
            return
        expander = Expander(environ, folder, reading=reading)
        if "kind" not in fields:
            node.fail('needs `kind`: "memory", "sqlite" or "postgres"')
            return
        kind = cast("StoreKind | None", fields["kind"].choice(*_KINDS))
        if kind is None:
            return
        self.settings = StoreSettings(kind)
        self._read_path(fields, expander)
        url, key = fields.get("url"), fields.get("encryptionKey")
        if url is not None and kind != "postgres":
            url.fail(f'is for "postgres" only; "{kind}" has no address')
        elif url is not None:
            self._secret(replace(url, secret=True), expander, self._take_url)
        elif kind == "postgres":
            node.fail('needs `url` too: "postgresql://user@host/database", or "${VAR}" that holds it')
        if key is not None and kind == "memory":
            key.fail('"memory" writes nothing down that could be encrypted; leave the key out')
        elif key is not None:
            self._read_keys(replace(key, secret=True), expander)

    def _read_path(self, fields: Mapping[str, Node], expander: Expander) -> None:
        node, settings = fields.get("path"), self.settings
        if node is None or node.value is None or settings is None:
            return
        if settings.kind != "sqlite":
            node.fail(f'is for "sqlite" only; "{settings.kind}" has no file')
            return
        text = expander.text(node).strip()
        if not node.sound:
            return
        if not text:
            node.fail("must not be empty")
        elif text == ":memory:" or text.startswith("file:"):
            node.fail('expected the path of a file; what shall not be kept is "kind": "memory"')
        else:
            self.settings = replace(settings, path=str(expander.path(node)))

    def _read_keys(self, node: Node, expander: Expander) -> None:
        if isinstance(node.value, list):
            if not node.value:
                node.fail("must not be empty; without a key leave it out")
            for item in node.items():
                self._secret(item, expander, self._take_key)
        else:
            self._secret(node, expander, self._take_key)

    def _secret(self, node: Node, expander: Expander, take: Callable[[Node, str], None]) -> None:
        if isinstance(node.value, str):
            text = expander.text(node)
            if node.sound:
                take(node, text)
        elif isinstance(node.value, dict):
            source = secret_source(node, expander)
            if source is not None:
                self._sources.append((node, source, take))
        else:
            node.fail_type(SECRET_SOURCES)

    def _take_url(self, node: Node, text: str) -> None:
        # Imported here: most have no such address.
        from codemode_mcp.stores.dialect import BadAddress, address

        text = text.strip()
        try:
            address(text)
        except BadAddress as error:
            node.fail(f"is not the address of a database: {error}")
            return
        parts = urlsplit(text)
        options = dict(parse_qsl(parts.query))
        said = (parts.password, unquote(parts.password or ""), options.get("password"), options.get("sslpassword"))
        self.secrets += (text, *dict.fromkeys(filter(None, said)))
        assert self.settings is not None
        self.settings = replace(self.settings, url=text)

    def _take_key(self, node: Node, text: str) -> None:
        text = text.strip()
        key = key_of(text)
        if key is None:
            node.fail(f"expected random bytes in base64 or hexadecimal; {MAKE_A_KEY}")
        elif len(key) < KEY_BYTES:
            node.fail(f"a key has at least {KEY_BYTES} bytes, this one has {len(key)}; {MAKE_A_KEY}")
        elif not is_random(text, key):
            node.fail(f"this is no random key: it repeats itself, or is made of words; {MAKE_A_KEY}")
        else:
            self.secrets.append(text)
            assert self.settings is not None
            if key in self.settings.encryption_keys:
                node.fail("this key is given more than once; keep one")
            self.settings = replace(self.settings, encryption_keys=(*self.settings.encryption_keys, key))


def key_of(text: str) -> bytes | None:
    """Return the bytes that hexadecimal, or base64 of either alphabet, stands for."""
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
    """Return True if these may be random bytes: of random keys not one in a billion fails this."""
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    if len(set(key)) < _LEAST_VALUES or len(steps) < _LEAST_STEPS:
        return False
    # Words are base64 too, but have letters of one case.
    return bool(_HEX.fullmatch(text)) or not (text.islower() or text.isupper())
