"""Server entries without their literal secrets, and with variables in their place. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codemode_mcp.audit.redaction import HIDDEN, without_tokens
from codemode_mcp.config.literals import PLAIN_VALUES, REFERENCE, SCHEME, WORD, Secret, secrets_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping


@dataclass(frozen=True, slots=True)
class Names:
    """Gives out names of variables: one for each thing, never the same for two. The mutable state is `taken`."""

    taken: dict[str, Hashable] = field(default_factory=dict)

    def give(self, hint: str, server: str, thing: Hashable, *, own: bool) -> str:
        """Return the name for `thing`: what the hint says, with the server's name in front of it where that is needed.

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
        name = "_".join(WORD.findall(text)).upper()
    if not name:
        return "VALUE"
    return name if not name[0].isdigit() else f"_{name}"


def without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry as it may be shown. More is hidden than is certainly secret: all literal values of `env` and
    `headers` but for words like `true`."""
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
    """Return the entry with a reference to a variable for each literal secret, and which is for which."""
    given: list[tuple[str, Secret]] = []

    def refer(secret: Secret, text: str) -> str:
        if text.startswith(":-"):
            return ""
        own = secret.hint == secret.hint.upper() and "_" in secret.hint
        name = names.give(re.sub(r"(?i)^x-", "", secret.hint), server, ("value", text), own=own)
        given.append((name, secret))
        return f"${{{name}}}"

    return _changed(entry, secrets_of(entry), refer), tuple(given)


def _changed(
    entry: Mapping[str, Any], secrets: list[Secret], replacement: Callable[[Secret, str], str]
) -> dict[str, Any]:
    """Return a copy of the entry with something else in the place of each secret."""
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
    """Return a value without whatever is literal in it, but for words that give nothing away."""
    if text.lower() in PLAIN_VALUES:
        return text
    scheme = SCHEME.match(text)
    at = scheme.end() if scheme else 0
    shown = [text[:at]]
    for match in REFERENCE.finditer(text, at):
        name, mark, default = match[1].partition(":-")
        shown += [HIDDEN if match.start() > at else "", f"${{{name}{mark}{default and HIDDEN}}}"]
        at = match.end()
    shown.append(HIDDEN if at < len(text) else "")
    return "".join(shown)
