"""The values of a configuration that count as secret. Pure.

Most values of `env` are settings: a mode, a port, the name of a host. Hiding these would hide words of every message.
So a value counts as secret if one of these is true:

- It comes from the keyring or from a command. The configuration adds these values without asking this module.
- Its name is that of a secret, such as `GITHUB_TOKEN` or `Authorization`.
- It is not made of words, numbers, hosts and paths alone. What looks like a credential is hidden, whatever its name.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

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

_NUMBER: Final = re.compile(r"\d{1,15}")
_SHORT: Final = re.compile(r"(?=\w{2,4}\Z)[A-Za-z]+\d+[A-Za-z]?|\d{1,6}[A-Za-z]{1,3}", re.ASCII)
"""A short word with a number, such as `k8s`, `v2`, `db01` or `512mb`."""

_WITH_NUMBER: Final = re.compile(r"[A-Za-z]{1,16}\d{1,4}[a-z]?|\d{1,6}[A-Za-z]{1,16}", re.ASCII)
_TIME: Final = re.compile(r"\d{2,8}T\d{2,6}Z?", re.ASCII)
_HUMP: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MAX_HUMP: Final = 16
_MAX_WORD: Final = 32


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
            return len(word) <= _MAX_WORD
        # Random letters change between small and capital ones too often for words of a person.
        humps = _HUMP.findall(word)
        return len(word) <= _MAX_WORD and max(map(len, humps)) <= _MAX_HUMP and len(humps) <= max(2, len(word) // 3)
    patterns = (_NUMBER, _SHORT, _TIME, *((_WITH_NUMBER,) if is_setting else ()))
    return any(each.fullmatch(word) for each in patterns)
