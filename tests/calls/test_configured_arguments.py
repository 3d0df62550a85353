"""Arguments that the configuration sets: programs cannot give them, and cannot learn them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.audit.events import Auditor
from codemode_mcp.base.settings import PolicyRules, ToolOverride, ToolSettings
from codemode_mcp.catalog.overrides import Overrides
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.approval import ApprovalRequest, Verdict, ask_for
from codemode_mcp.rules.policy.policy import Caller, Policy
from codemode_mcp.rules.trust.service import Trust
from codemode_mcp.runs.calls.arguments import secrets_of
from codemode_mcp.runs.calls.dispatch import Dispatcher
from codemode_mcp.runs.calls.outcome import CallEvents, Calling, CallRecord
from codemode_mcp.sandbox.messages import Completion, ToolCall
from tests.properties import examples
from tests.values import replace
from upstream_clients.errors import UpstreamCallError
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import Annotations, Question, Tool, ToolOutcome, UpstreamView

ID = "mcp:hub:create_issue"
SECRET = "hunter2-do-not-print"
SCHEMA = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "repo_name": {"type": "string"},
        "title": {"type": "string"},
        "labels": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer"},
    },
    "required": ["owner", "repo_name", "title"],
}
TOOL = Tool("create_issue", input_schema=SCHEMA, annotations=Annotations(read_only=True))


class Hub:
    """A source that records what it is sent, and that asks for admission right before."""

    name = "hub"

    def __init__(self, tool: Tool = TOOL) -> None:
        self.tool = tool
        self.sent: list[tuple[str, Any]] = []
        self.before_sending = lambda: None
        self.answer: dict[str, Any] | Exception = {"content": [{"type": "text", "text": "done"}]}

    def view(self) -> UpstreamView:
        return UpstreamView("hub", "ready", tools=(self.tool,))

    async def call_tool(self, tool: str, arguments: Any, **options: Any) -> ToolOutcome:
        self.before_sending()
        options["admit"](self.tool)
        self.sent.append((tool, json.loads(json.dumps(arguments))))
        if isinstance(self.answer, Exception):
            raise self.answer
        return ToolOutcome(self.answer)


class Bench:
    def __init__(self, override: ToolOverride | None, tool: Tool = TOOL, **rules: Any) -> None:
        self.hub = Hub(tool)
        self.settings = ToolSettings(policy=PolicyRules(**rules), overrides={} if override is None else {ID: override})
        self.trust = Trust(None, lambda: [self.hub.view()], Auditor(), lambda: None)
        self.dispatcher = Dispatcher(lambda *_: self.hub, self.settings, trust=self.trust)  # type: ignore[arg-type,return-value]
        self.catalog = build(
            [self.hub.view()], Policy(self.settings.policy), overrides=Overrides(self.settings.overrides)
        )
        self.context = self.dispatcher.context("run", "me", Caller("me"), self.catalog)
        self.asked: list[ApprovalRequest] = []

    def apply(self, override: ToolOverride | None) -> None:
        self.settings = replace(self.settings, overrides={} if override is None else {ID: override})
        self.dispatcher.apply(self.settings)

    async def call(self, arguments: Any) -> Completion:
        async def approve(request: ApprovalRequest) -> Verdict:
            self.asked.append(request)
            return Verdict(approved=True)

        call = ToolCall(1, ID, json.dumps(arguments))
        return await self.dispatcher.call(Calling(call, self.context, CallRecord(1, ID, 0.0), approve=approve))

    async def refused(self, arguments: Any) -> str:
        completion = await self.call(arguments)
        assert completion.error is not None
        assert self.hub.sent == []
        return completion.error.message


FIXED = ToolOverride(
    name="report", fixed={"owner": "acme", "repo_name": "site"}, default={"limit": 5}, hidden=("labels",)
)


async def test_a_call_is_sent_by_the_original_name_with_the_arguments_of_the_configuration() -> None:
    bench = Bench(FIXED)
    assert (await bench.call({"title": "x"})).error is None
    assert (await bench.call({"title": "x", "limit": 6})).error is None
    sent = {"owner": "acme", "repo_name": "site", "title": "x"}
    assert bench.hub.sent == [("create_issue", {**sent, "limit": 5}), ("create_issue", {**sent, "limit": 6})]


async def test_a_tool_with_an_override_is_held_when_its_server_changes_it() -> None:
    bench = Bench(FIXED)
    bench.trust.apply({}, [UpstreamSpec("hub", "stdio", command="server")])
    assert (await bench.call({"title": "x"})).error is None
    bench.hub.sent.clear()
    bench.hub.tool = replace(TOOL, input_schema={**SCHEMA, "maxProperties": 5})
    message = await bench.refused({"title": "x"})
    assert message.startswith("MCP.hub.report is held: its server has changed it since it was accepted")
    assert "codemode-mcp trust accept hub.create_issue" in message


@pytest.mark.parametrize(
    "name", ["owner", "Owner", "OWNER", "repo_name", "repoName", "repo-name", "\uff4fwner", "labels", "_labels"]
)
async def test_an_argument_of_the_configuration_cannot_be_given_in_any_spelling(name: str) -> None:
    message = await Bench(FIXED).refused({"title": "x", name: "evil"})
    assert message.startswith("MCP.hub.report: invalid arguments, nothing was sent.\n")
    assert "only the configuration of codemode-mcp may set this argument; leave it out" in message
    assert "acme" not in message


async def test_a_similar_argument_that_the_tool_declares_can_be_given() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "ID": {"type": "string"}}}
    bench = Bench(ToolOverride(fixed={"id": "1"}), Tool("create_issue", input_schema=schema))
    assert (await bench.call({"ID": "2"})).error is None
    assert bench.hub.sent == [("create_issue", {"id": "1", "ID": "2"})]


async def test_a_hidden_argument_is_sent_only_if_the_tool_requires_it_with_a_default() -> None:
    part = {"type": "integer", "default": 3}
    schema = {"type": "object", "properties": {"a": part, "b": part, "c": part}, "required": ["a"]}
    bench = Bench(ToolOverride(hidden=("a", "b")), Tool("create_issue", input_schema=schema))
    assert list(Overrides(bench.settings.overrides).problems(bench.hub.view())) == []
    assert (await bench.call({})).error is None
    assert bench.hub.sent == [("create_issue", {"a": 3})]


async def test_all_problems_are_named_together() -> None:
    message = await Bench(FIXED).refused({"owner": "evil", "title": 5})
    assert "- input.owner: only the configuration" in message
    assert "- input.title: expected string, got number 5" in message


async def test_a_problem_with_a_fixed_value_sends_the_user_to_doctor_and_has_no_value() -> None:
    override = ToolOverride(fixed={"owner": 123456, "repo_name": "site"})
    message = await Bench(override).refused({"title": "x"})
    assert "ask the user to run: codemode-mcp doctor" in message
    assert "123456" not in message


async def test_the_tools_own_schema_is_checked_with_all_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {"kind": {"type": "string"}, "size": {"type": "integer"}},
        "if": {"properties": {"kind": {"const": "big"}}},
        "then": {"properties": {"size": {"minimum": 10}}},
    }
    bench = Bench(ToolOverride(fixed={"kind": "big"}), Tool("create_issue", input_schema=schema))
    message = await bench.refused({"size": 1})
    assert "ask the user to run: codemode-mcp doctor" in message
    assert (await bench.call({"size": 11})).error is None


# approvals


async def test_a_person_sees_what_is_sent_except_secrets_and_the_record_has_nothing_fixed() -> None:
    override = ToolOverride(
        fixed={"owner": "acme", "repo_name": SECRET}, default={"limit": 5}, secret=frozenset({"repo_name"})
    )
    bench = Bench(override, ask=("*",))
    assert (await bench.call({"title": "x"})).error is None
    (request,) = bench.asked
    question = ask_for([request])[0].message
    assert '"owner": "acme"' in question
    assert '"repo_name": "(a secret of the configuration, not shown)"' in question
    assert 'set by the configuration of codemode-mcp, not by the program: "owner", "repo_name"' in question
    assert '"limit": 5' in question
    assert SECRET not in question
    assert bench.hub.sent[0][1]["repo_name"] == SECRET

    recorded: list[Any] = []

    class Auditor:
        listening = True

        def emit(self, *_: Any, **fields: Any) -> None:
            recorded.append(fields)

    CallEvents(Auditor(), "call").asked(request)  # type: ignore[arg-type]
    assert json.loads(recorded[0]["inputs"]) == {"limit": 5, "title": "x"}


async def test_an_override_that_changes_while_a_call_waits_refuses_it() -> None:
    bench = Bench(FIXED, ask=("*",))
    changed = replace(FIXED, fixed={"owner": "other", "repo_name": "site"})
    bench.hub.before_sending = lambda: bench.apply(changed)
    message = await bench.refused({"title": "x"})
    assert message == (
        "MCP.hub.report: the configuration of this tool has changed while the call waited, so it was not sent; "
        "call it again"
    )
    bench.hub.before_sending = lambda: None
    assert (await bench.call({"title": "x"})).error is None
    assert bench.hub.sent[0][1]["owner"] == "other"


async def test_a_secret_that_the_server_repeats_is_replaced_in_results_and_errors() -> None:
    override = ToolOverride(fixed={"owner": "acme", "repo_name": SECRET}, secret=frozenset({"repo_name"}))
    bench = Bench(override)
    bench.hub.answer = {
        "content": [{"type": "text", "text": f"key {SECRET} of acme"}],
        "structuredContent": {SECRET: 1},
    }
    found = json.loads((await bench.call({"title": "x"})).value)
    assert found == {"content": [{"type": "text", "text": "key *** of acme"}], "structuredContent": {"***": 1}}
    bench.hub.answer = UpstreamCallError("hub", f"the key {SECRET} was refused", dispatched=True)
    completion = await bench.call({"title": "x"})
    assert completion.error is not None
    assert completion.error.message == "MCP.hub.createIssue: the key *** was refused"


async def test_a_secret_that_the_server_repeats_is_replaced_in_what_it_asks(caplog: pytest.LogCaptureFixture) -> None:
    override = ToolOverride(default={"repo_name": SECRET}, secret=frozenset({"repo_name"}))
    bench = Bench(override)
    seen: list[object] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    async def ask(question: Question) -> dict[str, Any]:
        seen.append(question.params)
        return {"action": "decline"}

    async def call_tool(tool: str, arguments: Any, **options: Any) -> ToolOutcome:
        await options["on_progress"](1, 2, f"with {SECRET}")
        await options["on_progress"](2, None, None)
        question = Question("hub", "elicitation/create", {"message": f"{SECRET}?", "requestedSchema": {SECRET: []}})
        answer = await options["asking"].ask(question)
        return ToolOutcome(answer, (f"no {SECRET}",), json.dumps([SECRET]))

    bench.hub.call_tool = call_tool  # type: ignore[method-assign]
    call = ToolCall(1, ID, json.dumps({"owner": "a", "title": "x"}))
    with caplog.at_level("DEBUG", "codemode_mcp.runs.calls"):
        end = await bench.dispatcher.call(Calling(call, bench.context, CallRecord(1, ID, 0.0), on_progress, ask))
    assert end.value == '{"action":"decline"}'
    assert seen == [(1, 2, "with ***"), (2, None, None), {"message": "***?", "requestedSchema": {"***": []}}]
    assert "no ***" in caplog.text
    assert SECRET not in caplog.text


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    JSON,
    st.text('aé"\\\n €', min_size=8, max_size=12),
    st.sampled_from([str, lambda text: json.dumps({"a": text}), lambda text: base64.b64encode(text.encode()).decode()]),
)
def test_no_text_of_an_outcome_keeps_a_secret(value: Any, secret: str, encode: Callable[[str], str]) -> None:
    override = ToolOverride(fixed={"key": {"deep": [secret]}}, secret=frozenset({"key"}))
    secrets = secrets_of("hub", {ID: override, "mcp:other:tool": ToolOverride()})
    assert secrets is not None
    assert secrets_of("other", {ID: override, "mcp:other:tool": ToolOverride()}) is None
    quoted = f"key {encode(secret)} end"
    outcome = secrets.hide_in_outcome(ToolOutcome({"a": [value, {quoted: quoted}]}, (quoted,), json.dumps(quoted)))
    assert outcome.text is None
    for text in texts_of([outcome.result, list(outcome.notes)]):
        assert secret not in text
        assert encode(secret) not in text
    assert "***" in json.dumps(outcome.result)


def texts_of(value: Any) -> Iterator[str]:
    """Yield all strings in JSON data, keys included."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from texts_of(item)
        case dict():
            yield from texts_of([*value, *value.values()])


# runs that have begun before a change


async def test_a_run_that_began_before_the_override_is_bound_by_it() -> None:
    bench = Bench(None)
    bench.apply(FIXED)
    assert "owner: only the configuration" in await bench.refused({"owner": "evil", "repo_name": "x", "title": "x"})
    # The run's catalog has the tool without the override, so its schema still requires the arguments.
    assert "owner: missing" in await bench.refused({"title": "x"})


async def test_a_run_that_began_under_an_override_calls_the_tool_without_it() -> None:
    bench = Bench(FIXED)
    bench.apply(None)
    assert "owner: missing" in await bench.refused({"title": "x"})
    assert (await bench.call({"owner": "a", "repo_name": "b", "title": "x"})).error is None
    assert bench.hub.sent == [("create_issue", {"owner": "a", "repo_name": "b", "title": "x"})]


ARGUMENTS = {"owner": "a", "repo_name": "b", "title": "x"}


async def test_annotations_of_the_configuration_decide_about_runs_that_have_begun() -> None:
    bench = Bench(None, deny=("destructive",))
    assert (await bench.call(ARGUMENTS)).error is None
    bench.hub.sent.clear()
    own = ((ID, Annotations(read_only=False, destructive=True)),)
    bench.dispatcher.apply(replace(bench.settings, policy=replace(bench.settings.policy, annotations=own)))
    assert "may not be called: denied by the rule 'destructive'" in await bench.refused(ARGUMENTS)


async def test_annotations_of_the_configuration_count_for_a_server_that_is_not_trusted() -> None:
    own = ((ID, Annotations(read_only=True)),)
    bench = Bench(None, allow=("readOnly",), distrusted_servers=frozenset({"hub"}), annotations=own)
    assert (await bench.call(ARGUMENTS)).error is None
    bench.hub.sent.clear()
    bench.dispatcher.apply(replace(bench.settings, policy=replace(bench.settings.policy, annotations=())))
    assert "may not be called" in await bench.refused(ARGUMENTS)


# the property


KEYS = st.sampled_from(["owner", "repo_name", "title", "labels", "limit", "Owner", "other"])
VALUES = st.one_of(st.text(max_size=5), st.integers(0, 9), st.lists(st.integers(0, 9), max_size=2), st.none())
SENTINELS = st.sampled_from([f"{SECRET}-1", 918273645, [f"{SECRET}-2"], {"x": f"{SECRET}-3"}])


@settings(max_examples=examples(150), deadline=None)
@given(
    st.dictionaries(KEYS, VALUES),
    st.dictionaries(st.sampled_from(["owner", "repo_name", "labels"]), SENTINELS, min_size=1),
    st.dictionaries(st.sampled_from(["limit", "title"]), SENTINELS),
    st.booleans(),
)
def test_a_program_learns_nothing_of_fixed_values(
    arguments: dict[str, Any], fixed: dict[str, Any], default: dict[str, Any], secret: bool
) -> None:
    override = ToolOverride(fixed=fixed, default=default, secret=frozenset((*fixed, *default) if secret else default))
    bench = Bench(override)
    completion = anyio.run(bench.call, arguments)
    catalog = bench.catalog
    readable = [
        catalog.manifest,
        catalog.files.text("mcp/hub.d.ts"),
        json.dumps(catalog.header("hub", "createIssue", schema=True)),
        json.dumps(catalog.search("issue", 5, None)),
        catalog.signature(catalog.resolve(ID)),
        str(completion.value),
        "" if completion.error is None else completion.error.message,
    ]
    assert not any(SECRET in text or "918273645" in text for text in readable)
    for _, sent in bench.hub.sent:
        assert {name: sent[name] for name in fixed} == fixed
        assert not {"Owner"} & sent.keys() or "owner" not in fixed
