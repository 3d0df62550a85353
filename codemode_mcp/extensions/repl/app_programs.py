"""The programs of a session in an application, also for a prompt in another process."""

from __future__ import annotations

import logging
import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
import anyio.to_thread
from msgspec.structs import replace

from codemode_mcp.audit.events import Event, request_id
from codemode_mcp.base.errors import CodeModeError, ErrorCode, ProgramError
from codemode_mcp.base.strict_json import ascii_json, form_from
from codemode_mcp.catalog.serialize import catalog_text
from codemode_mcp.cli.following import Progress, TerminalClient, UnattendedClient, draw_progress, progress_of
from codemode_mcp.extensions.repl.programs import Answer, Hit, SessionRun
from codemode_mcp.process.instance import wire
from codemode_mcp.runs.outputs import printed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from anyio.abc import TaskGroup

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.cli.terminal import Terminal
    from codemode_mcp.process.instance.clients import CommandTerminal
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.runs.calls.outcome import Outcome
    from codemode_mcp.server.services import App


UNATTENDED: Final = "`codemode-mcp repl`, which cannot ask here; tools.approved lets a call pass"
"""The name of the decider for calls that are denied because no person can approve them."""

CLOSE_SECONDS: Final = 3.0
"""Timeout for cancelling a program, and for removing what a session leaves behind."""

log = logging.getLogger("codemode_mcp.process.app")


@asynccontextmanager
async def app_programs(
    app: App, caller: Caller, terminal: Callable[[], Terminal | None], *, attended: bool, draws: bool
) -> AsyncIterator[AppPrograms]:
    """Run programs of one session for the duration of the context. Leaving ends its runs, and forgets its names.

    Args:
        terminal: returns the terminal of the program that runs; None on a pipe.
        attended: whether a person at the terminal can approve calls.
        draws: whether the terminal shows a progress line.
    """
    programs = AppPrograms(app, caller, terminal, attended=attended, draws=draws)
    app.auditor.add(programs.listen)
    try:
        yield programs
    finally:
        app.auditor.remove(programs.listen)
        with anyio.move_on_after(CLOSE_SECONDS, shield=True):
            await programs.close()


class AppPrograms:
    """The implementation of `Programs` over an `App`. Use `app_programs`."""

    def __init__(
        self, app: App, caller: Caller, terminal: Callable[[], Terminal | None], *, attended: bool, draws: bool
    ) -> None:
        assert caller.owner is not None
        self.key = f"codemode-mcp repl {secrets.token_hex(16)}"
        self._app = app
        self._caller = caller
        self._owner = caller.owner
        self._terminal = terminal
        self._attended = attended
        self._draws = draws
        self._request = ""
        self._runs: set[str] = set()
        """All runs of the session."""
        self._unended: set[str] = set()
        """The runs that have not ended."""
        self._current: str | None = None
        """The run that the progress line is about."""
        self._progress: Progress | None = None
        self._offloaded: str | None = None

    def __repr__(self) -> str:
        return f"<AppPrograms: {len(self._runs)} runs>"

    def listen(self, event: Event) -> None:
        """Note the runs of the session, and the calls of the run that is followed."""
        if event.kind == "run_started" and event.parent == self._request:
            self._runs.add(event.id)
            self._unended.add(event.id)
            self._current = event.id
        elif event.kind == "run_ended":
            self._unended.discard(event.id)
        if self._progress is not None and self._current is not None and event.parent == self._current:
            self._progress.listen(event)

    async def close(self) -> None:
        """Cancel the runs that have not ended, and forget everything that the session has stored."""
        try:
            for run_id in [*self._unended]:
                await self.cancel(run_id)
            await self._forget_offloaded()
            await self.forget_names()
        except CodeModeError as error:
            log.warning("the names of a session of codemode-mcp repl could not be removed: %s", error)

    # programs

    async def execute(self, source: str, language: Language | None, on_output: Callable[[str], None]) -> Answer:
        def on_outputs(outputs: Sequence[Mapping[str, Any]]) -> None:
            for each in outputs:
                on_output(printed(each))

        self._request = request_id()
        client = self._client()
        self._follow(None)
        manager = await self._app.manager()
        from codemode_mcp.program.prepare import Cell

        cell = Cell(source, language, self._caller, self._request)
        execution = manager.execute(cell, client, on_outputs)
        try:
            return await self._answered(execution, client)
        except anyio.get_cancelled_exc_class():
            # The program may have been suspended just before.
            if self._current in self._unended:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True), suppress(CodeModeError):
                    await self.cancel(self._current)
            raise

    async def observe(self, run_id: str, *, cancel: bool = False) -> Answer:
        client = self._client()
        if run_id != self._current:
            self._follow(run_id)
        manager = await self._app.manager()
        return await self._answered(manager.observe(run_id, self._owner, cancel=cancel, client=client), client)

    async def cancel(self, run_id: str) -> None:
        await (await self._app.manager()).operator.cancel(run_id)

    async def runs(self) -> Sequence[SessionRun]:
        views = (await self._app.manager()).operator.views()
        return [form_from(SessionRun, view) for view in views if view.id in self._runs]

    def _client(self) -> UnattendedClient:
        terminal = self._terminal() if self._attended else None
        return UnattendedClient() if terminal is None else TerminalClient(terminal)

    def _follow(self, run_id: str | None) -> None:
        """Begin a progress line about a run, or about the run that begins next."""
        self._current = run_id
        self._progress = None

    async def _answered(self, work: Awaitable[Outcome], client: UnattendedClient) -> Answer:
        """Return the answer to a request, and draw the progress line until then."""
        outcome = await self._with_progress(work)
        continues = outcome.status == "waiting" and outcome.reason != "yield"
        if continues and not client.decides:
            with suppress(CodeModeError):  # the run has ended meanwhile, and the next request says so
                manager = await self._app.manager()
                manager.operator.decide(outcome.run_id, None, approved=False, by=UNATTENDED)
        return form_from(Answer, outcome)

    async def _with_progress(self, work: Awaitable[Outcome]) -> Outcome:
        terminal = self._terminal() if self._draws else None
        if terminal is None:
            return await work
        await self._app.manager()
        progress = self._progress = self._progress or progress_of(self._app)
        error: CodeModeError | None = None
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(draw_progress, terminal, progress, lambda: progress.begun)
                try:
                    return await work
                except CodeModeError as failure:
                    error = failure
                finally:
                    group.cancel_scope.cancel()
        finally:
            terminal.status = ""
        assert error is not None
        raise error

    # values

    async def offload(self, text: str) -> str | None:
        await self._forget_offloaded()
        self._offloaded = await self._app.offload(self._owner, text)
        return self._offloaded

    async def _forget_offloaded(self) -> None:
        if self._offloaded is not None:
            await (await self._app.values()).remove(self._owner, self._offloaded)
            self._offloaded = None

    async def names(self) -> str | None:
        return await (await self._app.values()).load(self._owner, self.key)

    async def forget_names(self) -> None:
        await (await self._app.values()).remove(self._owner, self.key)

    # tools

    async def connect(self, seconds: float) -> None:
        await self._app.connect(seconds)

    async def catalog(self) -> Catalog:
        await self._app.manager()
        return await self._app.catalog_for(self._caller, self._client())

    async def declarations(self, name: str) -> str:
        catalog = await self.catalog()
        server, mark, tool = name.partition("#" if "#" in name else ".")
        if not server:
            return catalog.files.text("mcp/index.d.ts")
        if server == "tools":
            return catalog.toolset.declarations()
        found = next((each for each in catalog.servers if server in (each.identifier, each.alias, each.name)), None)
        path = f"mcp/{server}.d.ts" if found is None else found.path
        return str(catalog.files.read(f"{path}#{tool}" if mark else path)["content"])

    async def search(self, words: str) -> Sequence[Hit]:
        from codemode_mcp.catalog.catalog import EVERYTHING

        catalog = await self.catalog()
        limit = self._app.settings().code_mode.search_default_limit
        hits = catalog.search(words, limit, None, EVERYTHING)
        return [Hit(hit["signature"] or hit.get("call", hit.get("id", "")), hit["description"] or "") for hit in hits]


# The programs of a session whose prompt is in another process, as the shared instance runs them.
#
# The messages in both directions are those of `process.instance.wire` for a command, and these:
#
# | from | message | meaning |
# |---|---|---|
# | instance | `{"key": KEY}` | the session has begun; see `Programs.key` |
# | prompt | `{"request": NUMBER, "method": NAME, "arguments": {...}}` | a call of a method of `Programs` |
# | prompt | `{"cancel": NUMBER}` | the request is no longer needed; it is still answered |
# | instance | `{"output": TEXT, "of": NUMBER}` | output of the program of this request |
# | instance | `{"response": NUMBER, "result": ...}` | the answer to a request |
# | instance | `{"response": NUMBER, "code": CODE, "error": TEXT}` | the same, if it has failed |
#
# The session ends when the prompt closes its sending side.


MAX_REQUESTS: Final = 64
"""Maximum number of requests of one session that are open. A prompt has a few."""

MAX_CONNECT_SECONDS: Final = 60.0
"""Maximum seconds that a request to connect to all servers takes."""

instance_log = logging.getLogger("codemode_mcp.process.instance")


async def serve_programs(app: App, caller: Caller, terminal: CommandTerminal) -> Mapping[str, Any]:
    """Run the programs of a prompt until it leaves, which cancels this function."""
    async with (
        app_programs(app, caller, lambda: terminal, attended=terminal.attended, draws=terminal.draws) as programs,
        anyio.create_task_group() as group,
    ):
        await app.manager()
        service = _Service(programs, terminal, group)
        terminal.on_message = service.take
        terminal.write(key=programs.key)
        await anyio.sleep_forever()
    return {}


class _Service:
    def __init__(self, programs: AppPrograms, terminal: CommandTerminal, group: TaskGroup) -> None:
        self._programs = programs
        self._terminal = terminal
        self._group = group
        self._scopes: dict[int, anyio.CancelScope] = {}
        self._catalog: Catalog | None = None
        self._version = 0
        self._methods: dict[str, Callable[..., Awaitable[Any]]] = {
            "execute": programs.execute,
            "observe": programs.observe,
            "cancel": programs.cancel,
            "runs": programs.runs,
            "offload": programs.offload,
            "names": programs.names,
            "forget_names": programs.forget_names,
            "connect": self._connect,
            "catalog": self._catalog_unless,
            "declarations": programs.declarations,
            "search": programs.search,
        }

    def take(self, message: Mapping[str, Any]) -> None:
        match message:
            case {"request": int() as number} if number in self._scopes or len(self._scopes) >= MAX_REQUESTS:
                self._respond(number, _failure("invalid_input", "there are too many open requests"))
            case {"request": int() as number, "method": str() as method, "arguments": dict() as arguments} if (
                method in self._methods
            ):
                self._scopes[number] = anyio.CancelScope()
                self._group.start_soon(self._answer, number, method, arguments)
            case {"cancel": int() as number}:
                if number in self._scopes:  # the response may be on its way
                    self._scopes[number].cancel()
            case _:
                instance_log.warning("a prompt of codemode-mcp repl has sent an invalid message")

    async def _answer(self, number: int, method: str, arguments: dict[str, Any]) -> None:
        response: Mapping[str, Any] = _failure("aborted", "the request was cancelled")
        with self._scopes[number]:
            try:
                if method == "execute":
                    arguments["on_output"] = lambda text: self._terminal.write(output=text, of=number)
                response = {"result": await self._methods[method](**arguments)}
            except CodeModeError as error:
                response = _failure(error.code, error.message)
        del self._scopes[number]
        self._respond(number, response)

    def _respond(self, number: int, response: Mapping[str, Any]) -> None:
        self._terminal.write_line(_encoded(number, response))

    async def _connect(self, *, seconds: float) -> None:
        await self._programs.connect(min(seconds, MAX_CONNECT_SECONDS))

    async def _catalog_unless(self, *, known: int) -> Mapping[str, Any]:
        """Return the version and the text of the catalog, without the text if the prompt has this version."""
        catalog = await self._programs.catalog()
        if catalog is not self._catalog:
            self._catalog = catalog
            self._version += 1
        version = self._version
        # Thousands of tools take a while, and other clients wait for the event loop.
        text = None if version == known else await anyio.to_thread.run_sync(catalog_text, catalog)
        return {"version": version, "text": text}


def _encoded(number: int, response: Mapping[str, Any]) -> bytes:
    """Return the line of a response. A result that cannot be sent is replaced by an error."""
    try:
        line = ascii_json({"response": number, **response}).encode("ascii") + b"\n"
    except ProgramError:
        failure = _failure("output_limit_exceeded", "its value is nested too deep to be shown")
    else:
        if len(line) <= wire.MAX_LINE:
            return line
        failure = _failure("output_limit_exceeded", "its value is too large to be shown")
    result = response.get("result")
    if isinstance(result, Answer):
        # The program has run. An error of the request would mean that it was refused.
        failure = {"result": replace(result, status="failed", value=None, **failure)}
    return ascii_json({"response": number, **failure}).encode("ascii") + b"\n"


def _failure(code: ErrorCode, message: str) -> dict[str, Any]:
    return {"code": code, "error": message}
