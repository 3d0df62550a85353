"""Redaction: the secrets that must never be recorded, the forms of tokens, and their replacements.

Three kinds of values are replaced: known secrets, from the configuration or a login; everything that looks like a
token; and values under a name like `password`. Inputs are recorded as their shape and a digest. If the operator wants
the inputs themselves, all three kinds are replaced in them.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from upstream_clients.redaction import HIDDEN, hide, is_secret_name, is_word

# The forms of keys and tokens by which they are recognised. Data only.
#
# The forms are those that the issuers document. Each form has a fixed beginning or middle part, its mark. A text
# without any mark has no token, and looking for marks is a hundred times faster than matching patterns. Repetitions
# have bounds, and no two parts of a pattern can match the same text, so matching takes linear time. Forms without a
# mark, such as 32 hexadecimal digits, are left out: they are mostly hashes and ids.


_START: Final = r"(?<![\w-])"


class TokenForm(NamedTuple):
    """A form of tokens.

    Attributes:
        kind: the words for a reader.
        marks: texts of which a token has one.
        pattern: a regular expression.
    """

    kind: str
    marks: tuple[str, ...]
    pattern: str


FORMS: Final = (
    TokenForm(
        "private key",
        ("-----BEGIN",),
        r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
        r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    ),
    TokenForm("private key", ("AGE-SECRET-KEY-1",), _START + r"AGE-SECRET-KEY-1[0-9A-Z]{50,70}"),
    TokenForm("JSON web token", ("eyJ",), _START + r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    TokenForm(
        "GitHub token",
        ("ghp_", "gho_", "ghs_", "ghu_", "ghr_", "github_pat_"),
        _START + r"(?:gh[opsur]_|github_pat_)[\w-]{16,255}",
    ),
    TokenForm(
        "GitLab token",
        ("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-"),
        _START + r"gl(?:pat|dt|rt|cbt|ptt)-[\w-]{16,255}",
    ),
    TokenForm("API key", ("sk-", "sk_", "rk_", "pk_"), _START + r"(?:sk-|sk_|rk_|pk_)[\w-]{16,255}"),
    TokenForm("webhook secret", ("whsec_",), _START + r"whsec_[\w+/=-]{16,255}"),
    TokenForm("Slack token", ("xox", "xapp-"), _START + r"(?:xox[abeoprs]-|xapp-)[\w-]{16,255}"),
    TokenForm("Slack webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows)/[\w/-]{20,200}"),
    TokenForm("npm token", ("npm_",), _START + r"npm_[\w-]{16,255}"),
    TokenForm("PyPI token", ("pypi-",), _START + r"pypi-[\w-]{16,255}"),
    TokenForm("Docker token", ("dckr_pat_", "dckr_oat_"), _START + r"dckr_[po]at_[\w-]{16,255}"),
    TokenForm("Hugging Face token", ("hf_",), _START + r"hf_[\w-]{16,255}"),
    TokenForm("API key", ("gsk_", "r8_", "xai-"), _START + r"(?:gsk_|r8_|xai-)[A-Za-z0-9]{30,255}(?![\w-])"),
    TokenForm("Google token", ("ya29.", "GOCSPX-"), _START + r"(?:ya29\.|GOCSPX-)[\w-]{16,}"),
    TokenForm("Google API key", ("AIza",), _START + r"AIza[\w-]{35}"),
    TokenForm("AWS access key", ("AKIA", "ASIA"), _START + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?!\w)"),
    TokenForm("Azure key", ("AccountKey=", "SharedAccessKey="), r"(?:AccountKey|SharedAccessKey)=[\w+/=%]{20,200}"),
    TokenForm("DigitalOcean token", ("_v1_",), _START + r"do[oprt]_v1_[0-9a-f]{64}(?!\w)"),
    TokenForm("SendGrid key", ("SG.",), _START + r"SG\.[\w-]{16,64}\.[\w-]{16,64}"),
    TokenForm("Telegram token", (":AA",), r"(?<![\w:-])[0-9]{8,10}:AA[\w-]{32,34}(?![\w-])"),
    TokenForm("Shopify token", ("shp",), _START + r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}(?!\w)"),
    TokenForm("Square token", ("sq0",), _START + r"sq0(?:atp|csp|idp)-[\w-]{22,60}"),
    TokenForm("Atlassian token", ("ATATT3", "ATCTT3"), _START + r"AT[AC]TT3[\w=-]{40,300}"),
    TokenForm(
        "API key",
        ("lin_api_", "ntn_", "figd_", "PMAK-", "NRAK-", "glsa_", "glc_", "sntrys_", "pscale_tkn_", "dapi"),
        _START
        + r"(?:lin_api_|ntn_|figd_|PMAK-|NRAK-|glsa_|glc_|sntrys_|pscale_tkn_|dapi(?=[0-9a-f]{32}))[\w=.-]{20,300}",
    ),
    TokenForm("Vault token", ("hvs.", "hvb."), _START + r"hv[sb]\.[\w-]{20,300}"),
    TokenForm("Terraform token", (".atlasv1.",), _START + r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,70}"),
)


class Secretive(Protocol):
    """A holder of secret values, such as a server's configuration."""

    def redact(self, text: str) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def named_secrets(self) -> Mapping[str, str]:
        """The secret values, each with a name that is not secret."""
        ...


MAX_HOLDERS: Final = 2_000
"""Maximum number of holders whose secrets are remembered. Each costs microseconds for every line of the log."""

MAX_INPUT: Final = 64 * 1024
"""Maximum characters of an input that is recorded, or whose shape is recorded."""

MAX_KEYS: Final = 20
"""Maximum number of keys of one object in a recorded shape."""

MAX_DEPTH: Final = 4
"""Maximum levels of nesting in a recorded shape."""

_MAX_DIGITS: Final = 3
_FIELD: Final = re.compile(r"[A-Za-z_$][\w$.-]{0,59}", re.ASCII)


class Redactor:
    """A function that replaces the secrets of all configurations so far, and everything that looks like a token."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Other threads read this state without the lock. So it is always replaced as a whole, and never changed.
        self._known: dict[int, Secretive] = {}
        """Holders by identity, because two equal ones may learn different secrets. The oldest come first."""
        self._present: list[Secretive] = []
        """The holders in use."""

    def know(self, holders: Iterable[Secretive]) -> None:
        """Replace the secrets of these holders, too, from now on. May be called in any thread."""
        with self._lock:
            # A server with an unchanged configuration keeps its holder, which may have learned further secrets.
            self._present = [next((old for old in self._present if old == each), each) for each in holders]
            known = self._known | {id(each): each for each in self._present}
            self._known = dict(list(known.items())[-MAX_HOLDERS:])

    @property
    def named_secrets(self) -> dict[str, str]:
        """The secret values of all configurations so far, each with a name that begins with the name of its holder."""
        found: dict[str, str] = {}
        for holder in reversed(self._known.values()):  # the latest configuration has the best names
            for value, name in holder.named_secrets.items():
                found.setdefault(value, f"{holder.name}_{name}")
        return found

    def __call__(self, text: str) -> str:
        """Return a text of others without secrets."""
        for holder in self._known.values():
            text = holder.redact(text)
        return without_tokens(text)

    def own(self, text: str) -> str:
        """Return a text of ours, such as a line of the log, without secrets.

        Texts of others within it have been redacted by the secrets of their server. So only values that look like
        credentials are replaced: one that is a word would be hidden in sentences and commands, too.
        """
        holders = tuple(self._known.values())
        names = "\n".join(holder.name for holder in holders)
        values = dict.fromkeys(value for holder in holders for value in holder.named_secrets)
        return without_tokens(hide(text, tuple(each for each in values if each not in names and not is_word(each))))


# what looks like a secret

_BEARER: Final = re.compile(r"(?<!\w)(bearer|basic)( |%20)[\w.~+/-]{8,}=*", re.IGNORECASE | re.ASCII)
_USER_INFO: Final = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]{0,30}://)[^\s/@\"'<>?#]{1,1000}@", re.ASCII)
_MARKS: Final = tuple(dict.fromkeys(mark for form in FORMS for mark in form.marks))


@cache
def _tokens() -> re.Pattern[str]:
    # Compiled when it is first needed: this takes longer than the rest of the module.
    return re.compile("|".join(form.pattern for form in FORMS), re.DOTALL)


def without_tokens(text: str) -> str:
    """Return a text without tokens, private keys, and credentials in URLs, as far as their form shows them."""
    if any(mark in text for mark in _MARKS):
        text = _tokens().sub(HIDDEN, text)
    lower = text.lower()
    if "bearer" in lower or "basic" in lower:
        text = _BEARER.sub(lambda found: f"{found[1]}{found[2]}{HIDDEN}", text)
    if "://" in text and "@" in text:
        text = _USER_INFO.sub(lambda found: f"{found[1]}{HIDDEN}@", text)
    return text


def tokens_in(text: str) -> list[tuple[int, int]]:
    """Return the start and the end of each part that `without_tokens` replaces."""
    found = [match.span() for match in _tokens().finditer(text)] if any(mark in text for mark in _MARKS) else []
    found += [(match.end(2), match.end()) for match in _BEARER.finditer(text)]
    found += [(match.end(1), match.end() - 1) for match in _USER_INFO.finditer(text)]
    return sorted(found)


_NAMED_TEXT: Final = re.compile(
    r"""(?<![\w$-])(["'`]?)([\w$-]{2,60})\1(\s{0,20}[:=]\s{0,20})(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)""",
    re.ASCII,
)


def without_named_secrets(source: str) -> str:
    """Return a program in which the strings for names like `password` are replaced."""

    def hide(found: re.Match[str]) -> str:
        if not is_secret_name(found[2]):
            return found[0]
        return f'{found[1]}{found[2]}{found[1]}{found[3]}"{HIDDEN}"'

    return _NAMED_TEXT.sub(hide, source)


def redacted(value: Any, redact: Callable[[str], str]) -> Any:
    """Return JSON data without secrets: strings and keys are redacted, and values with a secret name are replaced."""
    match value:
        case str():
            return redact(value)
        case list():
            return [redacted(item, redact) for item in value]
        case dict():
            return {
                redact(key): HIDDEN if is_secret_name(key) and item is not None else redacted(item, redact)
                for key, item in value.items()
            }
    return value


def shape(value: Any, redact: Callable[[str], str], depth: int = 0) -> Any:
    """Return the shape of a JSON value: its keys, types and sizes, without any strings, numbers or booleans.

    `{"title": "string 12", "labels": ["string 3", "… 4 more"], "dry": "boolean"}`.
    """
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return f"string {len(value)}"
        case list():
            if not value or depth >= MAX_DEPTH:
                return f"array {len(value)}"
            first = [shape(value[0], redact, depth + 1)]
            return [*first, f"… {len(value) - 1} more"] if len(value) > 1 else first
        case dict():
            if depth >= MAX_DEPTH:
                return f"object {len(value)}"
            found: dict[str, Any] = {}
            for number, (key, item) in enumerate(value.items()):
                if number == MAX_KEYS:
                    found["…"] = f"{len(value) - MAX_KEYS} more"
                    break
                found[_field_name(key, redact)] = shape(item, redact, depth + 1)
            return found
    return type(value).__name__


def _field_name(key: str, redact: Callable[[str], str]) -> str:
    """Return a key if it looks like the name of a field; its size otherwise.

    The keys of maps are data, such as addresses, numbers or sentences.
    """
    plain = redact(key)
    if plain == HIDDEN or (_FIELD.fullmatch(plain) and sum(map(str.isdigit, plain)) <= _MAX_DIGITS):
        return plain
    return f"key of {len(key)}"


class Inputs:
    """The maker of the records of inputs. May be used in any thread.

    Args:
        include: True to record the inputs themselves, without secrets.
    """

    def __init__(self, *, include: bool) -> None:
        self._include = include
        self._key = secrets.token_bytes(16)

    def of_program(self, source: str, redact: Callable[[str], str]) -> dict[str, Any]:
        """Return the record of a program's source. Its digest is the SHA-256, by which a program can be recognised."""
        data = source.encode("utf-8", "surrogatepass")
        record: dict[str, Any] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        if self._include and len(source) > MAX_INPUT:
            record["omitted"] = f"more than {MAX_INPUT} characters"
        elif self._include:
            record["text"] = redact(without_named_secrets(source))
        return record

    def of_arguments(self, text: str, redact: Callable[[str], str]) -> dict[str, Any]:
        """Return the record of the JSON text of arguments.

        Equal arguments have the same digest. It is made with a key of this process, because a short secret could be
        guessed from a digest without a key.
        """
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, digest_size=8, key=self._key).hexdigest()
        record: dict[str, Any] = {"digest": digest, "bytes": len(data)}
        if len(text) > MAX_INPUT:
            return record | {"omitted": f"more than {MAX_INPUT} characters"}
        try:
            value = json.loads(text)
            if self._include:
                return record | {"value": redacted(value, redact)}
            return record | {"shape": shape(value, redact)}
        except (ValueError, RecursionError):
            return record | {"omitted": "no JSON that could be read"}


class Known:
    """A holder of secret values that do not belong to a server.

    Args:
        name: the name of the section that has the values.
    """

    def __init__(self, values: Iterable[str], name: str = "other") -> None:
        self.name = name
        self._values = tuple(value for value in values if len(value) >= 4)

    def __repr__(self) -> str:
        return f"<Known: {len(self._values)} values>"

    @property
    def named_secrets(self) -> Mapping[str, str]:
        return {value: str(number) for number, value in enumerate(self._values, 1)}

    def redact(self, text: str) -> str:
        return hide(text, self._values)
