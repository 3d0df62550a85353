"""The inputs of the prompt and the runs of its programs, at a terminal or on a pipe."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from codemode_mcp.base.did_you_mean import nearest
from codemode_mcp.base.display import counted, plain
from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.base.text import clip
from codemode_mcp.extensions.repl import cells
from codemode_mcp.extensions.repl.cells import SessionNames, identifiers_in, position_in, unwrapped, wrapped
from codemode_mcp.extensions.repl.vocabulary import Vocabulary
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.syntax import line_count

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from codemode_mcp.base.settings import Language
    from codemode_mcp.extensions.repl.programs import Answer, Programs
    from codemode_mcp.program.inspection import Preflight


MAX_RUNS: Final = 20
"""Maximum number of runs that `.runs` lists. The latest runs are listed."""

HELP: Final = """\
Every input is a program of its own, run by exec in a fresh sandbox: await works at the top, and
the last expression is the value. Names of earlier inputs are there again as far as they are JSON
or functions, and the last value is _.

Tab completes. Enter runs a complete input and continues an incomplete one; Alt-Enter runs any,
Ctrl-O begins a new line. Ctrl-C cancels the running program, Ctrl-D leaves.
"""


class Prompt:
    """The prompt of one session.

    Args:
        programs: runs the programs.
        language: the language of inputs; None to try JavaScript first, then TypeScript.
    """

    def __init__(self, programs: Programs, front: Front, language: Language | None = None) -> None:
        self._programs = programs
        self._front = front
        self._runner = Runner(programs, front)
        self.language = language

    def __repr__(self) -> str:
        return f"<Prompt: {self._runner!r}>"

    async def vocabulary(self) -> Vocabulary:
        names = self._runner.names
        values = names.values
        if self._runner.last is not None:
            values["_"] = self._runner.last
        about = dict.fromkeys(names.functions, "a function of this session")
        about |= {name: f"was {kind}" for name, kind in names.lost.items()}
        return Vocabulary(await self._programs.catalog(), values, about)

    async def take(self, text: str) -> bool | None:
        """Run a program or a command. Return False if it failed, True if it did not, or None to leave the prompt."""
        if not text.strip():
            return True
        command = cells.command(text)
        word = cells.word(text)
        if word is not None and word not in self._runner.names.all:
            if word == "clear":
                self._front.say(".clear forgets all names of this session; Ctrl-L clears the screen")
                return True
            command = cells.Command("help" if word == "help" else "exit", "")
        if command is not None and command.name == "exit":
            return None
        try:
            if command is None:
                return await self._runner.run(text, self.language)
            return await self._execute(command)
        except CodeModeError as error:
            self._front.fail(error.message, None)
            return False

    async def _execute(self, command: cells.Command) -> bool:
        action: Callable[[str], Awaitable[bool]] | None = getattr(self, f"_do_{command.name}", None)
        if action is None:
            near = nearest(command.name, cells.COMMANDS)
            hint = f"did you mean .{near[0]}?" if near else "see .help"
            self._front.fail(f"there is no command .{command.name}; {hint}", None)
            return False
        return await action(command.rest)

    async def _do_help(self, _: str) -> bool:
        self._front.print(HELP)
        for name, (argument, effect) in cells.COMMANDS.items():
            self._front.print(f"  {f'.{name} {argument}'.rstrip():<18} {effect}")
        return True

    async def _do_d(self, rest: str) -> bool:
        text = await self._programs.declarations(rest.strip().removeprefix("MCP.").strip("()"))
        self._front.declaration(text.rstrip())
        return True

    async def _do_search(self, rest: str) -> bool:
        if not rest:
            self._front.fail("say what you need, such as .search open an issue", None)
            return False
        hits = await self._programs.search(rest)
        for hit in hits:
            self._front.print(plain(hit.signature))
            if hit.description:
                self._front.print(f"    {plain(hit.description)}")
        if not hits:
            self._front.say(f"nothing matches {plain(rest)!r}")
        return True

    async def _do_wait(self, rest: str) -> bool:
        return await self._runner.resume(self._suspended(rest))

    async def _do_cancel(self, rest: str) -> bool:
        run_id = self._suspended(rest)
        await self._runner.cancel(run_id)
        self._front.say(f"{run_id} is cancelled")
        return True

    async def _do_runs(self, _: str) -> bool:
        for run in (await self._programs.runs())[:MAX_RUNS]:
            state = f"{run.state} ({run.code})" if run.code else str(run.state)
            hint = "  .wait resumes it" if run.id in self._runner.suspended else ""
            self._front.print(
                f"{run.id}  {state}, {counted(run.call_count, 'call')}, {run.age_ms / 1000:.0f} s ago{hint}"
            )
        return True

    async def _do_all(self, _: str) -> bool:
        self._front.print(json.dumps(self._runner.last, ensure_ascii=False, indent=2))
        return True

    async def _do_names(self, _: str) -> bool:
        names = self._runner.names
        for name, value in names.values.items():
            text = json.dumps(value, ensure_ascii=False)
            self._front.print(f"{plain(name)} = {plain(clip(text, 80))}")
        for name in names.functions:
            self._front.print(f"{plain(name)}: a function")
        for name, kind in names.lost.items():
            self._front.print(f"{plain(name)}: not kept, it was {plain(kind)}")
        return True

    async def _set_language(self, language: Language, title: str, _: str) -> bool:
        self.language = language
        self._front.say(f"inputs are {title} from here on")
        return True

    _do_ts = partialmethod(_set_language, "typescript", "TypeScript")
    _do_js = partialmethod(_set_language, "javascript", "JavaScript")

    async def _do_load(self, rest: str) -> bool:
        try:
            source = _read(rest)
        except (OSError, ValueError) as error:
            return self._fail_file("read", rest, error)
        return await self._runner.run(source, "typescript" if rest.endswith((".ts", ".mts", ".cts")) else self.language)

    async def _do_save(self, rest: str) -> bool:
        inputs = self._runner.inputs
        try:
            _write(rest, "".join(f"{each.rstrip()}\n" for each in inputs))
        except (OSError, ValueError) as error:
            return self._fail_file("write", rest, error)
        self._front.say(f"{counted(len(inputs), 'input')} saved in {plain(rest)}")
        return True

    async def _do_clear(self, _: str) -> bool:
        await self._runner.forget_names()
        self._front.say("all names of this session are forgotten")
        return True

    def _suspended(self, prefix: str) -> str:
        """Return the latest suspended run whose id begins with `prefix`. Raises `ProgramError`."""
        found = [each for each in self._runner.suspended if each.startswith(prefix)]
        if not found:
            which = f" whose id begins with {plain(prefix)!r}" if prefix else ""
            raise ProgramError("invalid_input", f"no program{which} is suspended; see .runs")
        return found[-1]

    def _fail_file(self, verb: str, name: str, error: OSError | ValueError) -> bool:
        if isinstance(error, FileExistsError):
            why = "it exists already; name another file"
        else:
            why = str((isinstance(error, OSError) and error.strerror) or error)
        self._front.fail(f"cannot {verb} {plain(name) or 'a file without a name'}: {why}", None)
        return False


def _read(name: str) -> str:
    return Path(name).expanduser().read_text("utf-8")


def _write(name: str, text: str) -> None:
    with Path(name).expanduser().open("x", encoding="utf-8") as file:
        file.write(text)


class Front(Protocol):
    """The output of the prompt."""

    def print(self, text: str) -> None: ...

    def value(self, value: Any) -> None:
        """Print the value of a program, which is not null."""
        ...

    def declaration(self, text: str) -> None: ...

    def say(self, text: str) -> None:
        """Print a remark for a person."""
        ...

    def fail(self, text: str, place: tuple[str, int, int] | None) -> None:
        """Print an error.

        Args:
            place: the program with the error, and the line and column of the error, both from 1; None if unknown.
        """
        ...


CANCEL_SECONDS: Final = 3.0
"""Timeout for cancelling an interrupted program."""

MAX_LISTED: Final = 20
"""Maximum number of lost names that are reported after one input."""

_SHOWN_LINE: Final = re.compile(r"^\s*\d+ \| ", re.MULTILINE)
"""A numbered line of the program in a message."""


@dataclass(frozen=True)
class Cell:
    """The program of one input.

    Attributes:
        source: the text that the author wrote.
        preflight: the analysis of the source; None if the program is run without the names of the session.
    """

    source: str
    preflight: Preflight | None

    def author(self, text: str) -> str:
        """Return a text with its positions changed to positions in the author's source."""
        if self.preflight is None:
            return text
        return unwrapped(text, self._lines, self.preflight.author_position)

    @cached_property
    def _lines(self) -> int:
        return line_count(self.source)


class Runner:
    """The runner for the programs of one session.

    Attributes:
        inputs: the programs so far.
        last: the value of the latest program that succeeded.
        names: the names that the session keeps.
        suspended: suspended programs by run id.
    """

    def __init__(self, programs: Programs, front: Front) -> None:
        self._programs = programs
        self._front = front
        self._explained = False
        self.inputs: list[str] = []
        self.last: Any = None
        self.names = SessionNames(None)
        self.suspended: dict[str, Cell] = {}

    def __repr__(self) -> str:
        return f"<Runner: {len(self.inputs)} inputs, {len(self.suspended)} suspended>"

    async def run(self, source: str, language: Language | None) -> bool:
        """Run a program until it ends or yields. Return False if it failed."""
        self.inputs.append(source)
        refused: CodeModeError | None = None
        for text, cell in await self._candidates(source):
            try:
                answer = await self._programs.execute(text, language, self._printer(cell))
            except CodeModeError as error:
                # The program was refused before it ran. Only the error of the last candidate is shown, because the last
                # candidate is the author's unchanged text.
                refused = error
                continue
            return await self._follow(answer, cell)
        assert refused is not None
        self._fail(refused.code, refused.message, Cell(source, None))
        return False

    async def resume(self, run_id: str) -> bool:
        """Resume a suspended program as `run` does. Raises `CodeModeError`."""
        cell = self.suspended[run_id]
        async with self._watched(run_id):
            answer = await self._programs.observe(run_id)
        return await self._follow(answer, cell)

    async def cancel(self, run_id: str) -> None:
        del self.suspended[run_id]
        await self._programs.cancel(run_id)

    async def forget_names(self) -> None:
        """Forget all names of the session, and the last value."""
        await self._programs.forget_names()
        self.names, self.last = SessionNames(None), None

    async def _candidates(self, source: str) -> list[tuple[str, Cell]]:
        """Return the programs that an input can mean. The first valid program is run.

        All but the last have code around the source, which passes on the names of the session. The last is the source
        alone, so that its errors show the author's text.
        """
        candidates: list[tuple[str, Cell]] = []
        try:
            preflight = inspect(source, "javascript")
        except ProgramError:
            preflight = None
        if preflight is not None:
            last, words = None, identifiers_in(source)
            earlier = not words.isdisjoint(self.names.all)
            if self.last is not None and "_" in words:
                last = await self._programs.offload(json.dumps(self.last, ensure_ascii=False))
            declared = cells.declared(source)
            texts = [source] if preflight.returning is None else [preflight.returning, source]
            if not declared and (stripped := source.strip()).startswith("{") and stripped.endswith("}"):
                texts.insert(0, f"return ({source}\n)")  # an object rather than a block, as at other prompts
            cell = Cell(source, preflight)
            key = self._programs.key
            candidates = [(wrapped(text, declared, key, earlier=earlier, last=last), cell) for text in texts]
        return [*candidates, (source, Cell(source, None))]

    def _printer(self, cell: Cell) -> Callable[[str], None]:
        return lambda text: self._front.print(cell.author(text))

    @asynccontextmanager
    async def _watched(self, run_id: str) -> AsyncIterator[None]:
        """Forget a run that fails or is interrupted. Cancel an interrupted run."""
        try:
            yield
        except CodeModeError:
            self.suspended.pop(run_id, None)
            raise
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CANCEL_SECONDS, shield=True), suppress(CodeModeError):
                await self._programs.cancel(run_id)
            self.suspended.pop(run_id, None)
            raise

    async def _follow(self, answer: Answer, cell: Cell) -> bool:
        try:
            async with self._watched(answer.run_id):
                while answer.status == "waiting" and answer.reason != "yield":
                    cancel = bool(answer.pending) and all(call.status == "needs_input" for call in answer.pending)
                    if cancel:
                        self._front.say(
                            "a server asks a question that cannot be answered here, so the program is cancelled"
                        )
                    answer = await self._programs.observe(answer.run_id, cancel=cancel)
        except CodeModeError as error:
            self._fail(error.code, error.message, cell)
            return False
        return await self._show(answer, cell)

    async def _show(self, answer: Answer, cell: Cell) -> bool:
        """Show an answer. Return False for a failure."""
        for note in (*answer.notes, *answer.asked):
            if not note.startswith("A person has to approve "):
                self._front.say(cell.author(note))
        if answer.status == "waiting":
            self.suspended[answer.run_id] = cell
            why = "" if answer.yielded is None else f": {plain(answer.yielded)}"
            self._front.say(f"the program has yielded control{why}")
            for call in answer.pending:
                self._front.say(f"  it waits for {plain(call.tool)} ({call.status}, {call.elapsed_ms / 1000:.1f} s)")
            self._front.say(".wait resumes it, .cancel ends it")
            return True
        self.suspended.pop(answer.run_id, None)
        if answer.dropped:
            self._front.say(f"{answer.dropped:,} characters of output were dropped: a program may print 8 Mi of them")
        await self._keep_names(cell)
        if answer.status == "failed":
            self._fail(answer.code, answer.error, cell)
            return False
        self.last = answer.value
        if answer.value is not None:
            self._front.value(answer.value)
        return True

    def _fail(self, code: str, message: str, cell: Cell) -> None:
        """Show an error. Leave out its code if the program itself threw the error (`internal_error`)."""
        message = cell.author(message)
        at = None if _SHOWN_LINE.search(message) else position_in(message)
        place = None if at is None else (cell.source, *at)
        self._front.fail(message if code == "internal_error" else f"{code}: {message}", place)

    async def _keep_names(self, cell: Cell) -> None:
        if cell.preflight is None:
            if cells.declared(cell.source):
                self._front.say("the names of this input are not kept, because it could only be run unchanged")
            return
        before = self.names.lost
        try:
            self.names = SessionNames(await self._programs.names())
        except CodeModeError as error:
            self._front.say(f"the names of this input are not known: {error.message}")
        for name, kind in list(self.names.lost.items())[:MAX_LISTED]:
            if before.get(name) != kind:
                self._front.say(f"{plain(name)} is {plain(kind)}: later inputs will not have it")
                if not self._explained:
                    self._front.say("each input is a program of its own; JSON and the text of functions are passed on")
                    self._explained = True
