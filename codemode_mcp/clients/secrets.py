"""Literal secrets in server entries: where they are, entries without them, and variables in their place. Pure.

What is secret is judged by name (`GITHUB_TOKEN`, `--api-key`) and by form (tokens, credentials in URLs, what only a
machine would have written).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import HIDDEN, is_secret_name, tokens_in, without_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

REFERENCE: Final = re.compile(r"\$\{([^{}]*)\}")

_SCHEME: Final = re.compile(r"\s*(?:bearer|basic|token|apikey|digest)\s+", re.IGNORECASE)
_PASSWORD: Final = re.compile(r"://[^\s/@:]*:([^\s/@]+)@")
_ASSIGNED: Final = re.compile(
    r"(?<![\w.-])(-{0,2}[A-Za-z_][\w.-]{1,60})(?:=|:(?!//)\s{0,3}(?:(?:bearer|basic|token)\s{1,3})?)(?=([^\s;&\"'#]+))",
    re.IGNORECASE,
)
_OPTION: Final = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]{1,60})\s{1,3}(?!-)([^\s\"']+)")
_QUOTED: Final = re.compile(
    r"""(?<![\w$-])\\?["']?([A-Za-z_][\w$-]{1,60})\\?["']?\s{0,9}[:=]\s{0,9}\\?["']([^"'\\\n]+)"""
)
_NAMED: Final = re.compile(r"(-{0,2}[A-Za-z_][\w.-]{1,60})\s{0,9}[:=]\s{0,9}(?=\S)(.+)", re.DOTALL)
_LONG: Final = re.compile(r"[A-Za-z0-9_-]{20,}")
_REVISION: Final = re.compile(r"(?:sha256:|[@#])\Z")
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PLAIN_LAST: Final = frozenset(
    (
        *("url", "uri", "endpoint", "host", "file", "path", "dir", "folder", "region", "name"),
        *("type", "mode", "enabled", "ttl", "limit", "count", "tokens"),
    )
)
_PLAIN_VALUES: Final = frozenset(
    ("", "true", "false", "yes", "no", "on", "off", "none", "null", "0", "1", "bearer", "basic")
)


@dataclass(frozen=True, slots=True)
class Secret:
    """A literal secret in an entry.

    Attributes:
        keys: the way to the text that it is in: `("env", "TOKEN")`, `("args", 2)`.
        begin: where it begins in the text; `end` likewise.
        hint: what its variable may be called.
    """

    keys: tuple[str | int, ...]
    begin: int
    end: int
    hint: str

    @property
    def where(self) -> str:
        """`env.TOKEN`, `args[2]`."""
        return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.keys).lstrip(".")


@dataclass(frozen=True, slots=True)
class Names:
    """Gives out names of variables: one for each thing, never the same for two. The mutable state is `taken`."""

    taken: dict[str, Hashable] = field(default_factory=dict)

    def give(self, hint: str, server: str, thing: Hashable, *, own: bool) -> str:
        """The name for `thing`: what the hint says, with the server's name in front of it where that is needed.

        Args:
            own: whether the hint alone is clear enough, if nothing else has that name already.
        """
        hint, prefix = variable_name(hint), variable_name(server)
        full = hint if f"{hint}_".startswith(f"{prefix}_") else f"{prefix}_{hint}"
        names = [*([hint] if own else []), full, *(f"{full}_{number}" for number in range(2, len(self.taken) + 3))]
        name = next(each for each in names if self.taken.get(each, thing) == thing)
        self.taken[name] = thing
        return name


def variable_name(text: str) -> str:
    """`text` as variables are called: `api-key` and `apiKey` are `API_KEY`."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) and (text.isupper() or text.islower()):
        name = text.upper()
    else:
        name = "_".join(_WORD.findall(text)).upper()
    if not name:
        return "VALUE"
    return name if not name[0].isdigit() else f"_{name}"


def secrets_of(entry: Mapping[str, Any]) -> list[Secret]:
    """All literal secrets of a server entry, in the order of its texts."""
    found: list[Secret] = []
    for keys, text, name in _texts(entry):
        spans = _spans(text, name)
        if keys[0] == "env" and spans and not REFERENCE.search(text):
            # Whole: what a server calls `DATABASE_URL` is best a variable of that name.
            spans = [(0, len(text), str(name))]
        found += [Secret(keys, *span) for span in spans]
    return found


def without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry as it may be shown. More is hidden than is certainly secret: all literal values of `env` and `headers`
    but for words like `true`."""
    shown: dict[str, Any] = _changed(
        entry, secrets_of(entry), lambda _, text: f":-{HIDDEN}" if text.startswith(":-") else HIDDEN
    )
    for table in ("env", "headers"):
        if isinstance(shown.get(table), dict):
            shown[table] = {
                key: _hidden(value) if isinstance(value, str) else value for key, value in shown[table].items()
            }
    tokenless: dict[str, Any] = mapped(shown, without_tokens)
    return tokenless


def with_variables(
    entry: Mapping[str, Any], server: str, names: Names
) -> tuple[dict[str, Any], tuple[tuple[str, Secret], ...]]:
    """The entry with a reference to a variable for each literal secret, and which is for which."""
    given: list[tuple[str, Secret]] = []

    def refer(secret: Secret, text: str) -> str:
        if text.startswith(":-"):
            return ""
        own = secret.hint == secret.hint.upper() and "_" in secret.hint
        name = names.give(re.sub(r"(?i)^x-", "", secret.hint), server, ("value", text), own=own)
        given.append((name, secret))
        return f"${{{name}}}"

    return _changed(entry, secrets_of(entry), refer), tuple(given)


# texts of an entry


def _texts(entry: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str, str | None]]:
    """Every text that may hold a secret, the way to it, and the name that it stands under if it has one."""
    for table in ("env", "headers"):
        values = entry.get(table)
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, str):
                yield (table, key), value, key
    for key in ("command", "url", "cwd", "envFile", "description"):
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
        if isinstance(value, str) and key not in ("type", "clientId"):
            yield ("auth", key), value, key


def _changed(
    entry: Mapping[str, Any], secrets: list[Secret], replacement: Callable[[Secret, str], str]
) -> dict[str, Any]:
    """A copy of the entry with something else in the place of each secret."""
    changed: dict[str, Any] = mapped(dict(entry), str)
    by_text: dict[tuple[str | int, ...], list[Secret]] = {}
    for secret in secrets:
        by_text.setdefault(secret.keys, []).append(secret)
    for keys, each in by_text.items():
        holder: Any = changed
        for key in keys[:-1]:
            holder = holder[key]
        text = holder[keys[-1]]
        pieces, at = [], 0
        for secret in each:
            pieces += [text[at : secret.begin], replacement(secret, text[secret.begin : secret.end])]
            at = secret.end
        holder[keys[-1]] = "".join(pieces) + text[at:]
    return changed


def mapped(value: Any, change: Callable[[str], str]) -> Any:
    """JSON with something else for each of its texts and keys."""
    match value:
        case str():
            return change(value)
        case list():
            return [mapped(item, change) for item in value]
        case dict():
            return {change(key): mapped(item, change) for key, item in value.items()}
    return value


def _hidden(text: str) -> str:
    """A value without whatever is literal in it, but for words that give nothing away."""
    if text.lower() in _PLAIN_VALUES:
        return text
    scheme = _SCHEME.match(text)
    at = scheme.end() if scheme else 0
    shown = [text[:at]]
    for match in REFERENCE.finditer(text, at):
        name, mark, default = match[1].partition(":-")
        shown += [HIDDEN if match.start() > at else "", f"${{{name}{mark}{default and HIDDEN}}}"]
        at = match.end()
    shown.append(HIDDEN if at < len(text) else "")
    return "".join(shown)


# what is secret


def _spans(text: str, name: str | None) -> list[tuple[int, int, str]]:
    """Where secrets are in a text, and what each may be called."""
    label = name or ""
    secret_name = name is not None and _is_secret(name, text)
    references = list(REFERENCE.finditer(text))
    # Of references only a default may be secret.
    masked = REFERENCE.sub(lambda match: " " * len(match[0]), text)
    found: list[tuple[int, int, str]] = []
    for match in references:
        variable, mark, default = match[1].partition(":-")
        if default and (secret_name or _forms(default) or _is_secret(variable, default)):
            found.append((match.end() - 1 - len(mark + default), match.end() - 1, label or "SECRET"))
    if secret_name and not references:
        scheme = _SCHEME.match(text)
        hint = ("TOKEN" if scheme else "AUTHORIZATION") if label.lower() == "authorization" else label
        begin = scheme.end() if scheme and scheme.end() < len(text) else 0
        if text[begin:].strip():
            found.append((begin, len(text), hint))
    whole = _NAMED.fullmatch(masked)
    if whole and _is_secret(whole[1].lstrip("-"), whole[2]) and not references:
        scheme = _SCHEME.match(whole[2])
        hint = whole[1].lstrip("-")
        if hint.lower() == "authorization":
            hint = "TOKEN" if scheme else hint
        found.append((whole.start(2) + (scheme.end() if scheme else 0), len(text), hint))
    for pattern in (_ASSIGNED, _OPTION, _QUOTED):
        found += [
            (*match.span(2), match[1].lstrip("-"))
            for match in pattern.finditer(masked)
            if _is_secret(match[1].lstrip("-"), match[2]) and match[2].strip()
        ]
    found += [(*match.span(1), "PASSWORD") for match in _PASSWORD.finditer(masked) if match[1].strip()]
    found += [(begin, end, label or "KEY") for begin, end in _forms(masked)]
    return _apart(found)


def _forms(text: str) -> list[tuple[int, int]]:
    """Where a text has the form of a secret."""
    found = []
    for begin, end in tokens_in(text):
        # Of `user:password@` the password is secret, `git@` is not.
        user_info = text[end : end + 1] == "@" and text[:begin].endswith("://")
        if not user_info or (":" not in text[begin:end] and end - begin >= 12):
            found.append((begin, end))
    return found + [
        match.span()
        for match in _LONG.finditer(text)
        if _by_machine(match[0]) and not _REVISION.search(text, max(0, match.start() - 8), match.start())
    ]


def _by_machine(word: str) -> bool:
    """Whether letters and digits alternate as nobody would write them."""
    plain = word.replace("-", "").replace("_", "")
    kinds = ["0" if each.isdigit() else "a" if each.islower() else "A" for each in plain]
    changes = sum(before != after for before, after in pairwise(kinds))
    return kinds.count("0") >= 2 and kinds.count("0") < len(kinds) and changes >= 0.3 * len(plain)


def _is_secret(name: str, value: str) -> bool:
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or value.strip().lower() in _PLAIN_VALUES:
        return False
    if not is_secret_name(name) and not any(map(is_secret_name, words)):
        return False
    return words[-1] not in _PLAIN_LAST  # what has the form of a secret is found by that


def _apart(spans: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """The spans in order; what overlaps becomes one, called as the first that was found of it."""
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
