"""The programs that commands run: one of a text, one call, or a saved program.

Everything that can be known before the program runs is checked before: its name, its input, its servers, and the
definitions of the tools that it uses. No check asks a person, so that nothing blocks where no person is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from codemode_mcp.base.config_path import command_option
from codemode_mcp.base.display import cut, plain
from codemode_mcp.base.errors import CodeModeError, ProgramError
from codemode_mcp.base.paths import config_dir
from codemode_mcp.base.strict_json import as_javascript
from codemode_mcp.catalog.entries import Entry
from codemode_mcp.catalog.saved_programs.saved_program import FileProblem, SavedProgram
from codemode_mcp.cli.loading import (
    configured,
    for_program,
    narrowed,
    of_names,
    saved_programs_of,
    unknown_server,
    with_servers,
)
from codemode_mcp.cli.messages import suggestion
from codemode_mcp.server.exec_arguments import ExecArguments, exec_arguments

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator, Sequence

    from codemode_mcp.base.settings import Language
    from codemode_mcp.catalog.catalog import Catalog
    from codemode_mcp.catalog.saved_programs.folder import Library
    from codemode_mcp.catalog.saved_programs.versions import DefinitionChange, UsedTool
    from codemode_mcp.cli.command_service import CallRequest, ProgramRequest
    from codemode_mcp.config import Config
    from codemode_mcp.rules.policy.policy import Caller
    from codemode_mcp.server.services import App


USAGE: Final = 2
APPROVAL: Final = 3
"""Exit code: a call, or the program itself, needs a person's approval, and no person can be asked."""
CHANGED: Final = 4
"""Exit code: definitions of tools have changed since the program was accepted. Nothing has run."""
DOWN: Final = 5
"""Exit code: a server of the program is down, or needs a login. Nothing has run."""

CONNECT_SECONDS: Final = 30.0
"""Timeout for connecting the servers of the program."""

MAX_CHANGES: Final = 20
"""Maximum number of changed definitions that a message lists."""


class Refused(ProgramError):
    """Error for a program that does not run.

    Attributes:
        exit_code: the exit code of the command.
    """

    def __init__(self, exit_code: int, message: str) -> None:
        super().__init__("invalid_input", message)
        self.exit_code = exit_code


class GivenProgram:
    """The program of a command, which the command runs itself or has the shared instance run.

    Args:
        asked: the request, with the text of the program.

    Raises:
        Refused: the text or its language is not valid.
    """

    def __init__(self, asked: ProgramRequest) -> None:
        program = check(asked)
        self.text = program.source
        self.language: Language | None = program.language
        self.args = tuple(asked.args)

    def narrowed(self, config: Config) -> Config:
        """Return the configuration with only the servers that the program can reach."""
        return for_program(config, self.text, self.language)

    def servers(self, config: Config) -> list[str]:
        """Return the servers that are named at the end of the program if they did not start."""
        return [spec.name for spec in self.narrowed(config).upstreams]

    async def source(self, app: App, caller: Caller) -> str:
        """Return the text of the program once everything is open. Raise `ProgramError`."""
        return self.text

    def is_logged(self, entry: logging.LogRecord) -> bool:
        """Return True to log a problem of a saved program."""
        return True

    def note_denied(self) -> None:
        """Note that calls were denied because no person can be asked."""

    def exit_code(self, ok: bool) -> int:
        """Return the exit code of the command. `ok`: whether the program has completed."""
        return 0 if ok else 1


class CallingProgram(GivenProgram):
    """The program that makes the call of a command.

    Raises:
        Refused: there is no such server.
    """

    def __init__(self, asked: CallRequest, config: Config) -> None:
        known = configured(config, in_programs=True)
        if asked.server not in known:
            raise Refused(USAGE, unknown_server(asked.server, config))
        self._asked = asked._replace(server=known[asked.server])
        self.language = None
        self.args = ()

    def narrowed(self, config: Config) -> Config:
        return with_servers(config, [self._asked.server], called=True)

    async def source(self, app: App, caller: Caller) -> str:
        return await program_of(self._asked, app, caller)


class CallingSaved(GivenProgram):
    """The program that calls a saved one. Its `args` have the input of the saved program, or an empty object.

    Args:
        asked: the request, whose `saved` is the name of the program.
    """

    def __init__(self, asked: ProgramRequest, config: Config) -> None:
        assert asked.saved is not None
        self._name = asked.saved
        self._input = asked.input
        self._accepts_changes = asked.accept_changes
        self._option = option_of(config)
        self._refused: int | None = None
        self._denied = False
        self.language = "javascript"
        self.args = (self._input or "{}",)

    def narrowed(self, config: Config) -> Config:
        return for_saved(config, self._name)

    def servers(self, config: Config) -> list[str]:
        return []

    def is_logged(self, entry: logging.LogRecord) -> bool:
        """Return False for the problem of a file. The command reports that of its own program as an error."""
        return not any(isinstance(each, FileProblem) and each.file for each in entry.args or ())

    def note_denied(self) -> None:
        self._denied = True

    def exit_code(self, ok: bool) -> int:
        if ok:
            return 0
        if self._refused is not None:
            return self._refused
        return APPROVAL if self._denied else 1

    async def source(self, app: App, caller: Caller) -> str:
        """Return the program that calls the saved one. Raise `Refused`."""
        try:
            await app.manager()
            program = await self._program(app)
            self._check_input(program)
            await check_servers(app, caller, program, self._option)
            await self._check_definitions(app, program)
        except Refused as error:
            self._refused = error.exit_code
            raise
        # `unwrap` reads JSON with all digits of integers, which `JSON.parse` rounds.
        given = "" if self._input is None else 'unwrap({ content: [{ type: "text", text: args[0] }] })'
        return f"return await programs.{program.name}({given})"

    async def _program(self, app: App) -> SavedProgram:
        library = app.library()
        found = library.get(self._name)
        if found is not None:
            return found
        shown = plain(self._name)
        for problem in library.problems:
            if problem.file.rpartition(".")[0] == self._name:
                raise Refused(1, f"{problem}. To see all problems: codemode-mcp programs check{self._option}")
        if self._name in await app.proposed_programs():
            raise Refused(
                APPROVAL,
                f"{shown} is proposed and not accepted yet: codemode-mcp programs accept {shown}{self._option}",
            )
        names = [each.name for each in library.programs]
        raise Refused(USAGE, f"there is no saved program {cut(shown, 80)!r}; {suggestion(self._name, names)}")

    def _check_input(self, program: SavedProgram) -> None:
        from codemode_mcp.runs.calls.schema_check import SchemaCheck

        if not program.takes_input:
            if self._input is not None:
                raise Refused(USAGE, f"programs.{program.name} takes no input; leave out --input")
            return
        given: Any = {}
        if self._input is not None:
            if not self._input.strip():
                raise Refused(USAGE, "--input: the input is empty; write a JSON object, as in --input '{\"a\": 1}'")
            try:
                given = json.loads(self._input)
            except (ValueError, RecursionError) as error:
                raise Refused(
                    USAGE,
                    f"--input: this is not JSON ({error}); write it in single quotes, as in --input '{{\"a\": 1}}'",
                ) from None
        if not isinstance(given, dict):
            raise Refused(USAGE, "--input: the input is one JSON object, as in --input '{\"a\": 1}'")
        problems = SchemaCheck(program.input_schema)(given)
        if problems:
            raise Refused(USAGE, f"programs.{program.name} cannot take this input: {'; '.join(problems)}")
        self._input = self._input or "{}"

    async def _check_definitions(self, app: App, program: SavedProgram) -> None:
        from codemode_mcp.catalog.saved_programs.versions import unusable

        changed: list[str] = []
        first, why_not = "", None
        for each in closure(app.library(), program):
            found = await app.look_at_program(each)
            why_not = why_not or unusable(found)
            changed += [f"  programs.{each.name}: {change}" for change in found]
            first = first or (each.name if found else "")
        if self._accepts_changes:
            app.permit_other_tools()
        if not changed or self._accepts_changes:
            return
        more = len(changed) - MAX_CHANGES
        lines = [*changed[:MAX_CHANGES], *([f"  and {more} more"] if more > 0 else [])]
        raise Refused(
            CHANGED,
            "\n".join(
                [
                    "definitions of tools have changed since the program was accepted, so nothing was run:",
                    *lines,
                    *([] if why_not is None else [why_not]),
                    f"read it, then: codemode-mcp programs accept {first}{self._option}; or add --accept-changes to "
                    "run it once",
                ]
            ),
        )


async def check_servers(app: App, caller: Caller, program: SavedProgram, option: str) -> None:
    """Connect the servers that a saved program names. Raise `Refused` if one is down, or needs a login."""
    named = app.library().servers_in(program.text, program.servers)
    if named is None:
        return  # any server may be used, and not all of them need be up
    visible = app.servers(caller)
    names = {visible[each] for each in named if each in visible}
    if not names:
        return
    pool = await app.pool()
    await pool.connect(names, CONNECT_SECONDS)
    for view in app.server_views():
        if view.name not in names or view.state in ("ready", "idle"):
            continue
        if view.login_required:
            raise Refused(DOWN, f"{view.name} needs a login: codemode-mcp login {view.name}{option}")
        why = view.error or "it has not answered in time"
        raise Refused(DOWN, f"{view.name} is down: {why}; codemode-mcp doctor{option} says more")


def closure(library: Library, program: SavedProgram) -> Sequence[SavedProgram]:
    """Return a saved program and those that it may call."""
    return [program, *(each for each in library.named_in(program.text) if each.name != program.name)]


async def present_definitions(
    config: Config, program: SavedProgram
) -> tuple[Sequence[DefinitionChange], tuple[UsedTool, ...]]:
    """Connect the servers of a saved program. Return what has changed since its version, and its tools as they are now.

    Raises:
        Refused: a server is down, or needs a login.
    """
    from codemode_mcp.process.app.app import open_app

    async with open_app(for_saved(config, program.name)) as app:
        await app.manager()
        await check_servers(app, app.operator, program, option_of(config))
        return await app.look_at_program(program), await app.tools_of_program(program)
    raise AssertionError


def option_of(config: Config) -> str:
    """Return the end of commands in messages, such as ` --config PATH`; may be empty."""
    return command_option(config.path, config_dir())


def for_saved(config: Config, name: str) -> Config:
    """Return the configuration with only the servers that a saved program names, if its text names all of them."""
    library = saved_programs_of(config)
    program = library.get(name)
    if program is None:
        return narrowed(config, (), called=True)
    return of_names(config, library.servers_in(program.text, program.servers))


NO_SERVERS: Final = (
    "no configuration: programs have no servers; codemode-mcp import adds those of your clients, and codemode-mcp add "
    "another one"
)


def run_of(asked: ProgramRequest, config: Config) -> GivenProgram:
    """Return the program of a request. Raise `Refused`."""
    return GivenProgram(asked) if asked.saved is None else CallingSaved(asked, config)


def check(request: ProgramRequest) -> ExecArguments:
    """Return the program and its language. Raise `Refused`."""
    try:
        return exec_arguments({"code": request.code, "language": request.language})
    except CodeModeError as error:
        if error.code == "unsupported_language":
            raise Refused(
                USAGE, f"--language {request.language}: use javascript or typescript, or leave it out"
            ) from None
        raise Refused(1, error.message) from None


async def program_of(request: CallRequest, opened: App, caller: Caller) -> str:
    """Return the program that makes a call.

    Args:
        request: has the name of the server, not its identifier.

    Raises:
        ProgramError: there is no such tool, it is held, or its server is down.
    """
    pool = await opened.pool()
    if any(view.state != "idle" for view in pool.views() if view.name == request.server):
        await pool.connect([request.server], CONNECT_SECONDS)
    is_api = request.server in opened.configured() and pool.spec(request.server).is_api
    entry = _entry(await opened.catalog_for(caller, None), request.server, request.tool, is_api)
    values = request.values
    if request.are_strings:
        properties = entry.tool.input_schema.get("properties")
        schemas = properties if isinstance(properties, dict) else {}
        values = {key: _convert(value, schemas.get(key)) for key, value in values.items()}
    return f"return unwrap(await {entry.path}({as_javascript(values)}))"


def _entry(catalog: Catalog, server: str, name: str, is_api: bool) -> Entry:
    from codemode_mcp.base.did_you_mean import nearest

    found = next(each for each in catalog.servers if each.name == server)
    entry = found.member(name)
    if isinstance(entry, Entry) and entry.operation is None:
        return entry
    if name in found.withheld:
        raise ProgramError("nested_tool_failed", f"{server}.{name} {found.withheld[name]}")
    if found.status != "ready" and found.error:
        raise ProgramError("nested_tool_failed", found.error)
    near = nearest(name, [entry.identifier for entry in found.tools])
    advice = f"did you mean {' or '.join(f'{found.identifier}.{each}' for each in near)}?" if near else ""
    listed = (
        f"codemode-mcp tools --server {found.name} lists its tools, and codemode-mcp policy explain "
        f"{found.name}.TOOL says if a rule hides one"
    )
    if is_api:
        listed += f"; codemode-mcp doctor {found.name} names the operations that are skipped"
    raise ProgramError("invalid_input", f"{server} has no tool {name!r}; {advice or listed}")


def _types(schema: object) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    named = schema.get("type")
    yield from [named] if isinstance(named, str) else named if isinstance(named, list) else ()
    if isinstance(schema.get("enum"), list) and named is None:
        yield from (
            "string" if isinstance(each, str) else "null" if each is None else "other" for each in schema["enum"]
        )
    for key in ("anyOf", "oneOf"):
        for each in schema[key] if isinstance(schema.get(key), list) else ():
            yield from _types(each)


def _convert(value: str, schema: object) -> Any:
    """Return a value as its schema requires: as a string, or else as JSON if it is JSON."""
    types = set(_types(schema))
    if "string" in types and types <= {"string", "null"}:
        return None if value == "null" and "null" in types else value
    try:
        return json.loads(value)
    except ValueError:
        return value
