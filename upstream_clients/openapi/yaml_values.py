"""A scanner and a constructor of YAML whose work is bounded. Pure: no I/O.

The scanner reads about 30,000 tokens in a second, and a document that is hardly more than commas has one in each byte.
Merge keys (`<<`) copy the members of other mappings. A few lines whose mappings merge each other twice would make any
number of members. Sexagesimal numbers of YAML 1.1 take quadratic time.

Only imported for documents in YAML, since `ruamel.yaml` takes long to import.
"""

from __future__ import annotations

from typing import Any, Final

from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.nodes import MappingNode, SequenceNode
from ruamel.yaml.scanner import Scanner

from upstream_clients.openapi.document import DocumentError

MAX_TOKENS: Final = 800_000
"""Maximum number of tokens. A document of the largest size has half of them, since it has descriptions."""
MAX_WORK: Final = 2_000_000
"""Maximum number of members of mappings that are looked through. A member that is merged counts ten times."""
MAX_NUMBER: Final = 1_000
"""Maximum length of a number."""

_MERGE: Final = "tag:yaml.org,2002:merge"
_NUMBERS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class BoundedScanner(Scanner):
    """The scanner of one document."""

    _left = MAX_TOKENS

    def fetch_more_tokens(self) -> Any:
        """Raise `DocumentError` if there are too many tokens."""
        self._left -= 1
        if self._left < 0:
            raise DocumentError(f"the document in YAML has more than {MAX_TOKENS} tokens; give the same one in JSON")
        return super().fetch_more_tokens()


class WrittenNumber(float):
    """A number whose text in the document differs from that in JSON, such as `007` and `1.10`.

    Attributes:
        value: the number.
        text: the number as the document has it.
    """

    value: int | float
    text: str

    def __str__(self) -> str:
        return self.text


class BoundedConstructor(SafeConstructor):
    """The constructor of the values of one document."""

    _left = MAX_WORK

    def flatten_mapping(self, node: Any) -> Any:
        """Raise `DocumentError` before merge keys make too many members."""
        merged = 0
        for key, value in node.value:
            if key.tag == _MERGE:
                for each in value.value if isinstance(value, SequenceNode) else [value]:
                    if isinstance(each, MappingNode):
                        self.flatten_mapping(each)  # has no merge keys after this
                        merged += len(each.value)
        self._left -= len(node.value) + 10 * merged
        if self._left < 0:
            raise DocumentError("the document has merge keys (`<<`) that repeat too much")
        return super().flatten_mapping(node)

    def construct_scalar(self, node: Any) -> Any:
        """Raise `DocumentError` for a number that is too long."""
        if node.tag in _NUMBERS and len(node.value) > MAX_NUMBER:
            raise DocumentError(f"the document has a number of more than {MAX_NUMBER} characters")
        return super().construct_scalar(node)

    def construct_number(self, node: Any) -> Any:
        """Return a number, with its text if that is not certain."""
        read = self.construct_yaml_int if node.tag == _NUMBERS[0] else self.construct_yaml_float
        value = read(node)
        if repr(value) == node.value or not -1e300 < value < 1e300:
            return value
        written = WrittenNumber(value)
        written.value, written.text = value, node.value
        return written


for _tag in _NUMBERS:
    BoundedConstructor.add_constructor(_tag, BoundedConstructor.construct_number)
