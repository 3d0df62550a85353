"""The command line: parse, print, exit codes. No logic.

Exit codes: 0 ok, 1 the thing asked for failed, 2 usage or invalid configuration. Human output goes to stderr where
stdout belongs to MCP (`serve`), else to the terminal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, NoReturn

import anyio
import typer

from codemode_mcp import cli_runs
from codemode_mcp.errors import CodeModeError, ConfigError
from codemode_mcp.settings import LogLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from codemode_mcp.app import App
    from codemode_mcp.audit import Redactor
    from codemode_mcp.callers import Caller
    from codemode_mcp.catalog import Catalog
    from codemode_mcp.config import Config, Reading
    from codemode_mcp.passthrough import Passthrough
    from codemode_mcp.server import Surface
    from codemode_mcp.settings import Language

app = typer.Typer(
    name="codemode-mcp",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="An MCP server with two tools, exec and wait, that puts every other MCP server behind a sandboxed program.",
)
app.add_typer(cli_runs.app)


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """An MCP server with two tools, exec and wait, that puts every other MCP server behind a sandboxed program."""
    if version:
        from importlib import metadata

        print(metadata.version("codemode-mcp"))  # noqa: T201
        raise typer.Exit


_AGAIN_SECONDS = 1.0
"""After the first signal to end, so that another one means now."""

_NOBODY = "`codemode-mcp run`, which asks nobody; tools.approved lets a call pass"

ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="Configuration file; default: looked up.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LogLevelOption = Annotated[LogLevel | None, typer.Option("--log-level", help="How much to log.")]
LogFileOption = Annotated[str | None, typer.Option("--log-file", metavar="FILE", help="Log there, not to stderr.")]


@app.command()
def serve(
    config: ConfigOption = None,
    transport: Annotated[str, typer.Option(metavar="<stdio|http>", help="What carries MCP.")] = "stdio",
    host: Annotated[str | None, typer.Option(help="With http: the address to listen on; default: 127.0.0.1.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="With http: default: 8808; 0: a free one.")] = None,
    path: Annotated[str | None, typer.Option(help="With http: where MCP is; default: /mcp.")] = None,
    allow_unauthenticated: Annotated[
        bool,
        typer.Option(
            "--allow-unauthenticated", help="With http: serve whoever reaches the address, without authentication."
        ),
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Admit read-only tools only.")] = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Serve MCP on standard input and output, or over HTTP."""
    from codemode_mcp.app import DEPTH_VARIABLE, MAX_DEPTH, depth

    streams = None
    if transport == "stdio":
        for option, value in (("--host", host), ("--port", port), ("--path", path)):
            if value is not None:
                _stop(2, f"{option} is for --transport http")
        from codemode_mcp.stdio import reserve

        streams = reserve()
    elif transport != "http":
        _stop(2, f"--transport {transport}: it is stdio or http")
    elif path is not None and (not path.startswith("/") or not path.isascii() or {*path} & {*' ?#%"\\'}):
        _stop(2, f"--path {path}: it has to begin with / and to have no characters that a URL would encode")
    if depth(os.environ) >= MAX_DEPTH:
        _stop(
            2,
            f"codemode-mcp is started by itself, {MAX_DEPTH} deep ({DEPTH_VARIABLE}); "
            "look for a server entry that starts it",
        )
    loaded = _load(config, log_level, log_file, read_only=read_only)
    with _logging(loaded) as redactor:

        def load(reading: Reading) -> Config:
            from codemode_mcp.config import load_config

            changed = load_config(loaded.path, environ=os.environ, reading=reading)
            redactor.know(changed.secretive)
            return _with_options(changed, log_level, log_file, read_only=read_only)

        if transport == "http":
            anyio.run(
                partial(
                    _serve_http,
                    loaded,
                    load,
                    "127.0.0.1" if host is None else host.strip("[]"),
                    8808 if port is None else port,
                    "/mcp" if path is None else path.rstrip("/") or "/",
                    allow_unauthenticated=allow_unauthenticated,
                )
            )
        else:
            anyio.run(_serve, loaded, load, streams)


async def _serve(config: Config, load: Callable[[Reading], Config], streams: tuple[IO[str], IO[str]] | None) -> None:
    from codemode_mcp.app import open_app

    over = anyio.Event()
    by_signal = False

    def end() -> None:
        nonlocal by_signal
        by_signal = True
        over.set()

    async def talk(surface: Surface | Passthrough) -> None:
        await surface.serve_stdio(streams)
        over.set()

    async with anyio.create_task_group() as group:
        if sys.platform != "win32":
            group.start_soon(_end_on_signal, end)
        async with open_app(config, load, "stdio") as opened:
            group.start_soon(talk, _surface(opened, lambda _: opened.operator, opened.operator))
            await over.wait()
        if by_signal:
            # A thread sits in a blocking read of standard input; nothing can wake it, and no task ends before it does.
            sys.stderr.flush()
            os._exit(0)
        group.cancel_scope.cancel()


async def _end_on_signal(end: Callable[[], None]) -> None:
    """Call `end` at the first SIGTERM or SIGINT. One that comes a while later ends the process at once; what comes
    sooner is the same signal, sent to the process and to its group.
    """
    first: float | None = None
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            if first is None:
                first = anyio.current_time()
                end()
            elif anyio.current_time() - first >= _AGAIN_SECONDS:
                sys.stderr.flush()
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)


def _surface(opened: App, caller_of: Callable[[Any], Caller], user: Caller | None = None) -> Surface | Passthrough:
    """What clients see, by the mode; the other one is not imported. `user`: the only one who asks, if it is one."""
    if opened.code_mode:
        from codemode_mcp.server import Surface

        return Surface(opened, caller_of, user)
    from codemode_mcp.passthrough import Passthrough

    return Passthrough(opened, caller_of, opened.auditor, user)


async def _serve_http(
    config: Config,
    load: Callable[[Reading], Config],
    host: str,
    port: int,
    path: str,
    *,
    allow_unauthenticated: bool,
) -> None:
    from codemode_mcp.app import open_app
    from codemode_mcp.http.front import caller_of
    from codemode_mcp.http.listener import CannotListen, listening, notes_for, refusal_to_listen

    settings = config.http
    refusal = refusal_to_listen(settings, host, allowed=allow_unauthenticated)
    if refusal is not None:
        _stop(2, refusal)
    over = anyio.Event()
    failure: CannotListen | None = None
    async with anyio.create_task_group() as signals:  # received until everything is closed
        if sys.platform != "win32":
            signals.start_soon(_end_on_signal, over.set)
        try:
            async with listening(settings, host, port, path) as listener, anyio.create_task_group() as group:
                async with open_app(config, load, "http") as opened:
                    await listener.serve(_surface(opened, caller_of).server)
                    _say(f"codemode-mcp serves MCP at {listener.url}")
                    for note in notes_for(settings, host):
                        _say(note)

                    async def become_ready() -> None:
                        try:
                            if opened.code_mode:
                                await opened.engine()
                        except CodeModeError:
                            return  # logged; without the engine it is never ready
                        await opened.wait_settled(None, config.tools.code_mode.connect_wait_ms / 1000)
                        listener.set_ready()

                    group.start_soon(become_ready)
                    await over.wait()
                    await listener.drain()
                # Whoever still waits has been told that its run is aborted; that is written before connections end.
                group.cancel_scope.cancel()
        except CannotListen as error:
            failure = error
        signals.cancel_scope.cancel()
    if failure is not None:
        _stop(1, str(failure))


@app.command()
def run(
    file: Annotated[Path | None, typer.Argument(help="Program to run; .ts is TypeScript.")] = None,
    code: Annotated[str | None, typer.Option("-e", metavar="CODE", help="Program text.")] = None,
    language: Annotated[
        str | None, typer.Option(help="javascript or typescript; default: by file name or by trying.")
    ] = None,
    config: ConfigOption = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Admit read-only tools only.")] = False,
    as_json: JsonOption = False,
    log_level: LogLevelOption = None,
    log_file: LogFileOption = None,
) -> None:
    """Run one program against the configured servers, following it until it ends."""
    if (file is None) == (code is None):
        _stop(2, "give either a FILE or -e CODE")
    if file is not None:
        try:
            code = file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            _stop(1, f"cannot read {file}: {error}")
        if language is None and file.suffix in (".ts", ".mts", ".cts"):
            language = "typescript"
        elif language is None and file.suffix in (".js", ".mjs", ".cjs"):
            language = "javascript"
    assert code is not None
    loaded = _load(config, log_level or "warning", log_file, read_only=read_only)
    from codemode_mcp.server import exec_arguments

    try:
        source, chosen = exec_arguments({"code": code, "language": language})
    except CodeModeError as error:
        _stop(1, error.message)
    with _logging(loaded):
        ok = anyio.run(partial(_run, loaded, source, chosen, as_json=as_json))
    if not ok:
        raise typer.Exit(1)


async def _run(config: Config, source: str, language: Language | None, *, as_json: bool) -> bool:
    import time

    from codemode_mcp.app import open_app
    from codemode_mcp.output import render, render_error

    async with open_app(config) as opened:
        manager = await opened.manager()
        run_id = None
        asked = False
        while True:
            notes: tuple[str, ...] = ()
            try:
                if run_id is None:
                    outcome = await opened.execute(source, language, opened.operator)
                else:
                    outcome = await opened.observe(run_id, opened.operator.owner, cancel=asked)
                notes = outcome.notes
                if outcome.status == "waiting" and manager.decide(outcome.run_id, None, approved=False, by=_NOBODY):
                    notes = ()  # they say how to approve
                # Nobody can answer here, and without an answer it would not go on.
                asked = bool(outcome.pending) and all(call.status == "needs_input" for call in outcome.pending)
                rendered = render(outcome, config.tools, opened.offload, time.monotonic())
            except CodeModeError as error:
                rendered = render_error(error, config.tools)
            _print_answer(rendered.structured, notes, as_json=as_json)
            if rendered.structured["status"] != "waiting":
                return not rendered.is_error
            run_id = rendered.structured["runId"]


def _print_answer(answer: dict[str, Any], notes: tuple[str, ...], *, as_json: bool) -> None:
    """What the program gave goes to stdout, so that it can be piped; what is said about it goes to stderr."""
    if as_json:
        print(json.dumps(answer, ensure_ascii=False))  # noqa: T201
        return
    for item in answer.get("output", []):
        match item["type"]:
            case "text":
                print(item["text"], flush=True)  # noqa: T201
            case "json":
                print(json.dumps(item["value"], ensure_ascii=False), flush=True)  # noqa: T201
            case _:
                print(f"[{item['mimeType']}, {item['bytes']} bytes]", flush=True)  # noqa: T201
    for note in notes:
        _say(note)
    if answer["status"] == "failed":
        _say(f"{answer['code']}: {answer['error']}")
    elif answer["status"] == "completed" and answer["value"] is not None:
        value = answer["value"]
        print(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))  # noqa: T201


@app.command()
def tools(
    query: Annotated[str | None, typer.Argument(help="Search words; default: all tools.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the tools a program can call, or search them."""
    loaded = _load(config, "warning", None)
    with _logging(loaded):
        entries, problems = anyio.run(partial(_tools, loaded, query))
    if as_json:
        print(json.dumps(entries, ensure_ascii=False, indent=2))  # noqa: T201
    else:
        for entry in entries:
            print(entry["signature"] or entry["call"])  # noqa: T201
            if entry["description"]:
                print(f"    {entry['description']}")  # noqa: T201
    if query is not None and not entries:
        _say(f"nothing matches {query!r}")
    for problem in problems:
        _say(problem)


async def _tools(config: Config, query: str | None) -> tuple[list[dict[str, Any]], list[str]]:
    from codemode_mcp.app import open_app

    async with open_app(config) as opened:
        await opened.connect(30)
        catalog = await opened.catalog_for(opened.operator, None)
        problems = _problems(catalog)
        if query is not None:
            limit = config.tools.code_mode.search_default_limit
            others = [{"call": catalog.resolve(hit["id"]).path, **hit} for hit in catalog.toolset.search(query, limit)]
            # Scores compare within one kind: the MCP tools first, as `API.search` has them.
            return [*catalog.search(query, limit, None), *others], problems
        return [
            {
                "id": entry.id,
                "call": entry.path,
                "signature": catalog.signature(entry),
                "description": " ".join(entry.tool.description.split())[:200],
            }
            for entry in (
                *(entry for server in catalog.servers for entry in server.tools),
                *catalog.toolset.entries,
            )
        ], problems


@app.command()
def types(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write.")] = Path("codemode-types"),
    config: ConfigOption = None,
) -> None:
    """Write the declaration files to disk, for an editor."""
    loaded = _load(config, "warning", None)
    with _logging(loaded):
        files, problems = anyio.run(partial(_types, loaded))
    try:
        for path, text in files.items():
            target = out / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, "utf-8")
    except OSError as error:
        _stop(1, f"cannot write to {out}: {error}")
    for path in files:
        print(out / path)  # noqa: T201
    for problem in problems:
        _say(problem)


async def _types(config: Config) -> tuple[dict[str, str], list[str]]:
    from importlib import resources

    from codemode_mcp.app import open_app

    async with open_app(config) as opened:
        await opened.connect(30)
        catalog = await opened.catalog_for(opened.operator, None)
        files = {path: catalog.file(path) for path in catalog.paths}
        if catalog.toolset:
            files["tools.d.ts"] = catalog.toolset.declarations()
    files["guest.d.ts"] = (resources.files("declarations") / "guest.d.ts").read_text("utf-8")
    return files, _problems(catalog)


def _problems(catalog: Catalog) -> list[str]:
    return [server.error for server in catalog.servers if server.error]


@app.command()
def doctor(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Check the configuration, the engine, esbuild and every server; say what to do."""
    from codemode_mcp.doctor import check_config, check_everything

    loaded, checks = check_config(config, os.environ)
    if loaded is not None:
        # What the checks are about is said by them.
        with _logging(loaded, level="error"), _without("plugin %r is refused"):
            checks += anyio.run(check_everything, loaded)
    if as_json:
        shown = [{"name": c.name, "status": c.status, "detail": c.detail, "advice": c.advice} for c in checks]
        print(json.dumps(shown, ensure_ascii=False, indent=2))  # noqa: T201
    else:
        for number, check in enumerate(checks):
            print(f"{check.status:<5} {check.name}: {check.detail}")  # noqa: T201
            # Once for all that it is about.
            if check.advice and check.advice not in [following.advice for following in checks[number + 1 : number + 2]]:
                print(f"      → {check.advice}")  # noqa: T201
    if loaded is None:
        raise typer.Exit(2)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


@app.command()
def login(
    server: Annotated[str, typer.Argument(help="The name of the server in the configuration.")],
    config: ConfigOption = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    timeout: Annotated[float, typer.Option(min=1, max=3600, help="Seconds to wait for the browser.")] = 300,
) -> None:
    """Log in to a server that wants it, with a browser.

    The login is kept in the system keyring, else in a private file in the folder of your data.
    """
    from codemode_mcp.login import NoLoginHere, can_open_browser, find_server, log_in, open_browser
    from upstream_clients.errors import LoginError

    loaded = _load(config, "warning", None)

    def show(url: str) -> None:
        opens = not no_browser and can_open_browser()
        print(f"{'If no browser opens, open' if opens else 'Open in a browser'}:\n\n  {url}\n", flush=True)  # noqa: T201
        if opens:
            open_browser(url)

    with _logging(loaded):
        try:
            spec = find_server(loaded, server)
        except NoLoginHere as error:
            _stop(2, str(error))
        try:
            where = anyio.run(partial(log_in, spec, show, timeout=timeout))
        except LoginError as error:
            _stop(1, spec.redact(f"no login to server {server!r}: {error}"))
        except KeyboardInterrupt:
            _stop(1, f"no login to server {server!r}: interrupted")
    print(f"logged in to server {server!r}; the login is kept in {where}")  # noqa: T201


@app.command()
def logout(
    server: Annotated[str, typer.Argument(help="The name of the server in the configuration.")],
    config: ConfigOption = None,
) -> None:
    """Forget the login to a server."""
    from codemode_mcp.login import NoLoginHere, find_server, log_out
    from upstream_clients.errors import LoginError

    loaded = _load(config, "warning", None)
    with _logging(loaded):
        try:
            spec = find_server(loaded, server)
            there_was = anyio.run(log_out, spec)
        except NoLoginHere as error:
            _stop(2, str(error))
        except LoginError as error:
            _stop(1, spec.redact(f"still logged in to server {server!r}: {error}"))
    print(  # noqa: T201
        f"logged out of server {server!r}" if there_was else f"nobody was logged in to server {server!r}"
    )


@app.command()
def trace(
    run: Annotated[str | None, typer.Argument(help="A run's id, or its beginning; default: list the latest.")] = None,
    config: ConfigOption = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write it as one page of HTML.")] = None,
    as_json: JsonOption = False,
    trajectory: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The trajectory; default: the configuration's.")
    ] = None,
) -> None:
    """Show what a run did and when: its requests, its nested calls, and where it was parked."""
    import shutil

    from codemode_mcp.trace import page, reading, text

    if run is None and html is not None:
        _stop(2, "--html draws one run: name it")
    if trajectory is None:
        configured = _load(config, None, None).audit.trajectory
        if configured is None:
            _stop(1, 'nothing is recorded: set "audit.trajectory" to a file in the configuration')
        trajectory = Path(configured)
    try:
        if run is None:
            traces = reading.latest(trajectory, 20)
            if as_json:
                print(json.dumps([text.as_json(each) for each in traces], ensure_ascii=True, indent=2))  # noqa: T201
            else:
                for line in text.listed(traces):
                    print(line)  # noqa: T201
            if not traces:
                there = reading.files_of(trajectory)
                _say(f"no run is recorded in {trajectory} yet" + ("" if there else ": there is no such file"))
            return
        found = reading.find(trajectory, run)
        if html is not None:
            html.write_text(page.page(found), "utf-8")
            _say(f"written to {html}")
    except reading.NoTrace as problem:
        _stop(1, str(problem))
    except OSError as error:
        _stop(1, f"cannot open {error.filename}: {error.strerror}")
    if as_json:
        print(json.dumps(text.as_json(found), ensure_ascii=True, indent=2))  # noqa: T201
    elif html is None:
        unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
        for line in text.drawn(found, shutil.get_terminal_size((110, 24)).columns, unicode=unicode):
            print(line)  # noqa: T201


@app.command()
def demo() -> None:
    """Show the main job end to end, with bundled servers and no account."""
    from codemode_mcp.demo import show

    if not anyio.run(show):
        raise typer.Exit(1)


@app.command()
def setup(config: ConfigOption = None) -> None:
    """Fetch esbuild into the user's cache and compile the engine."""
    from codemode_mcp.app import cache_dir
    from codemode_mcp.sandbox.engine import open_engine
    from codemode_mcp.typescript import fetch_esbuild, find_esbuild

    configured = _load(config, None, None).tools.esbuild
    failed = False
    steps: list[tuple[str, Callable[[], str]]] = [
        ("esbuild", lambda: str(_found(configured, find_esbuild, fetch_esbuild, cache_dir()))),
        ("engine", lambda: _compiled(open_engine, cache_dir())),
    ]
    for name, step in steps:
        try:
            print(f"ok    {name}: {step()}")  # noqa: T201
        except CodeModeError as error:
            failed = True
            print(f"fail  {name}: {error.message}")  # noqa: T201
    if failed:
        raise typer.Exit(1)


def _found(configured: str | None, find: Callable[..., Path], fetch: Callable[..., Path], cache: Path) -> Path:
    try:
        return find(configured, environ=os.environ, cache_dir=cache)
    except CodeModeError:
        if configured is not None:
            raise
        return fetch(cache, registry=None)


def _compiled(open_engine: Callable[..., Any], cache: Path) -> str:
    with open_engine(cache, max_threads=1):
        return f"compiled, kept in {cache}"


# shared by the commands


def _load(path: str | None, level: LogLevel | None, file: str | None, *, read_only: bool = False) -> Config:
    from codemode_mcp.app import config_dir
    from codemode_mcp.config import find_config, load_config

    found = None
    try:
        found = find_config(path, environ=os.environ, cwd=Path.cwd(), user_config_dir=config_dir())
        loaded = load_config(found, environ=os.environ)
    except ConfigError as error:
        _say(f"invalid_config: {found or path}")
        for problem in error.problems:
            _say(f"  - {problem}")
        raise typer.Exit(2) from None
    return _with_options(loaded, level, file, read_only=read_only)


def _with_options(loaded: Config, level: LogLevel | None, file: str | None, *, read_only: bool) -> Config:
    """What the command line says goes before what the file says."""
    from dataclasses import replace

    log = loaded.log
    if level is not None:
        log = replace(log, level=level)
    if file is not None:
        log = replace(log, file=file)
    tools = loaded.tools
    if read_only:
        contexts = tuple(replace(each, rules=replace(each.rules, read_only=True)) for each in tools.contexts)
        tools = replace(tools, policy=replace(tools.policy, read_only=True), contexts=contexts)
    return replace(loaded, log=log, tools=tools)


@contextmanager
def _logging(config: Config, level: LogLevel | None = None) -> Iterator[Redactor]:
    from dataclasses import replace

    from codemode_mcp.audit import Redactor, logging_to

    redactor = Redactor()
    redactor.know(config.secretive)
    settings = config.log if level is None else replace(config.log, level=level)
    try:
        with logging_to(settings, redactor):
            yield redactor
    except OSError as error:
        _stop(1, f"cannot log to {settings.file}: {error.strerror}")


@contextmanager
def _without(beginning: str) -> Iterator[None]:
    """Keep messages of plugins that begin so out of the log."""
    import logging

    def others(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(beginning)

    log = logging.getLogger("codemode_mcp.plugins")
    log.addFilter(others)
    try:
        yield
    finally:
        log.removeFilter(others)


def _say(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201


def _stop(code: int, text: str) -> NoReturn:
    _say(text)
    raise typer.Exit(code)
