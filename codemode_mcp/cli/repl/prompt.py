"""Inputs of the prompt: programs are run, commands are obeyed. Knows neither a terminal nor a pipe."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio

from codemode_mcp.cli.repl import cells
from codemode_mcp.cli.repl.session import KEY, Kept, position_in, spoken_of, unwrapped, wrapped
from codemode_mcp.cli.repl.vocabulary import Vocabulary
from codemode_mcp.control.display import counted, plain
from codemode_mcp.did_you_mean import nearest
from codemode_mcp.errors import CodeModeError, ProgramError
from codemode_mcp.program.preflight import inspect
from codemode_mcp.program.syntax import line_count
from codemode_mcp.runs.outputs import printed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.program.inspection import Preflight
    from codemode_mcp.runs.questions import Client
    from codemode_mcp.settings import Language

UNATTENDED: Final = "`codemode-mcp repl`, which cannot ask here; tools.approved lets a call pass"

CANCEL_SECONDS: Final = 3.0
"""Seconds for a program that is given up to end."""

MOST_SAID: Final = 20
"""Names that are listed in one line."""

MOST_RUNS: Final = 20
"""Latest runs that are listed."""

_SHOWN_LINE: Final = re.compile(r"^\s*\d+ \| ", re.MULTILINE)
"""A numbered line of the program in a message."""

HELP: Final = """\
Every input is a program of its own, run by exec in a fresh sandbox: await works at the top, and
the last expression is the value. Names of earlier inputs are there again as far as they are JSON
or functions, and the last value is _.

Tab completes. Enter runs a complete input and continues an incomplete one; Alt-Enter runs any,
Ctrl-O begins a new line. Ctrl-C cancels the running program, Ctrl-D leaves.
"""


class Front(Protocol):
    """The person who types and reads the answers."""

    @property
    def client(self) -> Client:
        """Client of the programs."""
        ...

    @property
    def decides(self) -> bool:
        """A person decides about calls that need an approval."""
        ...

    def print(self, text: str) -> None:
        """Lines of what was asked for."""
        ...

    def value(self, value: Any) -> None:
        """Show the value of a program; not null."""
        ...

    def declaration(self, text: str) -> None:
        """TypeScript that was asked for."""
        ...

    def say(self, text: str) -> None:
        """A line for a person."""
        ...

    def fail(self, text: str, place: tuple[str, int, int] | None) -> None:
        """An error, and the text, line and column it is about."""
        ...


@dataclass(frozen=True)
class _Cell:
    """A program as it is run for an input.

    Attributes:
        source: what the author wrote.
        found: of it; None where it is run as it is, without names of the session.
    """

    source: str
    found: Preflight | None

    def author(self, text: str) -> str:
        """Return a text with the author's positions."""
        if self.found is None:
            return text
        return unwrapped(text, self._lines, self.found.author_position)

    @cached_property
    def _lines(self) -> int:
        return line_count(self.source)


class Prompt:
    """One session.

    Args:
        opened: where programs run.
        language: of what is typed; None: JavaScript, else TypeScript, by trying.
    """

    def __init__(self, opened: App, front: Front, language: Language | None = None) -> None:
        self._app = opened
        self._front = front
        self.language = language
        self._last: Any = None
        self._inputs: list[str] = []
        self._suspended: dict[str, _Cell] = {}
        self._kept = Kept(None)
        self._explained = False

    def __repr__(self) -> str:
        return f"<Prompt: {len(self._inputs)} inputs, {len(self._suspended)} suspended>"

    @property
    def _owner(self) -> str:
        owner = self._app.operator.owner
        assert owner is not None
        return owner

    async def vocabulary(self) -> Vocabulary:
        """Return the names that can be completed at the moment."""
        catalog = await self._app.catalog_for(self._app.operator, self._front.client)
        values = self._kept.values
        if self._last is not None:
            values["_"] = self._last
        names = dict.fromkeys(self._kept.functions, "a function of this session")
        return Vocabulary(catalog, values, names | {name: f"was {what}" for name, what in self._kept.lost.items()})

    async def take(self, text: str) -> bool | None:
        """Do what is asked for. Whether it succeeded; None: leave."""
        if not text.strip():
            return True
        asked = cells.command(text)
        word = cells.word(text)
        if word is not None and word not in self._kept.names:
            if word == "clear":
                self._front.say(".clear forgets all names of this session; Ctrl-L clears the screen")
                return True
            asked = cells.Command("help" if word == "help" else "exit", "")
        if asked is None:
            return await self.run(text, self.language)
        if asked.name == "exit":
            return None
        obey: Callable[[str], Awaitable[bool]] | None = getattr(self, f"_do_{asked.name}", None)
        if obey is None:
            near = nearest(asked.name, cells.COMMANDS)
            hint = f"did you mean .{near[0]}?" if near else "see .help"
            self._front.fail(f"there is no command .{asked.name}; {hint}", None)
            return False
        try:
            return await obey(asked.rest)
        except CodeModeError as error:
            self._front.fail(error.message, None)
            return False

    # programs

    async def run(self, source: str, language: Language | None) -> bool:
        """Run a program, and follow it until it ends or yields."""
        self._inputs.append(source)
        refused: CodeModeError | None = None
        for text, cell in await self._ways(source):
            try:
                outcome = await self._app.execute(
                    text, language, self._app.operator, self._front.client, on_output=self._printer(cell)
                )
            except CodeModeError as error:
                # Nothing of it has run. Of several verdicts, that on the author's own text is the one to show.
                refused = error
                continue
            return await self._follow(outcome, cell)
        assert refused is not None
        self._fail(refused.code, refused.message, _Cell(source, None))
        return False

    async def _ways(self, source: str) -> list[tuple[str, _Cell]]:
        """Return the programs that an input may be, in the order in which they are tried: the first that is one counts.

        Around all that is put for the sake of names, what is wrong with the text itself is told by the last, which is
        the text alone.
        """
        ways: list[tuple[str, _Cell]] = []
        try:
            found = inspect(source, "javascript")
        except ProgramError:
            found = None
        if found is not None:
            last, words = None, spoken_of(source)
            earlier = not words.isdisjoint(self._kept.names)
            if self._last is not None and "_" in words:
                last = await self._app.offload(self._owner, json.dumps(self._last, ensure_ascii=False))
            names = cells.declared(source)
            texts = [source] if found.returning is None else [found.returning, source]
            if not names and (stripped := source.strip()).startswith("{") and stripped.endswith("}"):
                texts.insert(0, f"return ({source}\n)")  # as at other prompts, an object rather than a block
            ways = [(wrapped(text, names, earlier=earlier, last=last), _Cell(source, found)) for text in texts]
        return [*ways, (source, _Cell(source, None))]

    def _printer(self, cell: _Cell) -> Callable[[Sequence[Mapping[str, Any]]], None]:
        def show(outputs: Sequence[Mapping[str, Any]]) -> None:
            for item in outputs:
                self._front.print(cell.author(printed(item)))

        return show

    async def _follow(self, outcome: Outcome, cell: _Cell) -> bool:
        """Observe a run until it ends or yields."""
        manager = await self._app.manager()
        try:
            while outcome.status == "waiting" and outcome.reason != "yield":
                if not self._front.decides:
                    manager.operator.decide(outcome.run_id, None, approved=False, by=UNATTENDED)
                cancel = bool(outcome.pending) and all(call.status == "needs_input" for call in outcome.pending)
                if cancel:
                    self._front.say("a server asks a question that cannot be answered here: the program is cancelled")
                outcome = await self._app.observe(outcome.run_id, self._owner, cancel=cancel, client=self._front.client)
        except CodeModeError as error:
            self._suspended.pop(outcome.run_id, None)
            self._fail(error.code, error.message, cell)
            return False
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                await manager.operator.cancel(outcome.run_id)
            self._suspended.pop(outcome.run_id, None)
            raise
        return await self._tell(outcome, cell)

    async def _tell(self, outcome: Outcome, cell: _Cell) -> bool:
        for note in (*outcome.notes, *outcome.asked):
            if not note.startswith("A person has to approve "):
                self._front.say(cell.author(note))
        if outcome.status == "waiting":
            self._suspended[outcome.run_id] = cell
            why = "" if outcome.yielded is None else f": {plain(outcome.yielded)}"
            self._front.say(f"the program has yielded control{why}")
            for call in outcome.pending:
                self._front.say(f"  it waits for {plain(call.tool)} ({call.status}, {call.elapsed_ms / 1000:.1f} s)")
            self._front.say("resume it by .wait, end it by .cancel")
            return True
        self._suspended.pop(outcome.run_id, None)
        if outcome.dropped:
            self._front.say(
                f"{outcome.dropped:,} characters of output were thrown away: a program may print 8 Mi of them"
            )
        await self._keep(cell)
        if outcome.status == "failed":
            self._fail(outcome.code, outcome.error, cell)
            return False
        self._last = outcome.value
        if outcome.value is not None:
            self._front.value(outcome.value)
        return True

    def _fail(self, code: str, message: str, cell: _Cell) -> None:
        """Show an error, with the code unless the program itself has thrown."""
        message = cell.author(message)
        at = None if _SHOWN_LINE.search(message) else position_in(message)
        place = None if at is None else (cell.source, *at)
        self._front.fail(message if code == "internal_error" else f"{code}: {message}", place)

    async def _keep(self, cell: _Cell) -> None:
        """Look at what there is for the next program, and say of what there is not."""
        if cell.found is None:
            if cells.declared(cell.source):
                self._front.say("names of this input are not kept: it could be run only by itself")
            return
        before, self._kept = self._kept.lost, Kept(await self._app.stored(self._owner, KEY))
        for name, what in list(self._kept.lost.items())[:MOST_SAID]:
            if before.get(name) != what:
                self._front.say(f"{plain(name)} is {plain(what)}: later inputs will not have it")
                if not self._explained:
                    self._front.say("each input is a program of its own; JSON and the text of functions are passed on")
                    self._explained = True

    # commands

    async def _do_help(self, _: str) -> bool:
        self._front.print(HELP)
        for name, (takes, about) in cells.COMMANDS.items():
            self._front.print(f"  {f'.{name} {takes}'.rstrip():<18} {about}")
        return True

    async def _do_d(self, rest: str) -> bool:
        catalog = await self._catalog()
        wanted = rest.strip().removeprefix("MCP.").strip("()")
        server, mark, tool = wanted.partition("#" if "#" in wanted else ".")
        if not server:
            self._front.declaration(catalog.files.text("mcp/index.d.ts").rstrip())
        elif server == "tools":
            self._front.declaration(catalog.toolset.declarations().rstrip())
        else:
            found = next((each for each in catalog.servers if server in (each.identifier, each.alias, each.name)), None)
            path = f"mcp/{server}.d.ts" if found is None else found.path
            self._front.declaration(str(catalog.files.read(f"{path}#{tool}" if mark else path)["content"]).rstrip())
        return True

    async def _do_search(self, rest: str) -> bool:
        if not rest:
            self._front.fail("say what you need, such as .search open an issue", None)
            return False
        catalog = await self._catalog()
        limit = self._app.settings().code_mode.search_default_limit
        hits = [*catalog.search(rest, limit, None), *catalog.toolset.search(rest, limit)]
        for hit in hits:
            self._front.print(plain(hit["signature"] or hit.get("call", hit.get("id", ""))))
            if hit["description"]:
                self._front.print(f"    {plain(hit['description'])}")
        if not hits:
            self._front.say(f"nothing matches {plain(rest)!r}")
        return True

    async def _do_wait(self, rest: str) -> bool:
        run_id = self._chosen(rest)
        cell = self._suspended[run_id]
        try:
            outcome = await self._app.observe(run_id, self._owner, client=self._front.client)
        except CodeModeError:
            self._suspended.pop(run_id, None)
            raise
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True), anyio.move_on_after(CANCEL_SECONDS):
                await (await self._app.manager()).operator.cancel(run_id)
            self._suspended.pop(run_id, None)
            raise
        return await self._follow(outcome, cell)

    async def _do_cancel(self, rest: str) -> bool:
        run_id = self._chosen(rest)
        self._suspended.pop(run_id)
        await (await self._app.manager()).operator.cancel(run_id)
        self._front.say(f"{run_id} is cancelled")
        return True

    async def _do_runs(self, _: str) -> bool:
        for view in (await self._app.manager()).operator.views()[:MOST_RUNS]:
            state = f"{view.state} ({view.code})" if view.code else str(view.state)
            waits = "  .wait resumes it" if view.id in self._suspended else ""
            self._front.print(
                f"{view.id}  {state}, {counted(view.call_count, 'call')}, {view.age_ms / 1000:.0f} s ago{waits}"
            )
        return True

    async def _do_all(self, _: str) -> bool:
        self._front.print(json.dumps(self._last, ensure_ascii=False, indent=2))
        return True

    async def _do_names(self, _: str) -> bool:
        for name, value in self._kept.values.items():
            text = json.dumps(value, ensure_ascii=False)
            self._front.print(f"{plain(name)} = {plain(text if len(text) <= 80 else text[:79] + '…')}")
        for name in self._kept.functions:
            self._front.print(f"{plain(name)}: a function")
        for name, what in self._kept.lost.items():
            self._front.print(f"{plain(name)}: not kept, it was {plain(what)}")
        return True

    async def _do_ts(self, _: str) -> bool:
        self.language = "typescript"
        self._front.say("what follows is TypeScript")
        return True

    async def _do_js(self, _: str) -> bool:
        self.language = "javascript"
        self._front.say("what follows is JavaScript")
        return True

    async def _do_load(self, rest: str) -> bool:
        try:
            source, is_typescript = _read(rest)
        except (OSError, ValueError) as error:
            self._front.fail(f"cannot read {plain(rest) or 'a file without a name'}: {_why(error)}", None)
            return False
        return await self.run(source, "typescript" if is_typescript else self.language)

    async def _do_save(self, rest: str) -> bool:
        try:
            _write(rest, "".join(f"{each.rstrip()}\n" for each in self._inputs))
        except (OSError, ValueError) as error:
            self._front.fail(f"cannot write {plain(rest) or 'a file without a name'}: {_why(error)}", None)
            return False
        self._front.say(f"{len(self._inputs)} inputs are in {plain(rest)}")
        return True

    async def _do_clear(self, _: str) -> bool:
        await self._app.execute(f"store({json.dumps(KEY)}, {{}})", "javascript", self._app.operator)
        self._kept, self._last = Kept(await self._app.stored(self._owner, KEY)), None
        self._front.say("all names of this session are forgotten")
        return True

    async def _catalog(self) -> Catalog:
        return await self._app.catalog_for(self._app.operator, self._front.client)

    def _chosen(self, rest: str) -> str:
        """Return the suspended run that is meant. Raises `ProgramError`."""
        found = [each for each in self._suspended if each.startswith(rest)]
        if not found:
            which = f" whose id begins with {plain(rest)!r}" if rest else ""
            raise ProgramError("invalid_input", f"no program{which} is suspended; see .runs")
        return found[-1]


def _read(name: str) -> tuple[str, bool]:
    """Return the text of a file, and whether it is called TypeScript."""
    path = Path(name).expanduser()
    return path.read_text("utf-8"), path.suffix in (".ts", ".mts", ".cts")


def _write(name: str, text: str) -> None:
    with Path(name).expanduser().open("x", encoding="utf-8") as file:
        file.write(text)


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, FileExistsError):
        return "it is there already; name another file"
    return str(error.strerror or error) if isinstance(error, OSError) else str(error)
