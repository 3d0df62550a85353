"""The inputs of the prompt: programs and commands. Output goes to a `Front`, at a terminal or on a pipe."""

from __future__ import annotations

import json
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Final

from codemode_mcp.cli.repl import cells
from codemode_mcp.cli.repl.runner import Runner
from codemode_mcp.cli.repl.vocabulary import Vocabulary
from codemode_mcp.control.display import counted, plain
from codemode_mcp.did_you_mean import nearest
from codemode_mcp.errors import CodeModeError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from codemode_mcp.cli.repl.front import Front
    from codemode_mcp.cli.repl.programs import Programs
    from codemode_mcp.settings import Language

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
        """Return the names that can be completed."""
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
            self._front.print(f"{plain(name)} = {plain(text if len(text) <= 80 else text[:79] + '…')}")
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
