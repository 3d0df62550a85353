"""Server entries as they are written: the secrets in them, and the entry without secrets. Pure.

A secret is recognized by its name (`GITHUB_TOKEN`, `--api-key`) or by its form. The forms are known kinds of tokens,
credentials in URLs, and long words in which letters and digits alternate.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import tokens_in
from upstream_clients.json_values import map_json
from upstream_clients.redaction import HIDDEN, is_named_secret
from upstream_clients.spec import KEY_IN_PATH, is_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from upstream_clients.tools import JsonObject


REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")

SCHEME: Final = re.compile(r"\s*(?:bearer|basic|token|apikey|digest)\s+", re.IGNORECASE)
"""The scheme of an `Authorization` header, before the credential."""

_PASSWORD: Final = re.compile(r"://[^\s/@:]*:([^\s/@]+)@")
"""A password in a URL."""

_ASSIGNED: Final = re.compile(
    r"(?<![\w.-])(-{0,2}[A-Za-z_][\w.-]{1,60})(?:=|:(?!//)\s{0,3}(?:(?:bearer|basic|token)\s{1,3})?)(?=([^\s;&\"'#]+))",
    re.IGNORECASE,
)
"""`name=value` or `name: value` in a text. A value is not consumed, because it may contain a pair too."""

_OPTION: Final = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]{1,60})\s{1,3}(?!-)([^\s\"']+)")
"""`--name value` in a text of several words."""

_QUOTED: Final = re.compile(
    r"""(?<![\w$-])\\?["']?([A-Za-z_][\w$-]{1,60})\\?["']?\s{0,9}[:=]\s{0,9}\\?["']([^"'\\\n]+)"""
)
"""A name with a value in quotes, such as a member of JSON in an argument."""

_NAMED: Final = re.compile(r"(-{0,2}[A-Za-z_][\w.-]{1,60})\s{0,9}[:=]\s{0,9}(?=\S)(.+)", re.DOTALL)
"""A text that is `name=value` or `name: value` as a whole, so that the value may contain spaces."""

_LONG: Final = re.compile(r"[A-Za-z0-9_-]{20,}")
_REVISION: Final = re.compile(r"(?:sha256:|[@#])\Z")
"""Marks before a digest or a revision, which looks random but is not secret."""

_PLAIN_AUTH_KEYS: Final = frozenset(("type", "clientId", "in", "name", "audience"))


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that is written into an entry.

    Attributes:
        keys: the path of the text, such as `("env", "TOKEN")` or `("args", 2)`.
        begin, end: the position in the text.
        hint: a name for a variable that could have the secret as its value.
    """

    keys: tuple[str | int, ...]
    begin: int
    end: int
    hint: str

    @property
    def where(self) -> str:
        """The path for a message, such as `env.TOKEN` or `args[2]`."""
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys).lstrip(".")


def secrets_of(entry: Mapping[str, Any]) -> list[Secret]:
    """Return all literal secrets of a server entry, in the order of its texts."""
    found: list[Secret] = []
    for keys, text, name in _texts(entry):
        spans = _spans(text, name)
        if keys[0] == "env" and spans and not REFERENCE.search(text):
            # The whole text becomes the secret: a `DATABASE_URL` with a password belongs in one variable.
            spans = [(0, len(text), str(name))]
        found += [Secret(keys, *span) for span in spans]
    return found


def replace_secrets(entry: Mapping[str, Any], replacement: Callable[[Secret, str], str]) -> dict[str, Any]:
    changed: dict[str, Any] = map_json(dict(entry), str)

    def holder_of(secret: Secret) -> Any:
        holder: Any = changed
        for key in secret.keys[:-1]:
            holder = holder[key]
        return holder

    found = secrets_of(entry)
    texts = [replacement(each, holder_of(each)[each.keys[-1]][each.begin : each.end]) for each in found]
    # From the end, so that the positions of earlier secrets stay true.
    for secret, text in reversed([*zip(found, texts, strict=True)]):
        holder, last = holder_of(secret), secret.keys[-1]
        holder[last] = holder[last][: secret.begin] + text + holder[last][secret.end :]
    return changed


def secret_args(args: Sequence[object]) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for secret in secrets_of({"args": list(args)}):
        index = int(secret.keys[1])
        found[index] = (*found.get(index, ()), str(args[index])[secret.begin : secret.end])
    return found


def _texts(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Yield each text that may contain a secret: its path, the text, and its name, if it has a name."""
    for table in ("env", "headers"):
        values = entry.get(table)
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, str):
                yield (table, key), value, key
    for key in ("command", "url", "openapi", "baseUrl", "cwd", "envFile", "description"):
        if isinstance(entry.get(key), str):
            yield (key,), entry[key], None
    args = entry.get("args")
    words = args if isinstance(args, list) else []
    for index, (before, text) in enumerate(pairwise(["", *words])):
        if isinstance(text, str):
            option = isinstance(before, str) and before.startswith("-") and "=" not in before
            yield ("args", index), text, before.lstrip("-") if option and not text.startswith("-") else None
    auth = entry.get("auth")
    for key, value in auth.items() if isinstance(auth, dict) else ():
        if isinstance(value, str) and key not in _PLAIN_AUTH_KEYS:
            # The value of an API key is secret, which its own name does not say.
            yield ("auth", key), value, "api_key" if key == "value" else key


def _spans(text: str, name: str | None) -> list[tuple[int, int, str]]:
    """Return the secrets of a text: begin, end, and a name for a variable.

    Args:
        name: the name of the text in the entry, such as that of a variable or an option.
    """
    label = name or ""
    secret_name = name is not None and is_named_secret(name, text)
    references = list(REFERENCE.finditer(text))
    # In a reference, only the default can be a secret. Spaces in place of references keep all positions.
    masked = REFERENCE.sub(lambda match: " " * len(match[0]), text)
    found: list[tuple[int, int, str]] = []
    for match in references:
        variable, mark, default = match[1].partition(":-")
        if default and (secret_name or _secret_like_words(default) or is_named_secret(variable, default)):
            found.append((match.end() - 1 - len(mark + default), match.end() - 1, label or "SECRET"))
    if secret_name and not references and text.strip():
        found.append(_credential(text, 0, label))
    whole = _NAMED.fullmatch(masked)
    if whole and is_named_secret(whole[1].lstrip("-"), whole[2]) and not references:
        found.append(_credential(text, whole.start(2), whole[1].lstrip("-")))
    for pattern in (_ASSIGNED, _OPTION, _QUOTED):
        found += [
            (*match.span(2), match[1].lstrip("-"))
            for match in pattern.finditer(masked)
            if is_named_secret(match[1].lstrip("-"), match[2]) and match[2].strip()
        ]
    found += [(*match.span(1), "PASSWORD") for match in _PASSWORD.finditer(masked) if match[1].strip()]
    found += [(begin, end, label or "KEY") for begin, end in _secret_like_words(masked)]
    return _merge_overlapping(found)


def _credential(text: str, begin: int, name: str) -> tuple[int, int, str]:
    """Return the secret from a position to the end of a text, without a scheme such as `Bearer`."""
    scheme = SCHEME.match(text, begin)
    if name.lower() == "authorization":
        name = "TOKEN" if scheme else "AUTHORIZATION"
    return scheme.end() if scheme and scheme.end() < len(text) else begin, len(text), name


def _secret_like_words(text: str) -> list[tuple[int, int]]:
    found = []
    for begin, end in tokens_in(text):
        # In a URL, `user:password@` contains a secret, and `git@` does not.
        user_info = text[end : end + 1] == "@" and text[:begin].endswith("://")
        if not user_info or (":" not in text[begin:end] and end - begin >= 12):
            found.append((begin, end))
    return found + [
        match.span()
        for match in _LONG.finditer(text)
        if _looks_random(match[0]) and not _REVISION.search(text, max(0, match.start() - 8), match.start())
    ]


def _looks_random(word: str) -> bool:
    """Return True if letters and digits alternate too often for a word that a person has made up."""
    plain = word.replace("-", "").replace("_", "")
    kinds = ["0" if each.isdigit() else "a" if each.islower() else "A" for each in plain]
    changes = sum(before != after for before, after in pairwise(kinds))
    return kinds.count("0") >= 2 and kinds.count("0") < len(kinds) and changes >= 0.3 * len(plain)


def _merge_overlapping(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Return the spans in order. Overlapping spans become one, with the name of the span that was found first."""
    order = {span: number for number, span in enumerate(spans)}
    joined: list[tuple[int, int, str, int]] = []
    for span in sorted(set(spans), key=lambda each: each[:2]):
        begin, end, hint = span
        if begin >= end:
            continue
        if joined and begin < joined[-1][1]:
            first = joined[-1]
            best = min((first[3], first[2]), (order[span], hint))
            joined[-1] = (first[0], max(first[1], end), best[1], best[0])
        else:
            joined.append((begin, end, hint, order[span]))
    return [each[:3] for each in joined]


# The command line, the URL or the document of a server entry, as it is written, without secrets.
#
# Pins compare it, so that a name that is given to another server is noticed. Variables stay as `${NAME}`. So the result
# has none of their values, and is the same for each person and each machine with the same entry. Secrets that are
# written into the entry are replaced, also in the query of a URL: a digest of a short secret could be guessed.


_KEYS: Final = ("command", "args", "cwd", "url", "openapi", "baseUrl")

_LOGIN: Final = re.compile(r"(?<=://)[^/?#]*@")
_FRAGMENT: Final = re.compile(r"#.*", re.DOTALL)
_PARAMETER: Final = re.compile(r"(?<=[?&])(?:([^=&]*=)[^&]*|[^=&]+)")
"""A parameter in the query of a URL, with or without a name."""


def written_entry(entry: Mapping[str, Any]) -> JsonObject:
    """Return the members of a valid entry that decide which server it is.

    These are `command`, `args` and `cwd`, or `url`, or `openapi` and `baseUrl`.
    """
    hidden = replace_secrets({key: entry[key] for key in _KEYS if key in entry}, lambda *_: HIDDEN)
    if "url" not in entry and "serverUrl" in entry:
        hidden |= replace_secrets({"url": entry["serverUrl"]}, lambda *_: HIDDEN)
    for key in ("url", "openapi", "baseUrl"):
        if isinstance(hidden.get(key), str) and (key == "url" or is_url(hidden[key])):
            hidden[key] = _without_parameters(hidden[key])
    # An empty list says the same as none.
    return {key: value for key, value in hidden.items() if value not in (None, [])}


def _without_parameters(url: str) -> str:
    """Return a URL without credentials, values of parameters, and parts of the path that look like a key."""
    beginning, mark, query = _FRAGMENT.sub("", url).partition("?")
    beginning = KEY_IN_PATH.sub(HIDDEN, _LOGIN.sub(f"{HIDDEN}@", beginning))
    return beginning + _PARAMETER.sub(lambda found: (found[1] or "") + HIDDEN, mark + query)
