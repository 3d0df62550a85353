"""Questions of programs to the client: rounds of questions, missing answers and invalid answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from codemode_mcp.base.settings import PolicyRules, ToolSettings
from codemode_mcp.catalog.client_tools import ClientTools, offered_by_client
from codemode_mcp.runs.calls.outcome import MAX_NEAREST, Outcome
from codemode_mcp.runs.rendering import render
from codemode_mcp.runs.values import MemoryValues
from codemode_mcp.sandbox.engine import Engine
from tests.runs.bench import Bench, FakeClient, bench, ran, texts
from upstream_clients.errors import QuestionRefused, UpstreamCallError
from upstream_clients.tools import Asking, JsonObject, Question

EVERYTHING = ("elicitation/create", "sampling/createMessage", "roots/list")
THOUGHT = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m"}
SAMPLES = "const all = await Promise.all(Array.from({ length: %d }, (_, n) => tools.sample({ prompt: 'p' + n })));"


async def answered(opened: Bench, outcome: Outcome, client: FakeClient) -> Outcome:
    replies = {key: THOUGHT for key, _ in outcome.questions}
    return await opened.observe(outcome.run_id, client=client, answers=replies)


async def test_questions_of_parallel_calls_come_in_one_round(engine: Engine) -> None:
    client = FakeClient("return", supported=EVERYTHING)
    async with bench(engine) as opened:
        outcome = await opened.execute(SAMPLES % 10 + "return all.map((each) => each.text)", client=client)
        assert [question.params["messages"][0]["content"]["text"] for _, question in outcome.questions] == [
            f"p{n}" for n in range(10)
        ]
        assert all(question.by_program for _, question in outcome.questions)
        ended = await answered(opened, outcome, client)
        assert (ended.value, dict(ended.usage.sources)) == (["yes"] * 10, {"client": 3, "mcp": 0})


async def test_after_as_many_rounds_as_a_request_has_the_next_wait_continues(engine: Engine) -> None:
    tired, fresh = FakeClient("later", supported=EVERYTHING), FakeClient("return", supported=EVERYTHING)
    async with bench(engine) as opened:
        outcome = await opened.execute("return (await tools.sample({ prompt: 'x' })).text", client=tired)
        assert (outcome.status, outcome.questions, outcome.unanswerable) == ("waiting", (), False)
        assert outcome.pending[0].status == "needs_input"
        rendered = await render(outcome, ToolSettings(), MemoryValues(0).offload, opened.clock())
        said = rendered.content[0]["text"]
        assert "The program asks the client's model. The client is asked during the next wait." in said
        assert "Resume it with wait" in said
        outcome = await opened.observe(outcome.run_id, client=fresh)
        assert len(outcome.questions) == 1
        assert (await answered(opened, outcome, fresh)).value == "yes"


async def test_a_client_that_cannot_answer_is_told_who_asks(engine: Engine) -> None:
    able, unable = FakeClient("return", supported=EVERYTHING), FakeClient("none")
    async with bench(engine) as opened:
        outcome = await opened.execute("return (await tools.elicit({ message: 'Who?' })).action", client=able)
        suspended = await opened.observe(outcome.run_id, client=unable)
        assert suspended.unanswerable
        assert suspended.asked == ('The program asks the user "Who?". This client cannot be asked.',)
        # What is offered was decided when the run began.
        replies = {key: {"action": "decline"} for key, _ in outcome.questions}
        ended = await opened.observe(outcome.run_id, client=able, answers=replies)
        assert ended.value == "decline"


async def test_a_program_of_a_client_that_answers_during_its_request_continues_immediately(engine: Engine) -> None:
    client = FakeClient("ask", replies=[THOUGHT] * 100, supported=EVERYTHING)
    async with bench(engine) as opened:
        ended = await opened.execute(
            "for (let n = 0; n < 100; n++) text((await tools.call('client:session:sample', { prompt: 'p' + n })).text)",
            client=client,
        )
    assert (texts(ended), len(client.asked)) == (["yes"] * 100, 100)


async def test_rules_that_deny_a_client_tool_take_it_from_the_catalog(engine: Engine) -> None:
    client = FakeClient("ask", supported=EVERYTHING)
    async with bench(engine, rules=PolicyRules(deny=("client:*",))) as opened:
        ended = await opened.execute("return [ALL_TOOLS, typeof tools.sample]", client=client)
    assert ended.value == [[], "undefined"]


# arguments and answers


async def put(tool: str, arguments: dict[str, Any], answer: JsonObject | Exception) -> tuple[Any, list[Question]]:
    asked: list[Question] = []

    async def ask(question: Question) -> JsonObject:
        asked.append(question)
        if isinstance(answer, Exception):
            raise answer
        return answer

    outcome = await ClientTools().call_tool(tool, arguments, asking=Asking("run_1", ask))
    return outcome.result, asked


FORM = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
NOT_FORMS: dict[str, dict[str, Any]] = {
    "no object": {"requestedSchema": {"type": "array"}},
    "an object inside": {"requestedSchema": {"properties": {"a": {"type": "object", "properties": {}}}}},
    "a list of anything": {"requestedSchema": {"properties": {"a": {"type": "array", "items": {"type": "string"}}}}},
    "a reference": {"requestedSchema": {"properties": {"a": {"$ref": "#/$defs/a"}}}},
    "no schema": {"requestedSchema": {"properties": {"a": "string"}}},
    "both": {"requestedSchema": FORM, "fields": {"a": "string"}},
    "like an approval": {"fields": {" DECISION": ["approve", "deny"]}},
    "a name of two lines": {"fields": {"a\nApprove": "string"}},
    "an unseen choice": {"fields": {"a": ["yes", "no\u202e"]}},
    "a choice of two lines": {"fields": {"a": ["yes", "no\u2028"]}},
    "too long": {"fields": {"a": ["x" * 5_000_000]}},
    "too many": {"requestedSchema": {"properties": {str(n): {"type": "string"} for n in range(60)}}},
}


async def test_a_question_is_put_when_it_is_written_down_that_it_will_be() -> None:
    order: list[str] = []

    async def ask(question: Question) -> JsonObject:
        order.append("asked")
        return {"action": "accept", "content": {}}

    async def begin() -> None:
        order.append("begun")

    async def fail() -> None:
        raise RuntimeError("not written down")

    async def call(**options: Any) -> None:
        asking = Asking("run_1", ask)
        await ClientTools().call_tool("elicit", {"message": "Who?"}, asking=asking, **options)

    await call(begin=begin, admit=lambda _: order.append("admitted"), on_sent=lambda: order.append("sent"))
    assert order == ["begun", "admitted", "sent", "asked"]
    with pytest.raises(RuntimeError, match="not written down"):
        await call(begin=fail, on_sent=lambda: order.append("sent"))
    assert order == ["begun", "admitted", "sent", "asked"]


@pytest.mark.parametrize("given", NOT_FORMS.values(), ids=NOT_FORMS)
async def test_what_no_client_can_show_is_not_asked(given: dict[str, Any]) -> None:
    with pytest.raises(UpstreamCallError) as raised:
        await put("elicit", {"message": "x", **given}, {"action": "accept"})
    assert not raised.value.dispatched


async def test_fields_become_a_form_and_its_answer_is_checked() -> None:
    given = {"message": "x", "fields": {"n": "integer", "size": ["s", "l"], "ok": "boolean"}}
    content = {"n": 1, "size": "s", "ok": True}
    result, (question,) = await put("elicit", given, {"action": "accept", "content": content})
    assert result == {"accepted": True, "action": "accept", "content": content}
    assert question.params["requestedSchema"] == {
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "size": {"type": "string", "enum": ["s", "l"]},
            "ok": {"type": "boolean"},
        },
        "required": ["n", "size", "ok"],
    }
    with pytest.raises(UpstreamCallError, match="does not fit the form"):
        await put("elicit", given, {"action": "accept", "content": {"n": "1"}})


@pytest.mark.parametrize(
    ("answer", "action"),
    [({"action": "decline", "content": {"n": 1}}, "decline"), ({"action": "cancel"}, "cancel"), ({}, "cancel")],
)
async def test_what_is_not_accepted_brings_nothing(answer: JsonObject, action: str) -> None:
    result, _ = await put("elicit", {"message": "x", "requestedSchema": FORM}, answer)
    assert result == {"accepted": False, "action": action, "content": None}


async def test_a_picture_of_the_model_comes_beside_the_text() -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    text = {"type": "text", "text": "a"}
    result, (question,) = await put("sample", {"prompt": "x"}, {"content": [text, image, text], "model": "m"})
    assert (result, question.params["maxTokens"]) == ({"text": "a\na", "model": "m", "content": [image]}, 1000)


async def test_a_client_that_refuses_fails_the_call_with_its_reason() -> None:
    with pytest.raises(UpstreamCallError, match="the question was not answered: the client answered with error -1: no"):
        await put("roots", {}, QuestionRefused("the client answered with error -1: no"))
    with pytest.raises(UpstreamCallError, match="no client that answers questions is connected"):
        await ClientTools().call_tool("roots", {})


async def test_roots_that_are_none_are_left_out() -> None:
    result, _ = await put("roots", {}, {"roots": [{"uri": "file:///a", "name": 1}, {"name": "x"}, "y"]})
    assert result == [{"uri": "file:///a"}]
    assert (await put("roots", {}, {}))[0] == []


def test_the_same_client_is_offered_the_same_objects() -> None:
    assert offered_by_client(frozenset(EVERYTHING)) is offered_by_client(frozenset(EVERYTHING))
    assert [each.id for each in offered_by_client(frozenset(("roots/list",)))] == ["client:session:roots"]
    assert offered_by_client(frozenset()) == ()
    for each in offered_by_client(frozenset(EVERYTHING)):
        json.dumps([each.tool.input_schema, each.tool.output_schema])


async def test_a_program_that_guesses_at_ids_is_told_what_is_nearest_a_few_times_only(engine: Engine) -> None:
    client = FakeClient("return", supported=EVERYTHING)
    guess = """
        const said = [];
        for (let n = 0; n < %d; n++) {
            said.push(await tools.%s("client:session:sampl" + n).catch((error) => error.message));
        }
        return said.map((each) => /Nearest: client:session:sample/.test(each));
    """
    for way in ("call", "describe"):
        async with bench(engine) as opened:
            told = (await opened.execute(guess % (MAX_NEAREST + 3, way), client=client)).value
            assert told == [True] * MAX_NEAREST + [False] * 3


@pytest.mark.parametrize("answer", [{"action": "decline"}, {"action": "cancel"}])
async def test_a_program_in_a_loop_does_not_ask_until_a_person_gives_in(engine: Engine, answer: JsonObject) -> None:
    yes: JsonObject = {"action": "accept", "content": {}}
    client = FakeClient("ask", supported=EVERYTHING, replies=[answer, yes] + [answer] * 20)
    code = """
        const said = [];
        for (let n = 0; n < 12; n++) {
            const asked = tools.elicit({ message: "Really?" });
            said.push(await asked.then((each) => each.accepted, (error) => error.message));
        }
        return said;
    """
    said = (await ran(engine, code, client=client)).value
    assert said[:7] == [False, True] + [False] * 5
    assert all("turned down 5 questions" in each for each in said[7:])
    assert len(client.asked) == 7
