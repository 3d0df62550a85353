"""The texts that a model reads first: whole texts for a few configurations, and byte budgets for all."""

import json
import random
import re
from itertools import product

import pytest

from codemode_mcp.base.settings import CodeModeSettings, Language, PolicyContext, PolicyRules, ToolSettings
from codemode_mcp.rules.policy.policy import Caller
from codemode_mcp.server import descriptions
from codemode_mcp.server.descriptions import tool_list
from declarations.names import identifiers

BOTH: tuple[Language, ...] = ("javascript", "typescript")
LONG = "Use it to find and change issues of the team. " * 40
TOPICS = ("issue", "event", "invoice", "branch", "project", "meeting")

BODY = """
- code is the body of an async function: return what you need. Print: text(v), json(v); images: image(block).
- unwrap(await MCP.server.tool({...})) calls a tool: its data, a string if that is not JSON, or a thrown error.
- Read types first. One tool: await API.search("what you need", 3). Several: (await API.read("mcp/<server>.d.ts", \
...)).content, one line per tool if long; "mcp/<server>.d.ts#a,b" gives just these. Only names: await \
API.list("mcp/<server>").
- Loop, join and filter in the program; start independent calls in one Promise.all([...]).
- store(key, v) keeps a value for later programs: await load(key). No network, files or modules.
- One exec has 10 s. Status "waiting": call wait with its runId."""


def named(*names: str) -> dict[str, str]:
    """Configured names by identifier."""
    identifier_of = identifiers(names, kind="server")
    return {identifier_of[name]: name for name in names}


# the whole text


def test_the_description_without_servers() -> None:
    text = descriptions.exec_description({}, BOTH)
    assert text == ("Run a JavaScript or TypeScript program with tools of these MCP servers: none." + BODY)


def test_the_description_with_three_servers_has_their_names_as_words_and_topics_on_its_first_line() -> None:
    servers = named("github", "google-calendar", "salesDatabase")
    assert descriptions.exec_description(servers, ("javascript",), topics=TOPICS) == (
        "Run a JavaScript program with tools of these MCP servers: github, "
        "google calendar (MCP.googleCalendar), sales database (MCP.salesDatabase). "
        "Topics: branch, event, invoice, issue, meeting, project." + BODY
    )


def test_the_description_with_two_hundred_servers_lists_names_while_they_fit_and_counts_the_others() -> None:
    servers = named(*(f"team-{number:03}" for number in range(200)))
    text = descriptions.exec_description(servers, BOTH, topics=TOPICS)
    counted = re.search(r" and (\d+) more, see", text)
    assert counted is not None
    shown = ", ".join(f"team {number:03}" for number in range(200 - int(counted[1])))
    assert text == (
        "Run a JavaScript or TypeScript program with tools of these MCP servers: "
        f"{shown} and {counted[1]} more, see API.list() (in code, team 000 is MCP.team000)." + BODY
    )
    others = "exec", "wait", descriptions.WAIT_DESCRIPTION, json.dumps(descriptions.exec_schema(BOTH))
    used = sum(map(len, (text, *others, json.dumps(descriptions.WAIT_SCHEMA))))
    assert 2200 - len(", team 000") < used <= 2200


def test_the_description_with_five_namespaces_has_their_descriptions_and_prompts() -> None:
    namespaces = [
        ("issues", "Issues of the team", "Call issues.list() first."),
        ("notes", "Notes", ""),
        ("wiki", "Pages of the wiki.", "wiki.page(title) reads one;\nwiki.edit(title, text) writes.\x1b[2J"),
        ("clock", "", ""),
        ("deploy", "", "deploy.to('staging') only."),
    ]
    assert descriptions.exec_description(named("github"), BOTH, namespaces, TOPICS[:2]) == (
        "Run a JavaScript or TypeScript program with tools of these MCP servers: github. "
        "Topics: event, issue." + BODY + "\nGlobal objects of plugins, beside MCP:"
        "\n- issues: Issues of the team. Call issues.list() first."
        "\n- notes: Notes"
        "\n- wiki: Pages of the wiki. wiki.page(title) reads one; wiki.edit(title, text) writes. [2J"
        "\n- deploy: deploy.to('staging') only."
        "\n- clock"
    )


def test_tools_of_plugins_are_named_only_where_there_are_some() -> None:
    assert "ALL_TOOLS" not in descriptions.exec_description(named("github"), BOTH)
    text = descriptions.exec_description(named("github"), BOTH, plugins=True)
    assert '\n- Tools of plugins: ALL_TOOLS, tools.search("..."), await tools.call(id, input).\n' in text


@pytest.mark.parametrize(
    ("settings", "seconds"), [({}, "10"), ({"timeout_ms": 2500}, "2.5"), ({"max_request_ms": 4000}, "4")]
)
def test_the_description_of_exec_has_its_time_limit(settings: dict[str, int], seconds: str) -> None:
    text = tool_list(named("github"), ToolSettings(code_mode=CodeModeSettings(**settings)))[0]["description"]
    assert f"- One exec has {seconds} s." in text


def test_the_description_of_wait() -> None:
    assert descriptions.WAIT_DESCRIPTION == (
        'Resume a program with status "waiting", by its runId. Returns the next result. cancel: true stops it; '
        "fromStart: true repeats all output."
    )


def test_the_instructions() -> None:
    assert descriptions.instructions(named("github", "google-calendar"), BOTH) == (
        "Call the tools of other MCP servers from programs. exec runs a JavaScript or TypeScript program; each tool of "
        "each server is a function in it: await MCP.server.tool({...}). Find tools and their types with "
        'API.search("..."), or read them with API.read("mcp/<server>.d.ts#<tool>"). Make many calls in one program, '
        'and return only what you need. If a result has status "waiting", call wait with its runId.\n'
        "Servers: github, google calendar (MCP.googleCalendar)."
    )


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("github", "github"),
        ("GitHub", "git hub (MCP.gitHub)"),
        ("API_KEY", "api key (MCP.APIKEY)"),
        ("server-1", "server 1 (MCP.server1)"),
        ("console", "console (MCP.console_)"),
        ("日本語", "日本語"),
        ("--", "MCP.server_"),
    ],
)
def test_a_name_that_is_not_its_own_identifier_has_that_beside_it(name: str, shown: str) -> None:
    first = descriptions.exec_description(named(name), BOTH).split("\n")[0]
    assert first.endswith(f"MCP servers: {shown}.")


def test_where_identifiers_do_not_fit_only_those_that_no_rule_gives_are_shown() -> None:
    servers = named(*(f"some-team-{number:02}" for number in range(30)), "some_team_00", "GitHub")
    first = descriptions.exec_description(servers, BOTH).split("\n")[0]
    assert "some team 01, some team 02," in first
    assert "some team 00 (MCP.someTeam00_2)" in first
    assert ", git hub (in code, some team 00 is MCP.someTeam00)." in first


def test_topics_that_do_not_fit_are_left_out_from_the_last_on() -> None:
    telling = ("zebra", "yak", "elephant" * 2, "ant")
    seen = set()
    for count in range(60, 120):
        servers = named(*(f"name{number:03}" for number in range(count)))
        first = descriptions.exec_description(servers, BOTH, topics=telling).split("\n")[0]
        seen.add(first.partition(" Topics: ")[2])
    fitting = (", ".join(sorted(telling[:number])) + "." for number in range(1, 5))
    assert {"", "yak, zebra."} < seen <= {"", *fitting}


def test_saved_programs_are_one_short_line_and_none_are_no_byte() -> None:
    servers = named("github")
    without = descriptions.exec_description(servers, BOTH)
    for names, line in (
        (["report"], 'await programs.report({...}), see API.list("programs/").'),
        (["report", "totals"], "await programs.report({...}); also totals."),
        (["r" * 64, "s" * 64, "t" * 64], '({...}); also 2 others, see API.list("programs/").'),
        ([f"name{n}" for n in range(500)], ' more, see API.list("programs/").'),
    ):
        text = descriptions.exec_description(servers, BOTH, programs=names)
        assert text.startswith(without)
        added = text.removeprefix(without)
        assert added.startswith("\n- Saved programs are functions: ")
        assert added.endswith(line)
        assert len(added) <= 200


# budgets


def check(
    servers: dict[str, str],
    languages: tuple[Language, ...],
    namespaces: list[tuple[str, str, str]],
    topics: list[str],
    programs: list[str],
) -> str:
    settings = ToolSettings(code_mode=CodeModeSettings(languages=languages))
    tools = tool_list(servers, settings, namespaces, topics, programs=programs)
    assert [tool["name"] for tool in tools] == ["exec", "wait"]
    size = sum(
        len(tool["name"].encode()) + len(tool["description"].encode()) + len(json.dumps(tool["inputSchema"]).encode())
        for tool in tools
    )
    assert size <= (2700 if namespaces else 2200)
    assert all(len(tool["description"].encode()) <= 2000 for tool in tools)
    assert all(tool["_meta"] == {"anthropic/alwaysLoad": True} for tool in tools)
    assert len(descriptions.instructions(servers, languages).encode()) <= 1000
    text: str = tools[0]["description"]
    assert text.isprintable() or set(filter(lambda c: not c.isprintable(), text)) == {"\n"}
    again = tool_list(servers, settings, namespaces, topics, programs=programs)
    assert text == again[0]["description"]
    assert BODY in text
    return text


SERVERS = [
    {},
    named("github", "docs"),
    {f"server{n}": f"server{n}" for n in range(1000)},
    named(*(f"{'日本語' * 15} {n}" for n in range(50))),
    {"x" * 64: "x" * 3000},
    {"x" * 64: "x-" * 1500, "y": "\u202e\x00\n- ignore this"},
]
NAMESPACES: list[list[tuple[str, str, str]]] = [
    [],
    [("issues", "", "Call issues.list({ open: true }).")],
    [("issues", LONG, LONG)],
    [("issues", "Issues", LONG), ("notes", LONG, ""), ("wiki", "short", "")],
    [(f"n{n}", "Numbered", LONG) for n in range(500)],
    [(f"{n:03}" + "n" * 61, "", "") for n in range(500)],
    [("issues", "\N{SNOWMAN}" * 900, ""), ("notes", "", "\N{GRINNING FACE}" * 900)],
    [("a", "A\n- b: c", LONG), *[(f"n{n}", "", "") for n in range(100)]],
]


@pytest.mark.parametrize("languages", [BOTH, ("javascript",), ("typescript",)])
def test_the_budgets_hold_whatever_is_configured(languages: tuple[Language, ...]) -> None:
    # The languages change a few words, which do not depend on the topics.
    all_topics = ([], [*TOPICS], ["t" * 16] * 240) if languages == BOTH else ([*TOPICS],)
    for servers, namespaces, topics in product(SERVERS, NAMESPACES, all_topics):
        text = check(servers, languages, namespaces, topics, [] if len(topics) % 2 else ["p" * 60, "q" * 60, "r"])
        if not namespaces:
            continue
        lines = text.split("Global objects of plugins, beside MCP:\n")[1].split("\n")
        counted = [line for line in lines if line.endswith(" more, see API.list()")]
        shown = [line.removeprefix("- ").split(":")[0] for line in lines if line not in counted]
        # Namespaces with texts come first, each on one line.
        assert shown == [name for name, *_ in namespaces][: len(shown)]
        assert shown
        assert counted == (
            [f"- {len(namespaces) - len(shown)} more, see API.list()"] if len(shown) < len(namespaces) else []
        )


def test_the_budgets_hold_for_random_configurations() -> None:
    source = random.Random(11)
    alphabet = 'abcXYZ019-_ .$/:"\\\n\x00\u200b\u202eéß日\N{GRINNING FACE}'

    def text(most: int) -> str:
        return "".join(source.choices(alphabet, k=source.randrange(most)))

    for _ in range(150):
        servers = named(*(text(source.choice((8, 40, 200))) for _ in range(source.choice((0, 1, 3, 20, 200)))))
        count = source.choice((0, 1, 3, 20))
        namespaces = [(f"n{n}" + "x" * source.randrange(60), text(300), text(1000)) for n in range(count)]
        topics = ["t" * source.randrange(3, 17) for _ in range(source.randrange(60))]
        check(servers, source.choice((BOTH, ("javascript",), ("typescript",))), namespaces, topics, [])


def test_long_prompts_share_the_room_that_short_ones_leave() -> None:
    said = descriptions.namespace_lines([("short", "", "Call it."), ("one", "", LONG), ("two", "", LONG)], 600)
    header, short, one, two = said.strip().split("\n")
    assert header == "Global objects of plugins, beside MCP:"
    assert short == "- short: Call it."
    assert abs(len(one) - len(two)) < 10
    assert 560 < len(said.encode()) <= 600


def test_namespaces_leave_some_room_for_topics() -> None:
    text = descriptions.exec_description(named("github"), BOTH, [("issues", "", LONG)], TOPICS)
    assert "Topics: branch, event, invoice, issue, meeting, project." in text.split("\n")[0]
    assert 1960 < len(text.encode()) <= 2000


def test_the_output_schema_stays_within_its_budget() -> None:
    assert len(json.dumps(descriptions.OUTPUT_SCHEMA)) <= 900


@pytest.mark.parametrize("read_only", [True, False])
def test_the_tools_say_that_they_only_read_where_policy_admits_nothing_else(read_only: bool) -> None:
    for tool in tool_list({"x": "x"}, ToolSettings(policy=PolicyRules(read_only=read_only))):
        hints = (tool["annotations"]["readOnlyHint"], tool["annotations"]["destructiveHint"])
        assert hints == (read_only, not read_only)


def test_a_caller_whose_context_admits_more_is_not_told_that_the_tools_only_read() -> None:
    other = PolicyContext("ops", ("principal:ada",), PolicyRules())
    settings = ToolSettings(policy=PolicyRules(read_only=True), contexts=(other,))
    for name, read_only in (("ada", False), ("bob", True)):
        tool, *_ = tool_list({"x": "x"}, settings, caller=Caller("o", "http", name))
        assert tool["annotations"]["readOnlyHint"] is read_only
