"""The prompt on a terminal. Only this module uses prompt_toolkit."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import FormattedText, PygmentsTokens
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import DynamicLexer, PygmentsLexer
from prompt_toolkit.patch_stdout import patch_stdout
from pygments.lexers.javascript import JavascriptLexer, TypeScriptLexer

from codemode_mcp.base.paths import state_dir
from codemode_mcp.extensions.repl.cells import depth, is_incomplete
from codemode_mcp.extensions.repl.completion import complete
from codemode_mcp.extensions.repl.display import Part, lines_of, pointed, shown
from upstream_clients.private_files import NO_LINK, make_private, make_private_folder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from pathlib import Path

    from prompt_toolkit.document import Document

    from codemode_mcp.extensions.repl.vocabulary import Vocabulary

MAX_HISTORY: Final = 1_000_000
"""Maximum number of bytes of the history. A larger history is cut to the latest half of this limit."""

_STYLES: Final = {
    "": "",
    "string": "ansigreen",
    "number": "ansiyellow",
    "special": "ansimagenta",
    "dim": "ansibrightblack",
    "error": "ansired",
}


class Interrupted(Exception):
    """Ctrl-C was pressed at the prompt.

    Attributes:
        typed: whether the person had begun to type an input, which is discarded.
    """

    def __init__(self, *, typed: bool) -> None:
        super().__init__()
        self.typed = typed


class Reader:
    """A reader of inputs from a terminal.

    Args:
        vocabulary: returns the names that can be completed.
        is_typescript: returns True if inputs are coloured as TypeScript.
    """

    def __init__(
        self,
        vocabulary: Callable[[], Awaitable[Vocabulary]],
        is_typescript: Callable[[], bool],
        history: History | None = None,
    ) -> None:
        scripts = PygmentsLexer(JavascriptLexer), PygmentsLexer(TypeScriptLexer)
        self._session: PromptSession[str] = PromptSession(
            "> ",
            multiline=True,
            prompt_continuation=lambda width, number, wrapped: "| "[:width] if not wrapped else "  ",
            completer=_Completer(vocabulary),
            complete_while_typing=False,
            lexer=DynamicLexer(lambda: scripts[is_typescript()]),
            history=InMemoryHistory() if history is None else history,
            key_bindings=_keys(),
            enable_history_search=True,
            enable_open_in_editor=False,
        )

    def __repr__(self) -> str:
        return f"<Reader: {self._session.history!r}>"

    async def read(self) -> str | None:
        """Return the next input, or None after Ctrl-D.

        Raises:
            Interrupted: Ctrl-C was pressed.
        """
        try:
            # The log and other output appear above the prompt.
            with patch_stdout(raw=True):
                return await self._session.prompt_async()
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise Interrupted(typed=bool(self._session.default_buffer.text)) from None


class _Completer(Completer):
    def __init__(self, vocabulary: Callable[[], Awaitable[Vocabulary]]) -> None:
        self._vocabulary = vocabulary

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for each in complete(document.text, document.cursor_position, await self._vocabulary()):
            yield Completion(
                each.text,
                start_position=each.start - document.cursor_position,
                display=each.label,
                display_meta=each.meta,
            )


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
            buffer.complete_state = None  # accept the completion
        elif is_incomplete(buffer.text):
            indent = "  " * depth(buffer.document.text_before_cursor)
            buffer.insert_text("\n" + indent)
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    @keys.add("c-o")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @Condition
    def at_indent() -> bool:
        document = get_app().current_buffer.document
        return "\n" in document.text_before_cursor and not document.current_line_before_cursor.strip()

    @keys.add("tab", filter=at_indent)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("  ")

    @keys.add("}", filter=at_indent)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        buffer.delete_before_cursor(min(2, len(buffer.document.current_line_before_cursor)))
        buffer.insert_text("}")

    return keys


def history_path() -> Path:
    return state_dir() / "repl_history"


def open_history(path: Path) -> History:
    """Open the history in a private file. Create the file if it is missing.

    Raises:
        OSError: the file cannot be opened or made private.
    """
    make_private_folder(path.parent)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | NO_LINK, 0o600), "r+b") as file:
        make_private(file.fileno(), path)
        text = file.read()
        if len(text) > MAX_HISTORY:
            # An entry begins with a comment that gives its time. Keep complete entries only.
            kept = text[-MAX_HISTORY // 2 :]
            file.seek(0)
            file.write(kept[kept.find(b"\n# ") + 1 :])
            file.truncate()
    return _History(str(path))


class _History(FileHistory):
    """A history that leaves out inputs that begin with a space, as shells do."""

    def store_string(self, string: str) -> None:
        if not string.startswith(" "):
            with suppress(OSError):
                super().store_string(string)


def print_parts(lines: Iterable[list[Part]]) -> None:
    for line in lines:
        print_formatted_text(FormattedText([(_STYLES[style], text) for style, text in line]))


def print_value(value: Any, width: int) -> None:
    """Print a value, shortened if it is long."""
    lines, cut = shown(value, width - 1)
    print_parts(lines)
    if cut:
        print_parts([[("dim", "… there is more: .all prints all of it")]])


def print_error(text: str, place: tuple[str, int, int] | None, width: int) -> None:
    print_parts([[("error", line)] for line in lines_of(text).split("\n")])
    if place is not None:
        print_parts([[("dim", line)] for line in pointed(*place, width)])


def print_code(text: str) -> None:
    print_formatted_text(PygmentsTokens(list(TypeScriptLexer().get_tokens(lines_of(text)))), end="")
