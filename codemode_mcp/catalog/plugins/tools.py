"""Checks of the tools that plugins define, and the conversion of their inputs and results."""

from __future__ import annotations

import inspect
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from codemode_mcp.catalog.plugins.api import PluginTool, ToolError
from codemode_mcp.catalog.plugins.running import describe_error
from upstream_clients.json_values import is_deeper
from upstream_clients.schema_relaxation import relax
from upstream_clients.schemas import UnusableSchema, compile_check, compile_schema, with_optional_defaults
from upstream_clients.tools import Annotations, JsonObject, Tool

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError


log = logging.getLogger("codemode_mcp.plugins")

MAX_TIMEOUT = 3600.0
"""Maximum timeout of a tool in seconds."""

MAX_DESCRIPTION = 100_000
"""Maximum number of characters of a description."""

MAX_DEPTH = 200
"""Maximum number of nested levels in a result."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_MAX_PROBLEMS = 20


class BadTool(Exception):
    """A tool that a plugin defines is not valid. The message names the tool and the mistake."""


class NotJson(Exception):
    """A value has no JSON form. The message shows nothing of the value."""


class CheckedTool(Struct, frozen=True, eq=False):
    """A tool that was checked and can be called.

    Attributes:
        takes_call: whether `run` takes a `CallInfo` as its second argument.
        read: converts arguments to the input of `run`; raises ToolError.
        write: converts the result of `run` to JSON; raises NotJson.
        has_input_model: whether `read` runs code of the plugin: that of a pydantic model.
        has_output_model: whether `write` runs code of the plugin.
    """

    tool: Tool
    label: str | None
    run: Callable[..., Any]
    takes_call: bool
    timeout: float
    read: Callable[[JsonObject], Any]
    write: Callable[[Any], Any]
    has_input_model: bool
    has_output_model: bool


def check_name(name: object) -> str:
    """Return a name if it is valid for a tool. Raises `BadTool` otherwise."""
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise BadTool(
            f"{name!r:.100} is not a valid tool name: use up to 128 letters, digits and _ . -, "
            "and do not begin with . or -"
        )
    return name


def check_tool(tool: object, *, bundled: bool = False) -> CheckedTool:
    """Check a tool that a plugin defines.

    Args:
        bundled: whether its plugin comes with the product. Its schemas are then compiled at the first call.

    Raises:
        BadTool: the tool is not valid.
    """
    if not isinstance(tool, PluginTool):
        raise BadTool(f"a tool must be a PluginTool, not {_kind(tool)}")
    name = check_name(tool.name)
    if problem := _problem(tool):
        raise BadTool(f"tool {name!r}: {problem}")
    input_schema, read = _input(name, tool.input, bundled=bundled)
    output_schema, write = _output(name, tool.output, bundled=bundled)
    return CheckedTool(
        tool=Tool(name, tool.description, tool.label, input_schema, output_schema, tool.annotations),
        label=tool.label,
        run=tool.run,
        takes_call=_takes_call(name, tool.run),
        timeout=float(tool.timeout),
        read=read,
        write=write,
        has_input_model=_model(tool.input) is not None,
        has_output_model=_model(tool.output) is not None,
    )


def _problem(tool: Any) -> str | None:
    if not isinstance(tool.description, str) or not tool.description.strip():
        return "it needs a description, by which programs find it"
    if len(tool.description) > MAX_DESCRIPTION:
        return f"its description is longer than {MAX_DESCRIPTION} characters"
    if tool.label is not None and not isinstance(tool.label, str):
        return f"label must be a string, not {_kind(tool.label)}"
    if not isinstance(tool.annotations, Annotations):
        return f"annotations must be Annotations(...), not {_kind(tool.annotations)}"
    timeout = tool.timeout
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= MAX_TIMEOUT:
        return f"timeout must be a number of seconds, more than 0 and at most {MAX_TIMEOUT:g}"
    return None


def check_tools(made: object, names: Sequence[str], *, bundled: bool = False) -> list[CheckedTool]:
    """Check the tools that a factory has returned. `bundled` as for `check_tool`.

    Args:
        names: the names that the factory was declared with.

    Raises:
        BadTool: a tool is not valid, or was not declared.
    """
    if made is None:
        return []
    if isinstance(made, PluginTool):
        made = [made]
    if isinstance(made, str | bytes) or not isinstance(made, Sequence):
        raise BadTool(f"a factory must return PluginTools or None, not {_kind(made)}")
    if len(made) > len(names):
        raise BadTool(f"it returned {len(made)} tools, but declared only {len(names)} names")
    tools: dict[str, CheckedTool] = {}
    for each in made:
        tool = check_tool(each, bundled=bundled)
        name = tool.tool.name
        if name not in names:
            raise BadTool(f"it returned the tool {name!r}, whose name was not declared with tools()")
        if name in tools:
            raise BadTool(f"it returned the tool {name!r} twice")
        tools[name] = tool
    return list(tools.values())


# input and output


def _input(name: str, declared: object, *, bundled: bool) -> tuple[JsonObject, Callable[[JsonObject], Any]]:
    model = _model(declared)
    if model is not None:
        schema = _schema_of(name, "input", model, "validation")

        def read_model(arguments: JsonObject) -> Any:
            from pydantic import ValidationError

            try:
                return model.model_validate_json(json.dumps(dict(arguments)))
            except ValidationError as error:
                raise ToolError(_invalid(error)) from None

        _require_object(name, schema)
        return schema, read_model
    schema = relax(_checked_schema(name, "input", declared, bundled=bundled)).schema
    _require_object(name, schema)
    compiled = cache(partial(compile_schema, with_optional_defaults(schema)))
    if not bundled:
        compiled()

    def read(arguments: JsonObject) -> Any:
        # The arguments were checked by the schema in the catalog, which may belong to an earlier tool with this name.
        plain = dict(arguments)
        if not compiled().is_valid(plain):
            raise ToolError(
                "invalid arguments: they no longer match the input schema of the tool, which has changed; "
                "run the program again"
            )
        return plain

    return schema, read


def _output(name: str, declared: object, *, bundled: bool) -> tuple[JsonObject | None, Callable[[Any], Any]]:
    if declared is None:
        return None, plain_json
    model = _model(declared)
    if model is not None:

        def write_model(value: Any) -> Any:
            from pydantic import ValidationError

            try:
                whole = value if isinstance(value, model) else model.model_validate(value)
            except ValidationError as error:
                raise NotJson(f"does not match its output model: {_locations(error)}") from None
            return plain_json(whole)

        return _schema_of(name, "output", model, "serialization"), write_model
    schema = _checked_schema(name, "output", declared, bundled=bundled)
    compiled = cache(partial(compile_check, schema))
    if not bundled:
        compiled()

    def write(value: Any) -> Any:
        plain = plain_json(value)
        check = compiled()
        assert check is not None
        problem = check(plain)
        if problem is not None:
            raise NotJson(f"does not match its output schema: {problem}")
        return plain

    return schema, write


def plain_json(value: Any) -> Any:
    """Return a value as plain JSON, with models converted.

    Raises:
        NotJson: the value has no JSON form.
    """
    try:
        text = json.dumps(value, allow_nan=False, default=_dump_model)
        plain = json.loads(text)
    except TypeError:
        raise NotJson("contains a value or a key that JSON cannot represent") from None
    except RecursionError:
        raise NotJson(f"is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:
        circular = "ircular" in str(error)
        raise NotJson("contains itself" if circular else "contains a number that JSON cannot represent") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(plain, MAX_DEPTH):
        raise NotJson(f"is nested deeper than {MAX_DEPTH} levels")
    return plain


def _dump_model(value: Any) -> Any:
    from pydantic import BaseModel

    if isinstance(value, BaseModel):
        try:
            return value.model_dump(mode="json", by_alias=True)
        except Exception as error:
            log.error("a model of a plugin cannot be converted to JSON: %s", describe_error(error))
            raise NotJson(f"contains a {type(value).__name__} that cannot be converted to JSON") from None
    raise TypeError


def _model(declared: object) -> type[BaseModel] | None:
    if not isinstance(declared, type):
        return None
    from pydantic import BaseModel

    return declared if issubclass(declared, BaseModel) else None


def _schema_of(name: str, which: str, model: type[BaseModel], mode: Any) -> JsonObject:
    try:
        schema = model.model_json_schema(mode=mode)
    except Exception as error:
        raise BadTool(f"tool {name!r}: {which}: the model has no JSON Schema: {describe_error(error)}") from None
    return _checked_schema(name, which, schema, bundled=False)


def _checked_schema(name: str, which: str, declared: object, *, bundled: bool) -> JsonObject:
    if not isinstance(declared, Mapping):
        raise BadTool(f"tool {name!r}: {which} must be a pydantic model or a JSON Schema, not {_kind(declared)}")
    try:
        schema: dict[str, Any] = plain_json(dict(declared))
        if not bundled:
            compile_schema(schema)
    except (NotJson, UnusableSchema) as error:
        why = " ".join(str(error).split())  # on one line, for logs
        raise BadTool(f"tool {name!r}: {which} is not a usable JSON Schema: {why}") from None
    return schema


def _require_object(name: str, schema: JsonObject) -> None:
    if schema.get("type", "object") != "object":
        raise BadTool(
            f"tool {name!r}: input must be the schema of an object, since programs call tools with one object"
        )


def _invalid(error: ValidationError) -> str:
    shown = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"- {'.'.join(map(str, each['loc'])) or 'input'}: {each['msg']}" for each in shown[:_MAX_PROBLEMS]]
    if len(shown) > _MAX_PROBLEMS:
        lines.append(f"… and {len(shown) - _MAX_PROBLEMS} more")
    return "\n".join(["invalid arguments, the tool was not called.", *lines])


def _locations(error: ValidationError) -> str:
    shown = error.errors(include_url=False, include_context=False, include_input=False)
    return ", ".join(sorted({".".join(map(str, each["loc"])) or "the value" for each in shown}))[:300]


def _takes_call(name: str, run: object) -> bool:
    if not callable(run):
        raise BadTool(f"tool {name!r}: run must be a function, not {_kind(run)}")
    try:
        parameters = list(inspect.signature(run).parameters.values())
    except (TypeError, ValueError):
        return False  # written in C, without a signature
    needed = [each for each in parameters if each.default is each.empty]
    positional = [each for each in needed if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    rest = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    optional = any(each.default is not each.empty and each.kind is not each.KEYWORD_ONLY for each in parameters)
    if (
        len(positional) > 2
        or any(each.kind is each.KEYWORD_ONLY for each in needed)
        or not (positional or rest or optional)
    ):
        raise BadTool(f"tool {name!r}: run must take one or two positional arguments: run(input) or run(input, call)")
    return len(positional) == 2


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__
