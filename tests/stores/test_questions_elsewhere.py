"""A question that one process has put and another gets the answer to."""

from __future__ import annotations

from typing import Any

import pytest

from codemode_mcp.base.settings import PolicyRules
from tests.runs.bench import FakeClient
from tests.runs.test_questions import YES, AskingSource
from tests.stores.replicas import Replicas, fast

pytestmark = pytest.mark.anyio

RULES = PolicyRules(ask=("mcp:files:write",))
CODE = "const r = await MCP.files.write({n: 1}); await MCP.files.write({n: 2}); return unwrap(r).text"
APPROVE = {"action": "accept", "content": {"decision": "approve"}}


async def test_it_counts_there_for_exactly_the_calls_that_were_shown(replicas: Replicas) -> None:
    first_source, second_source, client = fast(), fast(), FakeClient("return")
    async with (
        replicas(first_source, rules=RULES) as first,
        replicas(second_source, rules=RULES) as second,
    ):
        asked = await first.execute(CODE, client=client)
        ((key, question),) = asked.questions
        assert '"n": 1' in question.message
        again = await second.observe(asked.run_id, client=client, answers={key: APPROVE})
        ((other, question),) = again.questions
        assert '"n": 2' in question.message, "the first is not asked for again"
        assert second_source.calls == [("write", {"n": 1})]
        # An answer to what was decided already counts for nothing more.
        repeated = await first.observe(asked.run_id, client=client, answers={key: APPROVE})
        assert [each for each, _ in repeated.questions] == [other] != [key]
        ended = await second.observe(asked.run_id, client=client, answers={other: APPROVE})
        assert ended.value == "done 1"
    assert (first_source.calls, len(second_source.calls)) == ([], 2)


@pytest.mark.parametrize(
    "answer",
    [{"action": "decline"}, {"action": "accept", "content": {"decision": "deny"}}, {}, None],
    ids=["declined", "denied", "empty", "null"],
)
async def test_what_is_no_approval_denies_there_too(replicas: Replicas, answer: Any) -> None:
    source, client = fast(), FakeClient("return")
    asked = await replicas.execute(fast(), "await MCP.files.write({n: 1})", client=client, rules=RULES)
    async with replicas(source, rules=RULES) as second:
        ended = await second.observe(asked.run_id, client=client, answers={asked.questions[0][0]: answer})
        assert ended.code == "nested_tool_failed"
        assert "was not approved" in (ended.error or "")
    assert source.calls == []


async def test_a_key_is_of_one_run(replicas: Replicas) -> None:
    client = FakeClient("return")
    keys = {(await replicas.execute(fast(), CODE, client=client, rules=RULES)).questions[0][0] for _ in range(2)}
    assert len(keys) == 2


async def test_a_server_that_has_asked_is_told_that_no_user_will_answer(replicas: Replicas) -> None:
    """No client comes any more to the process that has sent the call, and nothing waits for one."""
    code = "return await MCP.asker.ask({}).catch((error) => error.message)"
    async with (
        replicas(AskingSource(), timeout_ms=20_000) as first,
        replicas(AskingSource(), timeout_ms=20_000) as second,
    ):
        asked = await first.execute(code, client=FakeClient("return"))
        ((key, _),) = asked.questions
        ended = await second.observe(asked.run_id, client=FakeClient("return"), answers={key: YES})
        assert ended.status == "completed"
        assert "taken over by another process" in ended.value
