"""Secrets in texts: which values are secret, where they are, and their replacement. Pure.

All masking of the product uses `Secrets.find`. It searches a text as it is, and again after escapes are resolved: those
of JSON and of programs, of URLs and of HTML, also repeated and within each other. So a secret is found whether or not
its reader decodes the text, and at any depth. It is also found in Base64, in hexadecimal digits, and in UTF-16 or
UTF-32 that was read as bytes. Other encodings are not searched: a server that encodes a secret on purpose can always
choose another one.

The time is linear in the length of a text. Escapes are resolved only where they can stand for a character of a secret,
and positions are traced back only if something was found.

A redaction cannot find half a secret. So a text is redacted before it is cut. Where the secrets are not known yet, or a
long text must not be searched as a whole, it is cut so that no part of a secret is left at its end.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from upstream_clients.json_values import map_json

HIDDEN = "***"

MAX_SECRET: Final = 8 * 1024
"""Characters that are searched behind the end of a text that is cut, so that a secret across the end is found."""

_MAX_ROUNDS: Final = 4
"""Maximum number of rounds in which escapes are resolved. One round resolves equal escapes of any depth."""

_MAX_NESTED: Final = 3
"""Maximum number of JSON texts within each other in which a secret with escapes of its own is searched."""

_MIN_ENCODED: Final = 8
"""Minimum size in bytes of a secret that is searched in Base64, in hexadecimal digits and in longer numbers. Others
would match other text."""

_MIN_RESOLVED: Final = 4
"""Minimum length of a secret with escapes of its own, or with backslashes, after they are resolved."""

_MAX_WORD: Final = 7
"""Maximum length of a secret of letters or digits alone that is hidden in messages as a whole word only."""

_MIN_LINE: Final = 16
"""Minimum length of a line that is searched without the other lines of its secret, such as one of a private key."""

_PART: Final = 1024 * 1024
_OVERLAP: Final = 8 * MAX_SECRET
"""Characters of a long text that are searched at a time, and that are searched with those before and after them."""


class Found(NamedTuple):
    """One occurrence of a secret in a text."""

    begin: int
    end: int
    value: str


class Secrets:
    """The secret values of one holder. Immutable; see `secrets_of`."""

    def __init__(self, values: tuple[str, ...]) -> None:
        letters = {*"".join(values), *"+/=_-"}  # those of Base64, too
        self._escapes = _escapes(
            "".join(sorted(filter(_PUNCTUATION.match, letters))),
            is_wide=any(not " " <= each <= "~" for each in letters),
        )
        self._is_unclear = False
        plain: dict[str, str] = {}
        encoded: dict[str, str] = {}
        for value in sorted(filter(None, values), key=len, reverse=True):
            resolved = self._layers(value)[-1].text
            self._is_unclear = self._is_unclear or resolved != value or not value.isprintable()
            for form in _plain_forms(value, resolved):
                plain.setdefault(form, value)
            for form in _encoded_forms(value, resolved):
                encoded.setdefault(form, value)
        self._plain = plain
        self._encoded = encoded
        self._shortest = min(map(len, (*plain, *encoded)), default=0)
        self._numbers = frozenset(filter(_NUMBER.fullmatch, values))

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._plain)} texts>"

    def find(self, text: str) -> list[Found]:
        """Return the occurrences of secrets in a text, in order. No two of them overlap."""
        if not self._plain or len(text) < self._shortest:
            return []
        if len(text) <= _PART + _OVERLAP:
            return _joined(self._find(text))
        # In parts, so that a text of escapes alone takes little memory.
        parts = range(0, len(text), _PART)
        return _joined(
            Found(at + begin, at + end, value)
            for at in parts
            for begin, end, value in self._find(text[at : at + _PART + _OVERLAP])
        )

    def _find(self, text: str) -> list[Found]:
        layers = self._layers(text)
        found = [each for layer in layers for each in _search(layer, self._plain)]
        unwrapped = _without_line_breaks(layers[-1].text)
        if any(form in unwrapped for form in self._encoded):
            found += _search(_resolve(layers[-1], _LINE_BREAKS), self._encoded)
        return found

    def _layers(self, text: str) -> list[_Layer]:
        """Return a text, and the text after each round in which escapes are resolved."""
        layers = [_Layer(text)]
        while len(layers) <= _MAX_ROUNDS and (layer := _resolve(layers[-1], self._escapes)) is not layers[-1]:
            layers.append(layer)
        return layers

    def replace(self, text: str, replacement: Callable[[str], str]) -> str:
        return _replaced(text, self.find(text), replacement)

    def hide(self, text: str) -> str:
        return self.replace(text, lambda _: HIDDEN)

    def hide_in(self, value: Any, text: str | None = None) -> Any:
        """Return JSON data with `***` for each secret in its strings and keys, and for each number that has one.

        Args:
            text: the data as JSON text, if it is at hand. Searching it is faster than searching each string.
        """
        if not self._plain:
            return value
        if text is None or self.may_be_in_json(text):
            return map_json(value, self._hide_string, self._hide_number)
        return map_json(value, str, self._hide_number) if self._numbers else value

    def may_be_in_json(self, text: str) -> bool:
        """Return False if no string or key of a JSON text has a secret. This is faster than searching each string."""
        # A secret with escapes or backslashes of its own may look different in a JSON text. A blob is decoded first.
        return self._is_unclear or '"blob"' in text or bool(self.find(text))

    def hide_in_bytes(self, data: bytes) -> bytes:
        text = data.decode("utf-8", "surrogateescape")
        hidden = self.hide(text)
        return data if hidden == text else hidden.encode("utf-8", "surrogateescape")

    def _hide_string(self, text: str) -> str:
        hidden = self.hide(text)
        if hidden == text and len(text) % 4 == 0 and _BASE64.fullmatch(text):
            data = base64.b64decode(text)
            shown = self.hide_in_bytes(data)
            return text if shown == data else base64.b64encode(shown).decode()
        return hidden

    def _hide_number(self, value: float) -> Any:
        if not self._numbers:
            return value
        text = json.dumps(value)
        found = any(_equals(value, each) or (len(each) >= _MIN_ENCODED and each in text) for each in self._numbers)
        return HIDDEN if found else value


_BASE64: Final = re.compile(r"[A-Za-z0-9+/]{14,}={0,2}")
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def _equals(value: float, secret: str) -> bool:
    try:
        return float(value) == float(secret)
    except OverflowError:
        return False


@lru_cache(maxsize=256)
def secrets_of(values: tuple[str, ...]) -> Secrets:
    return Secrets(values)


def hide(text: str, secrets: tuple[str, ...]) -> str:
    """Return a message with `***` for each of the secrets, plain or encoded.

    A secret of a few letters or digits is hidden as a whole word only: it may be a part of other words.
    """
    return _replaced(text, [each for each in secrets_of(secrets).find(text) if _is_whole(text, each)], lambda _: HIDDEN)


def cut(text: str, limit: int, secrets: tuple[str, ...] = ()) -> str:
    """Return at most `limit` characters of a text, without a part of a secret at the end.

    The text ends before a known secret that the limit would cut in two. It also ends before a word that would be cut,
    since unknown tokens are words of ASCII characters. If half of the text would be lost by that, it ends before the
    letters and digits that would be cut, or else at the limit: no token is that long.
    """
    if len(text) <= limit:
        return text
    found = secrets_of(secrets).find(text[: limit + MAX_SECRET])
    end = next((each.begin for each in found if each.begin < limit < each.end), limit)
    for kind in (_IN_WORD, _IN_NAME):
        start = end
        while start and kind.match(text, start) and kind.match(text, start - 1):
            start -= 1
        if start > end // 2:
            return text[:start]
    return text[:end]


_IN_WORD: Final = re.compile("[!#-&(-_a-~]")
"""A character of a word: printable ASCII, but no quote."""

_IN_NAME: Final = re.compile("[A-Za-z0-9_-]")


def redacted_start(text: str, limit: int, redact: Callable[[str], str]) -> str:
    """Return at most `limit` characters of a text without its secrets. Only the beginning of a long text is searched.

    Args:
        redact: replaces the secrets in a text.
    """
    return cut(redact(cut(text, limit + MAX_SECRET)), limit)


def basic_credentials(header: str) -> list[str]:
    """Return `user:password` of an `Authorization` header for basic authentication; nothing of any other header."""
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return []
    try:
        return [base64.b64decode(encoded).decode()]
    except ValueError:
        return []


# The forms of a secret


def _plain_forms(value: str, resolved: str) -> Iterator[str]:
    """Yield the forms of a secret in a text whose escapes are resolved, and the secret as it is.

    Args:
        resolved: the secret after its own escapes are resolved.
    """
    if len(resolved) >= _MIN_RESOLVED:
        yield resolved
    if resolved != value or not value.isprintable():
        nested = {value}
        for _ in range(_MAX_NESTED):
            nested = {json.dumps(text, ensure_ascii=ascii_)[1:-1] for text in nested for ascii_ in (True, False)}
            yield from nested
    texts = {value, unicodedata.normalize("NFC", value), unicodedata.normalize("NFD", value)}
    if not value.isascii():
        texts.add(value.encode("utf-8", "surrogatepass").decode("latin-1"))  # text that was read in a wrong charset
    for text in texts:
        yield text
        if text.isascii():
            # UTF-16 and UTF-32 that were read as bytes, in either order
            yield "\0".join(text)
            yield "\0\0\0".join(text)
        if " " in text:
            yield text.replace(" ", "+")  # in a query
        if "=" in text:
            yield text.replace("=", "=3D")  # in mail
    yield from (line for line in value.splitlines() if len(line) >= _MIN_LINE and not line.startswith("-----"))


def _encoded_forms(value: str, resolved: str) -> Iterator[str]:
    """Yield the forms of a secret that may have line breaks in any place. They have none here."""
    if len(line := _without_line_breaks(resolved)) >= _MIN_ENCODED:
        yield line
    data = value.encode("utf-8", "surrogatepass")
    if len(data) < _MIN_ENCODED:
        return
    for digits in (data.hex(), *map(data.hex, " :-")):
        yield from (digits, digits.upper())
    yield base64.b64encode(data).decode()
    yield base64.urlsafe_b64encode(data).decode()
    # Inside a longer encoded text, the secret begins at one of three positions within a group of three bytes. Only the
    # characters that do not depend on the bytes around the secret are searched.
    for each in (data, value.encode("utf-16-le", "surrogatepass")):
        for before, first in ((0, 0), (1, 2), (2, 3)):
            shifted = bytes(before) + each
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(shifted).decode()[first : len(shifted) * 8 // 6]


# The resolution of escapes

_PUNCTUATION: Final = re.compile(r"[!-/:-@\[-`{-~]")

_NAMES: Final = """
excl! quot" num# dollar$ percnt% amp& apos' lpar( rpar) ast* plus+ comma, period. sol/ colon: semi; lt< equals= gt>
quest? commat@ lsqb[ lbrack[ bsol\\ rsqb] rbrack] Hat^ lowbar_ UnderBar_ grave` lcub{ lbrace{ verbar| vert| rcub}
rbrace}
"""
_ENTITIES: Final = {each[:-1]: each[-1] for each in _NAMES.split()}
"""The names of ASCII punctuation in HTML."""

_INVISIBLE: Final = "\u00ad\u200b\u200c\u200d\u2060\ufeff"
_HEX: Final = "[0-9a-fA-F]"
_BACKSLASHES: Final = r"\\(?<!\\\\)\\*+"
"""All backslashes of a sequence. Each level of nesting doubles their number, so all of them are removed. A backslash
that belongs to a secret is removed from its resolved form, too."""

_LINE_BREAKS: Final = (
    (re.compile(r"(\n)"), "\n"),
    (re.compile(r"(\r)"), "\r"),
    (re.compile(rf"({_BACKSLASHES}[rn])"), "\\"),
)

_Escapes = tuple[tuple[re.Pattern[str], str], ...]
"""Patterns with one group, each with a text that is in every match. A pattern that begins with a fixed character is
searched ten times faster than one with alternatives."""


@lru_cache(maxsize=256)
def _escapes(punctuation: str, *, is_wide: bool) -> _Escapes:
    """Return the escapes that can stand for a character of a secret.

    Args:
        punctuation: the ASCII punctuation that the secrets have.
        is_wide: True if they have other characters than printable ASCII.
    """
    if is_wide:
        pair = rf"u[dD][89abAB]{_HEX}{{2}}{_BACKSLASHES}u[dD][c-fC-F]{_HEX}{{2}}"
        after = [
            pair,
            f"u{_HEX}{{4}}",
            rf"u\{{{_HEX}{{1,6}}\}}",
            f"U00{_HEX}{{6}}",
            f"x{_HEX}{{2}}",
            "[0-3][0-7]{2}",
            "t",
        ]
        percent = f"u{_HEX}{{4}}|[0-7]{_HEX}|[89a-fA-F]{_HEX}(?:%(?:25)*[89a-fA-F]{_HEX})*"
    else:
        code = f"[2-7]{_HEX}"
        after = [f"u00{code}", rf"u\{{0*{code}\}}", f"U000000{code}", f"x{code}", "[01][0-7]{2}"]
        percent = f"(?:u00)?{code}"
    after.append(f"[{re.escape(punctuation)}]")
    if "\\" in punctuation:
        after.append("(?![nr])")
    return (
        (re.compile(rf"({_BACKSLASHES}(?:{'|'.join(after)}))"), "\\"),
        (re.compile(f"(%(?:25)*(?:{percent}))"), "%"),
        (
            re.compile(rf"(&(?:amp;)*(?:#0*\d{{1,9}};?|#[xX]0*{_HEX}{{1,7}};?|(?:{'|'.join(_ENTITIES)});))", re.ASCII),
            "&",
        ),
        *((re.compile(f"({each})"), each) for each in _INVISIBLE),
    )


class _Layer:
    """A text, and its origin in another one."""

    def __init__(
        self, text: str, parent: _Layer | None = None, before: list[str] | None = None, after: list[str] | None = None
    ) -> None:
        """`before` and `after`: the pieces of both texts. Those at odd places were replaced."""
        self.text = text
        self._parent = parent
        self._before = before or []
        self._after = after or []
        self._starts: tuple[list[int], list[int]] | None = None

    def origin(self, begin: int, end: int) -> tuple[int, int]:
        """Return the part of the original text from which a part of this one was made."""
        if self._parent is None:
            return begin, end
        if self._starts is None:
            self._starts = _starts(self._before), _starts(self._after)
        before, after = self._starts
        first, last = bisect_right(after, begin) - 1, bisect_right(after, end - 1) - 1
        begin = before[first] + (0 if first % 2 else begin - after[first])
        end = before[last] + (len(self._before[last]) if last % 2 else end - after[last])
        return self._parent.origin(begin, end)


def _starts(pieces: list[str]) -> list[int]:
    return list(accumulate(map(len, pieces[:-1]), initial=0))


def _resolve(layer: _Layer, escapes: _Escapes) -> _Layer:
    for pattern, mark in escapes:
        before = pattern.split(layer.text) if mark in layer.text else []
        if len(before) > 1:
            characters = {escape: _character(escape) for escape in set(before[1::2])}
            after = before.copy()
            after[1::2] = [characters[escape] for escape in before[1::2]]
            layer = _Layer("".join(after), layer, before, after)
    return layer


def _without_line_breaks(text: str) -> str:
    """Return a text without line breaks, also without escaped ones. This is faster than `_LINE_BREAKS`."""
    text = text.replace("\n", "").replace("\r", "")
    if "\\n" not in text and "\\r" not in text:
        return text
    while "\\\\" in text:
        text = text.replace("\\\\", "\\")
    return text.replace("\\n", "").replace("\\r", "")


def _character(escape: str) -> str:
    match escape[0]:
        case "\\":
            rest = escape.lstrip("\\")
            if rest in ("n", "r", "t"):
                return "\t" if rest == "t" else ""
            if rest[:1] in ("u", "U", "x"):
                return _of_codes([int(each, 16) for each in re.findall(f"{_HEX}+", re.sub("[uUx]", " ", rest))], escape)
            return chr(int(rest, 8)) if rest.isdigit() else rest
        case "%":
            if "u" in escape:
                return chr(int(escape[-4:], 16))
            data = bytes.fromhex("".join(re.findall(f"{_HEX}{{2}}(?=%|$)", escape)))
            text = data.decode("utf-8", "surrogateescape")
            return re.sub("[\udc80-\udcff]", lambda found: chr(ord(found[0]) & 0xFF), text)
        case "&":
            name = escape[1:].removesuffix(";").rpartition(";")[2]
            if name.startswith("#"):
                number = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
                return _of_codes([number], escape)
            return _ENTITIES[name]
    return ""  # a line break, or a character that is not seen


def _of_codes(codes: list[int], escape: str) -> str:
    if len(codes) == 2:
        return chr(0x10000 + ((codes[0] & 0x3FF) << 10 | codes[1] & 0x3FF))
    return chr(codes[0]) if codes[0] < 0x110000 else escape


# Occurrences


def _search(layer: _Layer, forms: Mapping[str, str]) -> Iterator[Found]:
    for form, value in forms.items():
        at = layer.text.find(form)
        while at >= 0:
            yield Found(*layer.origin(at, at + len(form)), value)
            at = layer.text.find(form, at + len(form))


def _joined(found: Iterable[Found]) -> list[Found]:
    """Return occurrences in order. Those that overlap become one, of the secret that begins first or is longer."""
    joined: list[Found] = []
    for each in sorted(found, key=lambda each: (each.begin, -each.end)):
        if joined and each.begin < joined[-1].end:
            joined[-1] = joined[-1]._replace(end=max(joined[-1].end, each.end))
        else:
            joined.append(each)
    return joined


def _replaced(text: str, found: list[Found], replacement: Callable[[str], str]) -> str:
    parts, at = [], 0
    for begin, end, value in found:
        parts += [text[at:begin], replacement(value)]
        at = end
    return "".join((*parts, text[at:]))


def _is_whole(text: str, found: Found) -> bool:
    """Return False for a short word within a longer one."""
    if len(found.value) > _MAX_WORD or not (found.value.isalpha() or found.value.isdecimal()):
        return True
    before, after = text[max(0, found.begin - 2) : found.begin], text[found.end : found.end + 1]
    return not (after.isalnum() or (before[-1:].isalnum() and before not in ("\\n", "\\r", "\\t")))


# The values of a configuration that count as secret.
#
# Most values of `env` are settings: a mode, a port, the name of a host. Hiding these would hide words of every message.
# So a value counts as secret if one of these is true:
#
# - It comes from the keyring or from a command. The configuration adds these values without asking this module.
# - Its name is that of a secret, such as `GITHUB_TOKEN` or `Authorization`.
# - It is not made of words, numbers, hosts and paths alone. What looks like a credential is hidden, whatever its name.


_SECRET_WORDS: Final = (
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "secret",
    "token",
    "authorization",
    "apikey",
    "accesskey",
    "privatekey",
    "encryptionkey",
    "credential",
    "cookie",
    "sessionid",
    "signature",
    "clientkey",
    "authkey",
)
_SECRET_NAMES: Final = frozenset(
    {"auth", "pwd", "pass", "pin", "otp", "jwt", "bearer", "key", "pat", "cvv", "cvc", "iban"}
)
_MAX_NAME: Final = 60
_NO_LETTER: Final = re.compile(r"[^a-z0-9]")

WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
"""A word of a name in camel case or with separators."""

_PLAIN_LAST: Final = frozenset(
    (
        *("url", "uri", "endpoint", "host", "file", "path", "dir", "folder", "region", "name"),
        *("type", "mode", "enabled", "ttl", "limit", "count", "tokens", "domain", "port", "version", "provider"),
        *("timeout", "expiry", "lifetime", "length", "header", "prefix", "algorithm", "format"),
    )
)
"""Last words of names whose values are not secret, such as `API_TOKEN_URL`."""

PLAIN_VALUES: Final = frozenset(
    ("", "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1", "bearer", "basic")
)

_SETTINGS: Final = _PLAIN_LAST | frozenset(
    (
        *("hostname", "server", "port", "domain", "address", "zone", "cluster", "bucket", "image", "version", "tag"),
        *("env", "environment", "stage", "level", "debug", "log", "lang", "locale", "tz", "timezone", "format"),
        *("user", "username", "db", "database", "schema", "table", "profile", "project", "org", "team", "workspace"),
        *("namespace", "service", "app", "model", "platform", "arch", "branch", "options", "opts", "args", "flags"),
    )
)
"""Last words of names of settings. Their values may have words with numbers, such as `server01`."""


def is_secret_name(name: str) -> bool:
    """Return True if a value with this name is most likely secret: `password`, `x-api-key`, `accessToken`, ..."""
    plain = _NO_LETTER.sub("", name[:_MAX_NAME].lower())
    return plain in _SECRET_NAMES or any(word in plain for word in _SECRET_WORDS)


def is_named_secret(name: str, value: str) -> bool:
    """Return True if a value is secret by its name, of which any word counts. Values such as `true` are not secret."""
    words = [word.lower() for word in WORD.findall(name)]
    if not words or value.strip().lower() in PLAIN_VALUES:
        return False
    if not is_secret_name(name) and not any(map(is_secret_name, words)):
        return False
    return words[-1] not in _PLAIN_LAST  # a secret in `API_TOKEN_URL` is recognized by its form


@lru_cache(maxsize=4096)
def counts_as_secret(name: str, value: str) -> bool:
    """Return True if a value that is written into a configuration, or is that of a variable, counts as secret."""
    words = WORD.findall(name)
    is_setting = bool(words) and words[-1].lower() in _SETTINGS
    return is_named_secret(name, value) or not is_ordinary(value, is_setting=is_setting)


def password_of(value: str) -> str:
    """Return the password in an address such as `postgres://user:password@host`; empty if there is none."""
    found = _PASSWORD.search(value)
    return "" if found is None else unquote(found[1])


_PASSWORD: Final = re.compile(r"://[^/?#\s:@]*:([^/?#\s@]+)@")
_SEPARATORS: Final = re.compile(r"[\s,;:/\\._@+|~#()\[\]*?=&-]+")
_USER_INFO: Final = re.compile(r"://[^/?#\s]*@")
_SCHEME: Final = re.compile(r"\s*(?:bearer|basic|token|apikey|digest)\s+\S", re.IGNORECASE)
_ASSIGNED: Final = re.compile(r"([\w.-]+)\s*=")
_PHRASE: Final = re.compile(r"(?=.*[^\W\d_])(?:[^\W_]+(?:[\s_-]+[^\W_]+){3,}|(?=.*\d)[^\W_]+(?:[\s_-]+[^\W_]+){2,})")
"""Four words or more, or three words and numbers, as in a passphrase."""

_PAIR: Final = re.compile(r"[\w-]:(?![\d/\\:*\s]|$)")
"""A colon between words, as in `user:password`. A port, a path or a scheme has none."""

_SHORT_NUMBER: Final = re.compile(r"\d{1,15}")
_SHORT: Final = re.compile(r"(?=\w{2,4}\Z)[A-Za-z]+\d+[A-Za-z]?|\d{1,6}[A-Za-z]{1,3}", re.ASCII)
"""A short word with a number, such as `k8s`, `v2`, `db01` or `512mb`."""

_WITH_NUMBER: Final = re.compile(r"[A-Za-z]{1,16}\d{1,4}[a-z]?|\d{1,6}[A-Za-z]{1,16}", re.ASCII)
_TIME: Final = re.compile(r"\d{2,8}T\d{2,6}Z?", re.ASCII)
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_HUMP: Final = 16
_MAX_PLAIN_WORD: Final = 32


@lru_cache(maxsize=4096)
def is_ordinary(value: str, *, is_setting: bool = False) -> bool:
    """Return True if a value is made of words, numbers, hosts and paths, without anything that looks random.

    Args:
        is_setting: True for a value whose name says that it is a setting.
    """
    if (
        _SCHEME.match(value)
        or _USER_INFO.search(value)
        or any(is_secret_name(name) for name in _ASSIGNED.findall(value))
    ):
        return False
    if not is_setting and (_PAIR.search(value) or _PHRASE.fullmatch(value)):
        return False
    return all(_is_ordinary_word(word, is_setting=is_setting) for word in _SEPARATORS.split(value) if word)


def is_word(value: str) -> bool:
    """Return True if a value is one word of letters, or a short number."""
    return len(value) <= _MAX_HUMP and (value.isalpha() or (value.isdecimal() and len(value) < 8))


def _is_ordinary_word(word: str, *, is_setting: bool) -> bool:
    if word.isalpha():
        if not word.isascii():
            return len(word) <= _MAX_PLAIN_WORD
        # Random letters change between small and capital ones too often for words of a person.
        humps = _HUMP.findall(word)
        return (
            len(word) <= _MAX_PLAIN_WORD and max(map(len, humps)) <= _MAX_HUMP and len(humps) <= max(2, len(word) // 3)
        )
    patterns = (_SHORT_NUMBER, _SHORT, _TIME, *((_WITH_NUMBER,) if is_setting else ()))
    return any(each.fullmatch(word) for each in patterns)
