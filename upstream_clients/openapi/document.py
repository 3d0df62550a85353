"""OpenAPI documents as plain JSON values, and their local references. Pure: no I/O.

Documents are read into dicts and lists, and not into classes: a document may have one bad operation, which must not
hide the others, and its schemas are needed as JSON anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from upstream_clients.openapi.budget import Budget

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_REFERENCES: Final = 20
"""Maximum number of references that lead from one to the next."""


MAX_REFERENCE: Final = 1_000


class DocumentError(Exception):
    """A document that cannot be used. The message is a sentence for a person, without the address of the document."""


class UnsupportedError(Exception):
    """A part of a document that cannot be used. The message is the reason, as part of a sentence."""


class Document:
    """A document of OpenAPI 3.

    Attributes:
        root: the whole document.
        is_legacy: True for OpenAPI 3.0 and Swagger 2, whose schemas are not JSON Schema.
        budget: the work that the document may still take.
    """

    def __init__(self, root: Mapping[str, Any], *, is_legacy: bool, budget: Budget | None = None) -> None:
        self.root = root
        self.is_legacy = is_legacy
        self.budget = budget or Budget()
        self._targets: dict[str, Any] = {}

    def target(self, reference: str) -> Any:
        """Return the value that a reference leads to.

        Raises:
            UnsupportedError: it leads outside the document or nowhere.
            BudgetError: the document has taken too much work.
        """
        try:
            return self._targets[reference]
        except KeyError:
            self.budget.spend(1, 4 * min(len(reference), MAX_REFERENCE))
            found = self._targets[reference] = self._found(reference)
            return found

    def _found(self, reference: str) -> Any:
        if len(reference) > MAX_REFERENCE:
            raise UnsupportedError(f"its reference {shown(reference)} is longer than {MAX_REFERENCE} characters")
        if not reference.startswith("#"):
            raise UnsupportedError(f"it refers to another document, {shown(reference)}")
        here: Any = self.root
        for segment in unquote(reference[1:]).split("/")[1:]:
            key = segment.replace("~1", "/").replace("~0", "~")
            if isinstance(here, dict) and key in here:
                here = here[key]
            elif isinstance(here, list) and key.isascii() and key.isdecimal() and len(key) < 7 and int(key) < len(here):
                here = here[int(key)]
            else:
                raise UnsupportedError(f"its reference {shown(reference)} leads nowhere")
        return here

    def follow(self, node: Any) -> Any:
        """Return a value, or the value at the end of its references.

        Raises:
            UnsupportedError: a reference leads outside the document, nowhere or in a circle.
            BudgetError: the document has taken too much work.
        """
        for _ in range(MAX_REFERENCES):
            if not isinstance(node, dict) or not isinstance(node.get("$ref"), str):
                return node
            self.budget.spend(1)
            node = self.target(node["$ref"])
        raise UnsupportedError(f"it has more than {MAX_REFERENCES} references in a row")


def shown(text: str) -> str:
    """Return a text of a document for a message: one short line of printable characters, in quotes."""
    line = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text[:200])
    return repr(line if len(text) <= 100 else line[:97] + "...")
