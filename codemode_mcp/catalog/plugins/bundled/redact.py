"""The plugin `redact`: middleware that replaces keys, tokens and private keys in results, before programs get them.

It is not loaded unless the configuration has it: `{"plugins": {"redact": {"middleware": ["mcp:*"]}}}`. Its `config`:

- `except`: kinds of `token_forms.FORMS`, or `named value` and `credentials in a URL`, which stay as they are.

Three things are replaced: texts with the form of a token, values beside a name like `password`, and user and password
in a URL. Names alone are a weak sign: results have page tokens, token counts and lists of variables, too. So a value
beside a name must look random, and the names are fewer than those in our own log.

No library is used. detect-secrets, the best known, has had no release since 2024, scans the lines of files, and needs
an HTTP client.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.audit.redaction import FORMS, TokenForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from codemode_mcp.catalog.plugins.api import PluginApi, ToolCallEvent

NAMED: Final = "named value"
IN_URL: Final = "credentials in a URL"

KINDS: Final = frozenset({NAMED, IN_URL, *(form.kind for form in FORMS)})
"""The kinds that can be replaced."""

_NAME: Final = (
    r"pass(?:word|wd|phrase)|pwd|secret|api[_-]?key|apikey|access[_-]?key|secret[_-]?key|private[_-]?key|auth[_-]?token|"
    r"access[_-]?token|refresh[_-]?token|session[_-]?token|bot[_-]?token|client[_-]?secret|account[_-]?key|"
    r"encryption[_-]?key|signing[_-]?key|authorization|set-cookie"
)
"""Ends of names whose values are secrets. `token` alone is no such end: most are page tokens and counts."""

_IS_NAME: Final = re.compile(rf"[\w.-]{{0,60}}?(?:{_NAME})", re.IGNORECASE | re.ASCII)

_NAMED_IN_TEXT: Final = re.compile(
    rf"""(?<![A-Za-z0-9])((?:{_NAME})(?:\\?["'])?[ \t]{{0,8}}(?:=>|[:=])[ \t]{{0,8}}\\?["'`]?)"""
    r"""((?:bearer |basic )?[^\s"'`\\,;<>(){}\[\]]{6,500}+)(?![(\[{])""",
    re.IGNORECASE | re.ASCII,
)
_NAMED_MARK: Final = re.compile(
    r"(?:word|wd|phrase|secret|key|token|authorization|cookie)(?:\\?[\"'])?[ \t]{0,8}(?:=>|[:=])", re.ASCII
)
"""The end of a name, in small letters, and what follows it. Looking for this is four times faster."""

_USER_INFO: Final = re.compile(r"(://[^\s/@:\"'<>?#]{1,200}:)([^\s/@\"'<>?#]{1,1000})@", re.ASCII)
_STAND_IN: Final = (
    r"(?<![a-zA-Z0-9])(?i:your|my|the|some|change|changeme|example|sample|test|dummy|fake|placeholder|redacted|required|"
    r"optional|undefined|password|passwd|secret|token)(?![a-zA-Z0-9])|\*\*|(?i:xxxx)|\.\.\.|^[$%<{]|[}>]$"
)
_IS_STAND_IN: Final = re.compile(_STAND_IN, re.ASCII)
_PLACEHOLDER: Final = re.compile(
    _STAND_IN
    + r"|^process\.|^os\.|^env[.:]|^[a-z]+(?:[_-][a-z]+)*$|^[A-Z]+(?:_[A-Z]+)*$|^(?:Bearer|Basic)$|^[./~]|^https?:",
    re.ASCII,
)
"""Values that stand for a secret: `<your key>`, `${TOKEN}`, `process.env.KEY`, `changeme`, words, paths and URLs."""


class Redaction:
    """The replacement of secrets in JSON values.

    Args:
        excepted: the kinds that stay as they are.
    """

    def __init__(self, excepted: frozenset[str] = frozenset()) -> None:
        self._forms = tuple(form for form in FORMS if form.kind not in excepted)
        self._named = NAMED not in excepted
        self._in_url = IN_URL not in excepted

    def value(self, value: Any, name: str = "") -> Any:
        """Return a JSON value without secrets; the same object if it has none.

        Args:
            name: the name of the member that has the value.
        """
        match value:
            case str():
                if self._named and name and looks_random(value) and _IS_NAME.fullmatch(name[-80:]):
                    return _hidden(NAMED)
                return self.text(value)
            case dict():
                changed = {key: new for key, each in value.items() if (new := self.value(each, str(key))) is not each}
                return {**value, **changed} if changed else value
            case list():
                items = [self.value(each, name) for each in value]
                return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        return value

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        present = [form for form in self._forms if any(mark in text for mark in form.marks)]
        for form in present:
            text = _compiled(form).sub(_hidden(form.kind), text)
        if self._in_url and "://" in text and "@" in text:
            text = _USER_INFO.sub(_hide_in_url, text)
        if self._named and _NAMED_MARK.search(text.lower()):
            text = _NAMED_IN_TEXT.sub(_hide_named, text)
        return text


def looks_random(value: str) -> bool:
    """Return True if a value may be a secret, and is neither a word nor a placeholder."""
    value = value.strip()
    if not 6 <= len(value) <= 4096 or value.startswith("[redacted:") or _PLACEHOLDER.search(value[:64]):
        return False
    kinds = (str.islower, str.isupper, str.isdigit, lambda each: not each.isalnum())
    return sum(any(map(kind, value)) for kind in kinds) >= 2 and not value.isdecimal()


def _hide_named(found: re.Match[str]) -> str:
    return f"{found[1]}{_hidden(NAMED)}" if looks_random(found[2]) else found[0]


def _hide_in_url(found: re.Match[str]) -> str:
    return found[0] if _IS_STAND_IN.search(found[2]) else f"{found[1]}{_hidden(IN_URL)}@"


def _hidden(kind: str) -> str:
    return f"[redacted: {kind}]"


@cache
def _compiled(form: TokenForm) -> re.Pattern[str]:
    return re.compile(form.pattern, re.DOTALL)


def redact_result(redaction: Redaction, result: Any) -> Any:
    """Return a result without secrets. Binary contents (`data`, `blob`) stay as they are."""
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return redaction.value(result)
    rest = {key: redaction.value(each, key) for key, each in result.items() if key != "content"}
    return {**rest, "content": [_block(redaction, each) for each in content]}


def _block(redaction: Redaction, block: Any) -> Any:
    if not isinstance(block, dict):
        return redaction.value(block)
    kept = {key: block[key] for key in ("data", "blob") if key in block}
    new = {key: redaction.value(each, key) for key, each in block.items() if key not in kept and key != "resource"}
    if "resource" in block:
        new["resource"] = _block(redaction, block["resource"])
    return new | kept


def register(api: PluginApi) -> None:
    """Register the middleware. It is not `async`, so that large results do not block the event loop."""
    redaction = Redaction(_excepted(api.config))

    def redact(event: ToolCallEvent, result: Any) -> Any:
        return redact_result(redaction, result)

    api.tool_result_middleware(redact, tools=["*"])


def _excepted(config: Mapping[str, Any]) -> frozenset[str]:
    for key in config.keys() - {"except"}:
        raise ValueError(f"config has the unknown key {key!r}; allowed: except")
    given = config.get("except", [])
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ValueError("config.except must be an array of strings")
    for each in given:
        if each not in KINDS:
            raise ValueError(f"config.except has the unknown kind {each!r}; allowed: {', '.join(sorted(KINDS))}")
    return frozenset(given)
