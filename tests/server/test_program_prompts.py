"""Saved programs as prompts: their arguments, and the code that the text asks a model to run."""

import pytest

from codemode_mcp.catalog.saved_programs.program_file import read_program
from codemode_mcp.server.exposed_items import prompt_result, prompts_of

REPORT = read_program(
    "report",
    "typescript",
    "/** Reports\u202e. */\n"
    "export default (input: { /** Of whom */ name: string; max?: number; tags?: string[] }) => input;",
)
PLAIN = read_program("plain", "javascript", "export default () => 1;")


def test_a_prompt_has_the_members_of_the_input_as_arguments() -> None:
    found = {name: prompt for name, (_, prompt) in prompts_of([REPORT, PLAIN]).items()}
    assert found == {
        "programs/report": {
            "name": "programs/report",
            "title": "report",
            "description": "Reports.",
            "arguments": [
                {"name": "name", "description": "Of whom", "required": True},
                {"name": "max", "required": False},
                {"name": "tags", "required": False},
            ],
        },
        "programs/plain": {"name": "programs/plain", "title": "plain"},
    }


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"max": "725653563933458433"}, 'return await programs.report({"max": 725653563933458433n});'),
        ({"name": "12", "max": "3", "other": "x"}, 'return await programs.report({"name": "12", "max": 3});'),
        ({"name": '"); x(', "tags": '["a"]'}, 'return await programs.report({"name": "\\"); x(", "tags": ["a"]});'),
        ({"name": "a", "max": "many"}, 'return await programs.report({"name": "a", "max": "many"});'),
        ({}, "return await programs.report({});\n\nAsk the user for what is missing first: name."),
    ],
)
def test_the_text_has_the_call_with_the_arguments_as_values(given: dict[str, str], code: str) -> None:
    (message,) = prompt_result(REPORT, given)["messages"]
    assert f"\n\n{code}\n\n" in message["content"]["text"]


def test_a_program_without_input_is_called_without_one() -> None:
    (message,) = prompt_result(PLAIN, {"name": "a"})["messages"]
    assert "\n\nreturn await programs.plain();\n\n" in message["content"]["text"]
