"""The projects of one compiler process: a folder for each variant of a catalog's declarations. Blocks.

A project stays open, so that a check only parses the program. The program's text is replaced by an empty one after its
check. The projects that were not used for the longest time are closed.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import msgspec
import msgspec.structs

from codemode_mcp.extensions.type_check.checker import CompilerFailed
from codemode_mcp.extensions.type_check.compiler import Compiler, CompilerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from codemode_mcp.base.settings import Language
    from codemode_mcp.extensions.type_check.declared import CheckedText, Declared, Variant


_PROPERTY: Final = 4
"""The flag of symbols that are properties."""

MAX_PROJECTS: Final = 8
"""Maximum number of open projects."""

_CELLS: Final[dict[Language, str]] = {"javascript": "cell.js", "typescript": "cell.ts"}
_OWN: Final = frozenset(_CELLS.values())

_OPTIONS: Final = {
    # Programs are not written for strict options: what these refuse is style, and runs.
    "strict": False,
    "noImplicitAny": False,
    "noEmit": True,
    "target": "esnext",
    # The engine has built-ins of later editions than the editor's folder promises.
    "lib": ["esnext"],
    "types": [],
    "typeRoots": [],
    "module": "esnext",
    "moduleResolution": "bundler",
    "moduleDetection": "force",
    "noResolve": True,
    "allowJs": True,
    "checkJs": True,
    "skipLibCheck": True,
    "noErrorTruncation": True,
}


class Session:
    """A compiler process with its projects.

    Args:
        compiler: the compiler to start.

    Raises:
        CompilerFailed: the process cannot be started.
    """

    def __init__(self, compiler: Compiler) -> None:
        self.process = CompilerProcess(compiler)
        self._projects: OrderedDict[tuple[int, Variant], tuple[str, Declared]] = OrderedDict()
        self._numbers = count()
        self._snapshot: int | None = None
        self._open: list[str] = []

    def open(self, declared: Declared, variant: Variant) -> str:
        """Return the folder of a project, which is opened if it is not open."""
        key = (id(declared), variant)
        if key in self._projects:
            self._projects.move_to_end(key)
            return self._projects[key][0]
        closed = []
        while len(self._projects) >= MAX_PROJECTS:
            _, (oldest, _) = self._projects.popitem(last=False)
            closed.append(f"{oldest}/tsconfig.json")
            self.process.remove(oldest)
        folder = f"/check/{next(self._numbers)}"
        files = {f"{folder}/{path}": text for path, text in declared.variant(variant).items()}
        cells = {f"{folder}/{name}": "" for name in _CELLS.values()}
        config = {"compilerOptions": _OPTIONS, "files": [*cells, *files]}
        self.process.write({**files, **cells, f"{folder}/tsconfig.json": json.dumps(config)})
        self._update({"openProjects": [f"{folder}/tsconfig.json"], "closeProjects": closed})
        if not self.process.has_read_library:
            raise CompilerFailed("the compiler does not find the declarations of the language")
        self._projects[key] = folder, declared
        return folder

    def put(self, folder: str, text: CheckedText | None, language: Language) -> None:
        """Replace the program of a project. None removes it."""
        path = f"{folder}/{_CELLS[language]}"
        # Lone surrogates cannot be sent. The replacement has the same length in UTF-16 units.
        sent = "" if text is None else text.text.encode("utf-8", "replace").decode("utf-8")
        self.process.write({path: sent})
        self._update({"fileChanges": {"changed": [path]}})

    def syntax_errors(self, folder: str, language: Language) -> tuple[Diagnostic, ...]:
        return self._diagnostics("getSyntacticDiagnostics", folder, language)

    def type_errors(self, folder: str, language: Language) -> tuple[Diagnostic, ...]:
        return self._diagnostics("getSemanticDiagnostics", folder, language)

    def declaration_files(
        self, folder: str, language: Language, offsets: Sequence[int]
    ) -> list[tuple[str, str] | None]:
        """Return the name and the declaring file of the symbol at each offset of the checked text."""
        if not offsets:
            return []
        found = self._ask("getSymbolsAtPositions", folder, language, positions=list(offsets))
        if not isinstance(found, list) or len(found) != len(offsets):
            return [None] * len(offsets)
        declared = [_declaration(each, folder) for each in found]
        own = [at for at, each in zip(offsets, declared, strict=True) if each is not None and each[1] in _OWN]
        taken = dict(zip(own, self._signature_files(folder, language, own), strict=True))
        return [
            each if each is None or not taken.get(at) else (each[0], taken[at])
            for at, each in zip(offsets, declared, strict=True)
        ]

    def _signature_files(self, folder: str, language: Language, offsets: Sequence[int]) -> list[str]:
        """Return the file that declares the signature of the function at each offset; empty if there is not one.

        A variable of the program may have a function of the catalog, as in `const { list } = MCP.issues`.
        """
        files = []
        place = {"snapshot": self._snapshot, "project": f"{folder}/tsconfig.json"}
        types = self._ask("getTypesAtPositions", folder, language, positions=list(offsets)) if offsets else []
        for each in types if isinstance(types, list) else [None] * len(offsets):
            declaration = ""
            if isinstance(each, dict):
                found = self.process.request("getSignaturesOfType", {**place, "type": each["id"], "kind": 0})
                signatures = found if isinstance(found, list) else []
                if len(signatures) == 1:
                    declaration = str(signatures[0].get("declaration") or "")
            file = f"/{declaration.partition('/')[2]}".removeprefix(f"{folder}/")
            files.append(file if file.startswith(("mcp/", "programs/", "tools.d.ts")) else "")
        return files

    def type_texts(self, folder: str, language: Language, offsets: Sequence[int]) -> list[str]:
        """Return the type of the expression at each offset of the checked text, as TypeScript; empty if unknown."""
        if not offsets:
            return []
        types = self._ask("getTypesAtPositions", folder, language, positions=list(offsets))
        place = {"snapshot": self._snapshot, "project": f"{folder}/tsconfig.json"}
        return [
            str(self.process.request("typeToString", {**place, "type": each["id"]})) if isinstance(each, dict) else ""
            for each in (types if isinstance(types, list) else [None] * len(offsets))
        ]

    def end(self) -> None:
        self.process.end()

    def _diagnostics(self, method: str, folder: str, language: Language) -> tuple[Diagnostic, ...]:
        try:
            return decoded(self._ask(method, folder, language))
        except msgspec.ValidationError as error:
            raise CompilerFailed(f"{method}: {error}") from error

    def _ask(self, method: str, folder: str, language: Language, **more: Any) -> Any:
        place = {"snapshot": self._snapshot, "project": f"{folder}/tsconfig.json"}
        return self.process.request(method, {**place, "file": f"{folder}/{_CELLS[language]}", **more})

    def _update(self, changes: dict[str, Any]) -> None:
        response = self.process.request("updateSnapshot", changes)
        snapshot = response.get("snapshot") if isinstance(response, dict) else None
        if not isinstance(snapshot, int):
            raise CompilerFailed("updateSnapshot: no snapshot")
        if self._snapshot is not None:
            self.process.request("release", {"snapshot": self._snapshot})
        self._snapshot = snapshot


def _declaration(symbol: Any, folder: str) -> tuple[str, str] | None:
    declarations = symbol.get("declarations") if isinstance(symbol, dict) else None
    if not isinstance(declarations, list) or not declarations or symbol.get("flags", 0) & _PROPERTY:
        return None
    path = str(declarations[0]).partition("/")
    return str(symbol.get("name")), f"/{path[2]}".removeprefix(f"{folder}/")


class Diagnostic(msgspec.Struct, frozen=True):
    """A message of the compiler about a part of a file.

    Attributes:
        pos, end: offsets in UTF-16 units.
        messageChain: reasons, each of which may have reasons.
        relatedInformation: hints, such as that an `await` may be missing.
    """

    code: int
    text: str
    pos: int = 0
    end: int = 0
    messageChain: tuple[Diagnostic, ...] = ()  # noqa: N815 - the name of the compiler
    relatedInformation: tuple[Diagnostic, ...] = ()  # noqa: N815 - the name of the compiler

    def moved(self, by: int) -> Diagnostic:
        return msgspec.structs.replace(self, pos=self.pos + by, end=self.end + by)

    def texts(self) -> Iterator[str]:
        """Yield the message and its reasons, from the outside to the inside."""
        yield self.text
        for reason in self.messageChain:
            yield from reason.texts()


def decoded(response: Any) -> tuple[Diagnostic, ...]:
    """Return the diagnostics in a response of the compiler. Raises `msgspec.ValidationError`."""
    return msgspec.convert(response or [], tuple[Diagnostic, ...])
