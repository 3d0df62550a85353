"""The programs of a session in an application: one of this process, or one that serves other clients, too."""

from __future__ import annotations

import logging
import secrets
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio

from codemode_mcp.audit.events import request_id
from codemode_mcp.cli.progress_line import draw_progress, progress_of
from codemode_mcp.cli.repl.programs import Answer, Hit, SessionRun
from codemode_mcp.cli.terminal_client import TerminalClient, UnattendedClient
from codemode_mcp.errors import CodeModeError
from codemode_mcp.runs.outputs import printed
from codemode_mcp.strict_json import form_from

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

    from codemode_mcp.app.app import App
    from codemode_mcp.audit.events import Event
    from codemode_mcp.calls.outcome import Outcome
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.cli.terminal import Terminal
    from codemode_mcp.cli.trace.progress import Progress
    from codemode_mcp.policy.callers import Caller
    from codemode_mcp.settings import Language

UNATTENDED: Final = "`codemode-mcp repl`, which cannot ask here; tools.approved lets a call pass"
"""The name of the decider for calls that are denied because no person can approve them."""

CLOSE_SECONDS: Final = 3.0
"""Timeout for cancelling a program, and for removing what a session leaves behind."""

log = logging.getLogger("codemode_mcp.app")


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
        execution = self._app.execute(source, language, self._caller, client, self._request, on_outputs)
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
        return await self._answered(self._app.observe(run_id, self._owner, cancel=cancel, client=client), client)

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
            await self._app.forget_stored(self._owner, self._offloaded)
            self._offloaded = None

    async def names(self) -> str | None:
        return await self._app.stored(self._owner, self.key)

    async def forget_names(self) -> None:
        await self._app.forget_stored(self._owner, self.key)

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
