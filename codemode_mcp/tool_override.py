"""The changes that the configuration makes to one tool of a server. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from upstream_clients.tools import Annotations

_MIN_SECRET: Final = 4
"""Minimum length of a text that is replaced in what a server sends."""

CONCEALED: Final = "(a secret of the configuration, not shown)"
"""The text that stands for a secret argument in a question to a person."""


@dataclass(frozen=True)
class ToolOverride:
    """One member of `override` in a server entry. Texts and annotations that are None stay as the server lists them.

    An argument is in one of `fixed`, `default` and `hidden` at most.

    Attributes:
        annotations: annotations of the operator. Those that are None stay as the server declares them.
        fixed: values of arguments that are sent with every call. Programs neither see nor give them.
        default: values of arguments that are sent if a program does not give them.
        hidden: arguments that programs neither see nor give, and that are not sent.
        secret: the names in `fixed` and `default` whose values are never shown.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Annotations | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict, repr=False)
    default: Mapping[str, Any] = field(default_factory=dict, repr=False)
    hidden: tuple[str, ...] = ()
    secret: frozenset[str] = frozenset()

    @cached_property
    def reserved(self) -> frozenset[str]:
        """The arguments that programs may not give."""
        return frozenset((*self.fixed, *self.hidden))

    @cached_property
    def changes_arguments(self) -> bool:
        """True if programs see other arguments than the server lists."""
        return bool(self.fixed or self.default or self.hidden)

    @property
    def secret_texts(self) -> frozenset[str]:
        """The texts of secret values. Short texts are left out: they are parts of many words."""
        values = [*self.fixed.items(), *self.default.items()]
        found = {text for name, value in values if name in self.secret for text in texts_in(value)}
        return frozenset(text for text in found if len(text) >= _MIN_SECRET)

    def unrecorded_in(self, arguments: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of arguments that are never recorded: fixed ones, and those with a secret default."""
        return frozenset(
            name
            for name, value in arguments.items()
            if name in self.fixed or (name in self.secret and value == self.default[name])
        )

    def concealing_secrets(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments with a text in place of each secret value that the configuration has set."""
        secret = self.unrecorded_in(arguments) & self.secret
        return {name: CONCEALED if name in secret else value for name, value in arguments.items()}


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the values in JSON data that are neither objects nor arrays."""
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict | list):
            pending += item.values() if isinstance(item, dict) else item
        else:
            yield item


def texts_in(value: Any) -> Iterator[str]:
    """Yield the strings and the numbers in JSON data, apart from keys."""
    return (str(each) for each in leaves_of(value) if each is not None and not isinstance(each, bool))
