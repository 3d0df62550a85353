"""A saved program, and the problem of a file that is none. Pure."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from declarations.names import OBJECT_PROTOTYPE, RESERVED_WORDS, SPECIAL_MEMBERS
from declarations.untrusted_text import HIDDEN

if TYPE_CHECKING:
    from codemode_mcp.base.settings import Language
    from upstream_clients.tools import JsonObject

MAX_NAME: Final = 64
"""Maximum number of characters of the name of a saved program."""

MAX_TEXT: Final = 256 * 1024
"""Maximum number of bytes of a file."""

MAX_DESCRIPTION: Final = 4_000
"""Maximum number of characters of a description."""

SUFFIXES: Final[dict[str, Language]] = {".ts": "typescript", ".js": "javascript"}
"""Languages by the ends of the names of files."""

SOURCE_NAME: Final = "saved"
"""The second part of ids: `program:saved:<name>`."""

OF_REPL: Final = "$codemode_repl"
"""A name that only programs of `codemode-mcp repl` have. The prompt writes its session around them."""

NOT_NAMES: Final = OBJECT_PROTOTYPE | RESERVED_WORDS | SPECIAL_MEMBERS | {"index"}
"""Names with another meaning: on every object, in JavaScript, or as the file that lists all programs."""

_DEVICES: Final = re.compile("con|prn|aux|nul|(?:com|lpt)[0-9]", re.IGNORECASE)
"""Names of devices of Windows, whatever follows after a dot."""


class SavedProgram(Struct, frozen=True):
    """A file with one function that programs can call as `programs.<name>(input)`.

    Attributes:
        text: the whole file.
        description: the text of its doc comment before the first tag; may be empty.
        input_schema: the JSON Schema of the function's only parameter, always of an object.
        output_schema: the JSON Schema of the result; None if it is not known.
        takes_input: False if the function has no parameter.
        servers: the MCP servers that the text uses, as `Preflight.servers`.
        warning: a sentence about definitions of tools that have changed since; empty if none have. Not in the file.
        refusal: the reason why it cannot be called, because its text means other tools now; empty if it can. Not in the
            file.
    """

    name: str
    language: Language
    text: str
    description: str
    input_schema: JsonObject
    output_schema: JsonObject | None = None
    takes_input: bool = True
    servers: frozenset[str] | None = frozenset()
    warning: str = ""
    refusal: str = ""

    @property
    def digest(self) -> str:
        """The SHA-256 of the text, in hexadecimal."""
        return digest_of(self.text)

    @property
    def id(self) -> str:
        """The id in policy, in the list of a run's calls and in events."""
        return program_id(self.name)

    @property
    def file(self) -> str:
        return file_name(self.name, self.language)


class FileProblem(Struct, frozen=True):
    """The reason why a file of the folder is not a saved program.

    Attributes:
        file: the name of the file; empty for the folder itself.
        line: the 1-based line; 0 if the problem is not in the text.
    """

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        place = f"programs/{self.file}" if self.file else "programs"
        return f"{place}:{self.line}: {self.text}" if self.line else f"{place}: {self.text}"


class ProgramFileError(Exception):
    """Error for a text that is not a saved program.

    Attributes:
        line: the 1-based line in the text.
    """

    def __init__(self, line: int, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def program_id(name: str) -> str:
    return f"program:{SOURCE_NAME}:{name}"


def file_name(name: str, language: Language) -> str:
    return name + next(suffix for suffix, each in SUFFIXES.items() if each == language)


def name_problem(name: str) -> str | None:
    if not name or len(name) > MAX_NAME:
        return f"a name has 1 to {MAX_NAME} characters, and this one has {len(name)}; choose another one"
    if name in NOT_NAMES:
        return f"the name {name} has another meaning in JavaScript or here; choose another one"
    if _DEVICES.fullmatch(name) is not None:
        return f"{name} is a device of Windows, so no file can have this name; choose another one"
    # Names in NFC without hidden characters, so that no two of them look the same.
    if (
        not name.replace("$", "_").isidentifier()
        or unicodedata.normalize("NFC", name) != name
        or HIDDEN.search(name) is not None
    ):
        return "the name is no JavaScript identifier; use letters, digits and _, such as weeklyReport"
    return None
