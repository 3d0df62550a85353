"""Server entries with their literal secrets hidden, or replaced by variables. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codemode_mcp.audit.redaction import HIDDEN, without_tokens
from codemode_mcp.cli.mcp_clients.json_values import map_strings
from codemode_mcp.config.literals import REFERENCE, SCHEME, Secret, secrets_of
from upstream_clients.secret_values import PLAIN_VALUES, WORD

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping


@dataclass(frozen=True, slots=True)
class VariableNames:
    """Names for environment variables. Each value has one name, and no two values share a name.

    Attributes:
        taken: the values by name. This is the mutable state.
    """

    taken: dict[str, Hashable] = field(default_factory=dict)

    def name_for(self, hint: str, server: str, value: Hashable, *, short: bool) -> str:
        """Return the name for a value: the hint, after the server's name if the hint alone is unclear or taken.

        Args:
            short: whether the hint alone is clear enough.
        """
        hint, prefix = variable_name(hint), variable_name(server)
        full = hint if f"{hint}_".startswith(f"{prefix}_") else f"{prefix}_{hint}"
        names = [*([hint] if short else []), full, *(f"{full}_{number}" for number in range(2, len(self.taken) + 3))]
        name = next(each for each in names if self.taken.get(each, value) == value)
        self.taken[name] = value
        return name


def variable_name(text: str) -> str:
    """Return the text in the form of a variable's name: `api-key` and `apiKey` become `API_KEY`."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) and (text.isupper() or text.islower()):
        name = text.upper()
    else:
        name = "_".join(WORD.findall(text)).upper()
    return f"_{name}" if name[:1].isdigit() else name or "VALUE"


def without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry in a form that may be shown.

    Every literal value of `env` and `headers` is hidden, except words like `true`, because it may be a secret.
    """
    shown = _replace_secrets(entry, lambda _, text: f":-{HIDDEN}" if text.startswith(":-") else HIDDEN)
    for table in ("env", "headers"):
        if isinstance(shown.get(table), dict):
            shown[table] = {
                key: _hide_literals(value) if isinstance(value, str) else value for key, value in shown[table].items()
            }
    return map_strings(shown, without_tokens, keys=True)


def with_variables(
    entry: Mapping[str, Any], server: str, names: VariableNames
) -> tuple[dict[str, Any], tuple[tuple[str, Secret], ...]]:
    """Return the entry with variables in place of literal secrets, and pairs of a variable's name and its secret."""
    uses: list[tuple[str, Secret]] = []

    def reference(secret: Secret, text: str) -> str:
        if text.startswith(":-"):
            return ""
        short = secret.hint == secret.hint.upper() and "_" in secret.hint
        name = names.name_for(re.sub(r"(?i)^x-", "", secret.hint), server, ("value", text), short=short)
        uses.append((name, secret))
        return f"${{{name}}}"

    return _replace_secrets(entry, reference), tuple(uses)


def _replace_secrets(entry: Mapping[str, Any], replacement: Callable[[Secret, str], str]) -> dict[str, Any]:
    """Return a copy of the entry with a replacement for each literal secret."""
    changed = map_strings(dict(entry), str)
    by_text: dict[tuple[str | int, ...], list[Secret]] = {}
    for secret in secrets_of(entry):
        by_text.setdefault(secret.keys, []).append(secret)
    for keys, secrets in by_text.items():
        holder: Any = changed
        for key in keys[:-1]:
            holder = holder[key]
        text = holder[keys[-1]]
        pieces, at = [], 0
        for secret in secrets:
            pieces += [text[at : secret.begin], replacement(secret, text[secret.begin : secret.end])]
            at = secret.end
        holder[keys[-1]] = "".join(pieces) + text[at:]
    return changed


def _hide_literals(text: str) -> str:
    """Return a value with everything hidden except references, schemes such as `Bearer`, and plain words."""
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
