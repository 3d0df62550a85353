"""Tools of plugins: checked when they are made, and called as those of any other source."""

from __future__ import annotations

import inspect
import json
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from codemode_mcp.errors import PluginError
from codemode_mcp.plugins.api import CallInfo, PluginTool, ToolError
from codemode_mcp.plugins.running import described, is_async, log_fault, run_code
from upstream_clients.errors import UpstreamCallError
from upstream_clients.schemas import UnusableSchema, compile_check, compile_schema
from upstream_clients.tools import Annotations, Tool, ToolOutcome, UpstreamView

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pydantic import BaseModel, ValidationError

    from codemode_mcp.plugins.running import Owner
    from upstream_clients.tools import AdmitFn, Asking, BeginFn, JsonObject, ProgressFn, SentFn

log = logging.getLogger("codemode_mcp.plugins")

MAX_TIMEOUT = 3600.0
"""Seconds."""

MAX_DESCRIPTION = 100_000

MAX_DEPTH = 200
"""Levels of nesting in a result."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MAX_PROBLEMS = 20


class BadTool(Exception):
    """A value of a plugin is no tool; the text says which and why."""


class _NotJson(Exception):
    """A value is no JSON; the text says why without showing anything of it."""


@dataclass(frozen=True, slots=True, eq=False)
class MadeTool:
    """A tool that has been checked, ready to be called.

    Attributes:
        takes_call: whether `run` gets a `CallInfo` too.
        read: the input for `run`; raises ToolError.
        write: the JSON value of what `run` has returned; raises _NotJson.
        own_input, own_output: whether `read` or `write` runs code of the plugin's, that of a model.
    """

    tool: Tool
    label: str | None
    run: Callable[..., Any]
    takes_call: bool
    timeout: float
    read: Callable[[JsonObject], Any]
    write: Callable[[Any], Any]
    own_input: bool
    own_output: bool


def check_name(name: object) -> str:
    """Return the name, if a tool may have it. Raises `BadTool`."""
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise BadTool(
            f"{name!r:.100} is no name of a tool: up to 128 letters, digits and _ . - that do not begin with . or -"
        )
    return name


def make(tool: object, *, ours: bool = False) -> MadeTool:
    """Return a tool as a plugin gives it, made ready.

    Args:
        ours: of a plugin that comes with the product: its schemas are compiled when the tool is first called.

    Raises:
        BadTool: it cannot be one.
    """
    if not isinstance(tool, PluginTool):
        raise BadTool(f"a tool is to be a PluginTool, not {_kind(tool)}")
    name = check_name(tool.name)
    description: object = tool.description
    label: object = tool.label
    annotations: object = tool.annotations
    timeout: object = tool.timeout
    if not isinstance(description, str) or not description.strip():
        raise BadTool(f"tool {name!r}: it needs a description; programs find it by that")
    if len(description) > MAX_DESCRIPTION:
        raise BadTool(f"tool {name!r}: its description is longer than {MAX_DESCRIPTION} characters")
    if label is not None and not isinstance(label, str):
        raise BadTool(f"tool {name!r}: label is a string, not {_kind(label)}")
    if not isinstance(annotations, Annotations):
        raise BadTool(f"tool {name!r}: annotations are Annotations(...), not {_kind(annotations)}")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        raise BadTool(f"tool {name!r}: timeout is to be seconds, more than 0 and at most {MAX_TIMEOUT:g}")
    input_schema, read = _input(name, tool.input, ours=ours)
    output_schema, write = _output(name, tool.output, ours=ours)
    return MadeTool(
        tool=Tool(name, description, label, input_schema, output_schema, annotations),
        label=label,
        run=tool.run,
        takes_call=_takes_call(name, tool.run),
        timeout=float(timeout),
        read=read,
        write=write,
        own_input=_model(tool.input) is not None,
        own_output=_model(tool.output) is not None,
    )


def make_all(made: object, names: Sequence[str], *, ours: bool = False) -> list[MadeTool]:
    """Make the tools that a factory has returned. `ours` as for `make`.

    Raises:
        BadTool: something of it is no tool, or not one of those that the factory may return.
    """
    if made is None:
        return []
    if isinstance(made, PluginTool):
        made = [made]
    if isinstance(made, str | bytes) or not isinstance(made, Sequence):
        raise BadTool(f"a factory returns PluginTools or None, not {_kind(made)}")
    if len(made) > len(names):
        raise BadTool(f"it returned {len(made)} tools and has declared {len(names)} names")
    tools: dict[str, MadeTool] = {}
    for each in made:
        tool = make(each, ours=ours)
        name = tool.tool.name
        if name not in names:
            raise BadTool(f"it returned the tool {name!r}, which is none of the names declared with tools()")
        if name in tools:
            raise BadTool(f"it returned the tool {name!r} twice")
        tools[name] = tool
    return list(tools.values())


# input and output


def _input(name: str, given: object, *, ours: bool) -> tuple[JsonObject, Callable[[JsonObject], Any]]:
    model = _model(given)
    if model is not None:
        schema = _schema_of(name, "input", model, "validation")

        def read_model(arguments: JsonObject) -> Any:
            from pydantic import ValidationError

            try:
                return model.model_validate_json(json.dumps(dict(arguments)))
            except ValidationError as error:
                raise ToolError(_invalid(error)) from None

        _need_object(name, schema)
        return schema, read_model
    schema = _own_schema(name, "input", given, ours=ours)
    _need_object(name, schema)
    compiled = cache(partial(compile_schema, schema))
    if not ours:
        compiled()

    def read(arguments: JsonObject) -> Any:
        # They were checked by the schema of the catalog, which may be that of an earlier tool of this name.
        plain = dict(arguments)
        if not compiled().is_valid(plain):
            raise ToolError(
                "invalid arguments: they do not fit the tool's input schema any more; run the program again"
            )
        return plain

    return schema, read


def _output(name: str, given: object, *, ours: bool) -> tuple[JsonObject | None, Callable[[Any], Any]]:
    if given is None:
        return None, plain_json
    model = _model(given)
    if model is not None:

        def write_model(value: Any) -> Any:
            from pydantic import ValidationError

            try:
                whole = value if isinstance(value, model) else model.model_validate(value)
            except ValidationError as error:
                raise _NotJson(f"does not fit its output model: {_places(error)}") from None
            return plain_json(whole)

        return _schema_of(name, "output", model, "serialization"), write_model
    schema = _own_schema(name, "output", given, ours=ours)
    compiled = cache(partial(compile_check, schema))
    if not ours:
        compiled()

    def write(value: Any) -> Any:
        plain = plain_json(value)
        check = compiled()
        assert check is not None
        problem = check(plain)
        if problem is not None:
            raise _NotJson(f"does not fit its output schema: {problem}")
        return plain

    return schema, write


def plain_json(value: Any) -> Any:
    """Return a copy of a value that is JSON but for models in it.

    Raises:
        _NotJson: it is not.
    """
    try:
        text = json.dumps(value, allow_nan=False, default=_dumped)
        plain = json.loads(text)
    except TypeError:
        raise _NotJson("holds a value or a key that JSON does not have") from None
    except RecursionError:
        raise _NotJson(f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        what = "holds itself" if "ircular" in str(error) else "holds a number that JSON does not have"
        raise _NotJson(what) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and _deeper_than(plain, MAX_DEPTH):
        raise _NotJson(f"is nested deeper than {MAX_DEPTH} levels")
    return plain


def _dumped(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        try:
            return value.model_dump(mode="json", by_alias=True)
        except Exception as error:
            log.error("a model of a plugin cannot be written as JSON: %s", described(error))
            raise _NotJson(f"holds a {type(value).__name__} that cannot be written as JSON") from None
    raise TypeError


def _model(given: object) -> type[BaseModel] | None:
    if not isinstance(given, type):
        return None
    from pydantic import BaseModel

    return given if issubclass(given, BaseModel) else None


def _schema_of(name: str, which: str, model: type[BaseModel], mode: Any) -> JsonObject:
    try:
        schema = model.model_json_schema(mode=mode)
    except Exception as error:
        raise BadTool(f"tool {name!r}: {which}: the model gives no JSON Schema: {described(error)}") from None
    return _own_schema(name, which, schema, ours=False)


def _own_schema(name: str, which: str, given: object, *, ours: bool) -> JsonObject:
    if not isinstance(given, Mapping):
        raise BadTool(f"tool {name!r}: {which} is to be a pydantic model or a JSON Schema, not {_kind(given)}")
    try:
        schema: dict[str, Any] = plain_json(dict(given))
        if not ours:
            compile_schema(schema)
    except (_NotJson, UnusableSchema) as error:
        why = " ".join(str(error).split())  # on one line, for logs
        raise BadTool(f"tool {name!r}: {which} is no usable JSON Schema: {why}") from None
    return schema


def _need_object(name: str, schema: JsonObject) -> None:
    if schema.get("type", "object") != "object":
        raise BadTool(f"tool {name!r}: input is to be a schema of an object; programs call tools with one object")


def _invalid(error: ValidationError) -> str:
    shown = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"- {'.'.join(map(str, each['loc'])) or 'input'}: {each['msg']}" for each in shown[:_MAX_PROBLEMS]]
    if len(shown) > _MAX_PROBLEMS:
        lines.append(f"… and {len(shown) - _MAX_PROBLEMS} more")
    return "\n".join(["invalid arguments, the tool was not called.", *lines])


def _places(error: ValidationError) -> str:
    shown = error.errors(include_url=False, include_context=False, include_input=False)
    return ", ".join(sorted({".".join(map(str, each["loc"])) or "the value" for each in shown}))[:300]


def _takes_call(name: str, run: object) -> bool:
    if not callable(run):
        raise BadTool(f"tool {name!r}: run is to be a function, not {_kind(run)}")
    try:
        parameters = list(inspect.signature(run).parameters.values())
    except (TypeError, ValueError):
        return False  # one of C that does not tell
    needed = [each for each in parameters if each.default is each.empty]
    positional = [each for each in needed if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    optional = any(each.default is not each.empty and each.kind is not each.KEYWORD_ONLY for each in parameters)
    if (
        len(positional) > 2
        or any(each.kind is each.KEYWORD_ONLY for each in needed)
        or not (positional or rest or optional)
    ):
        raise BadTool(f"tool {name!r}: run is called as run(input) or run(input, call), which it does not take")
    return len(positional) == 2


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _deeper_than(value: Any, depth: int) -> bool:
    level = [value]
    for _ in range(depth):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


# calls


class PluginSource:
    """The tools of one plugin, for the calls of one run. Satisfies `ToolSource`.

    Args:
        find: the tool of a name as it is now for the caller of the run, None when there is none.
    """

    def __init__(
        self, plugin: Owner, run_id: str, owner: str, find: Callable[[str], Awaitable[MadeTool | None]]
    ) -> None:
        self._plugin = plugin
        self._run_id = run_id
        self._owner = owner
        self._find = find

    @property
    def name(self) -> str:
        return self._plugin.name

    def view(self) -> UpstreamView:
        return UpstreamView(self._plugin.name, "ready")

    async def call_tool(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        on_progress: ProgressFn | None = None,
        timeout: float | None = None,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        admit: AdmitFn | None = None,
        begin: BeginFn | None = None,
    ) -> ToolOutcome:
        made = await self._find(tool)
        if admit is not None:
            admit(None if made is None else made.tool)
        if made is None:
            raise self._error(f"plugin {self.name!r} has no tool {tool!r} any more", dispatched=False)
        seconds = made.timeout if timeout is None else min(timeout, made.timeout)
        what = f"its tool {tool!r}"
        progress = _Progress(on_progress)
        call = (CallInfo(self._run_id, self._owner, progress),) if made.takes_call else ()
        dispatched = False
        try:
            if made.own_input:
                given = await run_code(self._plugin, f"the input model of {what}", seconds, made.read, arguments)
            else:
                given = made.read(arguments)
            if begin is not None:
                await begin()
            if admit is not None and (made.own_input or begin is not None):  # that took time
                admit(made.tool)
            dispatched = True
            if on_sent is not None:
                on_sent()
            result = await run_code(self._plugin, what, seconds, self._run, made, what, given, *call)
        except ToolError as error:
            raise self._error(str(error) or f"{what} failed", dispatched=dispatched) from None
        except PluginError as error:
            raise self._error(error.message, dispatched=dispatched) from None
        finally:
            progress.close()
        if not isinstance(result, _NotJson):
            return ToolOutcome(result)
        why = f"plugin {self.name!r} failed: the result of {what} {result}"
        log.error("%s", why)
        raise self._error(why, dispatched=True)

    async def _run(self, made: MadeTool, what: str, *given: Any) -> Any:
        """Return the result as JSON, or why it is none. Where it can be, it is made in the thread that the tool ran
        in."""

        def write(result: Any) -> Any:
            try:
                return made.write(result)
            except _NotJson as error:
                return error
            except BaseException as error:  # whatever the objects in it do when they are looked at
                log_fault(self.name, f"the result of {what}", error)
                return _NotJson("cannot be written as JSON")

        def run() -> tuple[bool, Any]:
            result = made.run(*given)
            return (False, result) if inspect.isawaitable(result) else (True, write(result))

        if is_async(made.run):
            result = await made.run(*given)
        else:
            written, result = await self._plugin.threads.run(run)
            if written:
                return result
            result = await result
        return await self._plugin.threads.run(write, result) if made.own_output else write(result)

    async def request(
        self,
        method: str,
        params: JsonObject,
        *,
        asking: Asking | None = None,
        on_sent: SentFn | None = None,
        begin: BeginFn | None = None,
    ) -> JsonObject:
        raise self._error(f"plugin {self.name!r} has tools only", dispatched=False)

    def _error(self, message: str, *, dispatched: bool) -> UpstreamCallError:
        return UpstreamCallError(self.name, message, dispatched=dispatched)


class _Progress:
    """The function with which a tool reports progress, until its call has ended."""

    def __init__(self, on_progress: ProgressFn | None) -> None:
        self._on_progress = on_progress

    def close(self) -> None:
        self._on_progress = None

    async def __call__(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        for number in (progress, total):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"progress() takes numbers, not {number!r:.100}")
        if self._on_progress is not None:
            await self._on_progress(progress, total, None if message is None else str(message))
