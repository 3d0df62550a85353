"""Ranking: words, thesaurus, index, word vectors, and tools found by them."""

from __future__ import annotations

import json
import random
import re
import time
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codemode_mcp.catalog.search.finder import (
    MAGIC,
    MAX_REQUEST,
    Finder,
    WordVectors,
    shipped_vectors,
    similarity,
    wishes,
)
from codemode_mcp.catalog.search.index import (
    MAX_PHRASE,
    Field,
    Index,
    Thesaurus,
    compiled,
    content_words,
    phrase_words,
    shipped_thesaurus,
    words,
)
from upstream_clients.tools import Tool

THESAURUS = Path(__file__).parents[2] / "codemode_mcp" / "catalog" / "search" / "thesaurus.txt"

# words


@pytest.mark.parametrize("text", ["createIssue", "create_issue", "Create  Issues!", "creating-issues", "CREATE.ISSUE"])
def test_names_and_sentences_give_the_same_words(text: str) -> None:
    assert words(text) == words("create issue")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getHTTPResponse2", "get http response 2"),
        ("listPRs", "list pr"),
        ("k8s s3 sha256", "k8s s3 sha256"),
        ("naïve café", "naive cafe"),
        ("user's files", "user s files"),
    ],
)
def test_words_are_split_as_people_read_them(text: str, expected: str) -> None:
    assert words(text) == [stem for word in expected.split() for stem in words(word)]


def test_scripts_without_spaces_are_compared_by_pairs_of_characters() -> None:
    assert words("日本語検索") == ["日本", "本語", "語検", "検索"]
    assert set(words("検索する")) & set(words("日本語検索"))


def test_stop_words_go_unless_there_is_nothing_else() -> None:
    assert content_words("please show me the log of the pod") == words("show log pod")
    assert content_words("what is it") == words("what is it")
    assert phrase_words("who is on call") == words("who on call")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("pull https://example.com/pricing?x=1 into the chat", "pull url chat"),
        ("change port 80 to 8080 in nginx.conf", "change port file"),
        ("mail bob@example.co.uk the report.pdf.", "mail email address file pdf"),
        ("is ./src/app.ts longer than 3.5 lines?", "file longer line"),
        ("a chart of ~/sales.xlsx in notes.docx", "chart file excel workbook file word document"),
        ("set up 2FA on s3", "set 2fa s3"),
        ("42", "42"),
    ],
)
def test_examples_in_a_request_stand_for_what_they_are_examples_of(request_: str, expected: str) -> None:
    assert content_words(request_) == words(expected)


@pytest.mark.parametrize("text", ["a." * 500, "1." * 500, "/" * 1024 + ".", "-." * 500 + "!", "a@" * 500 + ".b"])
def test_no_request_takes_long_to_split(text: str) -> None:
    began = time.process_time()
    content_words(text)
    assert time.process_time() - began < 0.5


@given(st.text())
def test_any_text_has_words_of_bounded_length(text: str) -> None:
    assert all(0 < len(word) <= 45 for word in words(text))


# wishes


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("create HTML file or write text content to disk", ["create HTML file", "write text content to disk"]),
        ("read inbox messages, then update CRM contact", ["read inbox messages", "update CRM contact"]),
        ("calendar events / weather forecast; git log", ["calendar events", "weather forecast", "git log"]),
        ("run system commands such as PDF converters", ["run system commands"]),
        ("find files by pattern (e.g. *.txt)", ["find files by pattern"]),
        ("create, edit and delete files", []),
        ("copy, move and rename files, git commit", ["copy move rename files", "git commit"]),
        ("list open pull requests", []),
        ("CI/CD pipeline status", []),
        ("Marta cannot read the runbook, find out whether she is allowed to see it", []),
        ("", []),
    ],
)
def test_a_list_of_keywords_is_split_into_wishes_and_a_sentence_is_not(request_: str, expected: list[str]) -> None:
    assert wishes(request_) == expected


@pytest.mark.parametrize("text", ["a," * 100_000, "(" * 100_000, "x and " * 50_000, "word list, " * 10_000])
def test_no_request_takes_long_to_split_into_wishes(text: str) -> None:
    began = time.process_time()
    assert len(wishes(text)) <= 6
    assert time.process_time() - began < 0.5


# thesaurus


def lines() -> list[str]:
    return [line for line in THESAURUS.read_text("utf-8").splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("form", [">", "="])
def test_every_line_of_the_shipped_thesaurus_has_one_of_the_two_forms(form: str) -> None:
    of_this_form = [line for line in lines() if form in line]
    assert len(of_this_form) > 50
    for line in of_this_form:
        assert ("=" if form == ">" else ">") not in line, line
        sides = line.split(form)
        assert len(sides) == 2 or form == "=", line
        phrases = [phrase.strip() for phrase in (sides[0].split("|") if form == ">" else sides)]
        assert all(0 < len(phrase_words(phrase)) <= MAX_PHRASE + 2 for phrase in phrases), line
        assert form == "=" or 0 < len(sides[1].split()) <= 12, line


def test_no_line_of_the_shipped_thesaurus_is_there_twice() -> None:
    assert len(lines()) == len(set(lines()))


def test_the_stems_of_the_shipped_thesaurus_are_those_of_its_lines() -> None:
    stems = THESAURUS.with_name("thesaurus_stems.txt").read_text("utf-8").splitlines()
    assert stems == compiled(THESAURUS.read_text("utf-8").splitlines()), "run scripts/compile_thesaurus.py"
    assert len(shipped_thesaurus()) == len(stems) > 5000


def test_phrases_of_both_forms_are_found_as_stems() -> None:
    thesaurus = Thesaurus(["# a comment", "", "kick out | throw out > remove member", "ticket = issue"])
    asked = phrase_words("kicked the old user out of the tickets")
    assert [(match.places, match.meanings) for match in thesaurus.matches(asked)] == [
        ((0, 3), tuple(words("remove member"))),
        ((4,), tuple(words("issue"))),
    ]
    assert [match.meanings for match in thesaurus.matches(words("issue"))] == [tuple(words("ticket"))]


# index


def scores(request: str, *texts: str, thesaurus: tuple[str, ...] = ()) -> dict[str, float]:
    found = Index([(text,) for text in texts], (Field(1.0),), Thesaurus(thesaurus)).scores(request)
    return {texts[number]: score for number, score in found.items()}


def test_rare_words_count_more_than_common_ones() -> None:
    found = scores("list pods", "list pods", "list nodes", "list files", "delete pods")
    assert found["list pods"] > found["delete pods"] > found["list nodes"]


def test_a_word_itself_counts_more_than_what_the_thesaurus_has_for_it() -> None:
    found = scores("ticket", "issue", "ticket", "pod", "node", thesaurus=("ticket > issue",))
    assert found["ticket"] > found["issue"] > 0
    assert "pod" not in found


def test_several_synonyms_in_one_text_count_more_than_one_but_less_than_the_word_itself() -> None:
    texts = ("issue x y", "issue bug y", "ticket x y", "a", "b")
    found = scores("ticket", *texts, thesaurus=("ticket > issue bug",))
    assert found["issue x y"] < found["issue bug y"] < found["ticket x y"]


def test_having_all_of_what_is_asked_for_counts_more_than_having_a_part_often() -> None:
    found = scores("delete branch", "delete branch x y", "branch branch branch x", "x", "y")
    assert found["delete branch x y"] > found["branch branch branch x"]


def test_a_misspelt_word_stands_for_those_that_are_spelt_like_it() -> None:
    assert set(scores("repositroy", "repository", "pod")) == {"repository"}
    assert scores("xq", "xz") == {}


def test_what_shares_no_word_is_not_found() -> None:
    assert scores("weather", "create issue") == {}


def test_an_index_of_nothing_finds_nothing() -> None:
    assert Index([], (Field(1.0),), Thesaurus(())).scores("anything") == {}


@given(st.text(), st.lists(st.text(), max_size=5))
def test_any_request_scores_only_documents_and_all_scores_are_positive(request: str, texts: list[str]) -> None:
    index = Index([(text, text) for text in texts], (Field(2.0), Field(0.5, 0.0)), shipped_thesaurus())
    assert all(0 <= number < len(texts) and score > 0 for number, score in index.scores(request).items())


# vectors


def of(text: str) -> list[float]:
    vector = shipped_vectors().of(content_words(text))
    assert vector is not None
    return vector


@pytest.mark.parametrize(
    ("one", "near", "far"),
    [
        ("picture", "image", "invoice"),
        ("send a mail", "compose email message", "resize image"),
        ("rain tomorrow", "weather forecast", "git branch"),
        ("free slot with Anna", "calendar availability", "delete file"),
        ("money back", "refund payment", "kubernetes pod"),
    ],
)
def test_vectors_of_texts_that_mean_the_same_are_near_each_other(one: str, near: str, far: str) -> None:
    assert similarity(of(one), of(near)) > similarity(of(one), of(far)) + 0.15


def test_vectors_have_length_one_and_unknown_words_none() -> None:
    assert similarity(of("delete file"), of("delete file")) == pytest.approx(1)
    assert shipped_vectors().of(["qqqxyz"]) is None
    assert shipped_vectors().of([]) is None


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", MAGIC + b"2\na b\n\x01\x02\x03", MAGIC + b"x\na\n\x01"])
def test_damaged_vectors_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"vectors|bytes|invalid literal"):
        WordVectors(data)


# tools


def tool(name: str, description: str = "", *parameters: str) -> Tool:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return Tool(name, description, input_schema={"type": "object", "properties": properties})


TOOLS = [
    ("github", tool("create_issue", "Open a new issue in a repository.", "title", "body")),
    ("github", tool("list_issues", "List the issues of a repository.", "state")),
    ("github", tool("list_issue_comments", "List the comments on an issue.")),
    ("mail", tool("send_message", "Send an e-mail.", "recipient", "subject")),
    ("mail", tool("trash_message", "Move a message to the trash.")),
    ("weather", tool("get_forecast", "Temperature and precipitation for the coming days.", "location")),
    ("drive", tool("create_permission", "Give a user access to a file.", "email", "role")),
    ("jira", tool("create_issue", "Create an issue in a project.", "summary")),
]
FINDER = Finder(TOOLS)


def found(request: str, limit: int = 5) -> list[str]:
    return [f"{TOOLS[hit.number][0]}/{TOOLS[hit.number][1].name}" for hit in FINDER.find(request, limit)]


@pytest.mark.parametrize("request_", ["list_issues", "listIssues", "list issues", "LIST ISSUES"])
def test_a_tool_with_exactly_this_name_comes_first(request_: str) -> None:
    assert found(request_)[0] == "github/list_issues"


@pytest.mark.parametrize(
    ("request_", "first"),
    [
        ("is it going to rain tomorrow", "weather/get_forecast"),
        ("let a colleague see this document", "drive/create_permission"),
        ("bin this mail", "mail/trash_message"),
        ("report a bug on github", "github/create_issue"),
        ("new jira ticket", "jira/create_issue"),
        ("drop Anna a line", "mail/send_message"),
        ("recipient", "mail/send_message"),
    ],
)
def test_a_tool_is_found_by_what_people_say(request_: str, first: str) -> None:
    assert found(request_)[0] == first


def test_each_of_several_wishes_has_its_tool_among_the_first_hits() -> None:
    several = found("open an issue in a repository, trash old messages and get weather forecast", limit=3)
    assert set(several) == {"github/create_issue", "mail/trash_message", "weather/get_forecast"}


def test_equal_tools_keep_their_order_and_the_limit_holds() -> None:
    finder = Finder([(server, tool("create_issue", "Create an issue.")) for server in ("one", "one", "one")])
    assert [hit.number for hit in finder.find("create issue", 5)] == [0, 1, 2]
    assert [hit.number for hit in finder.find("create issue", 2)] == [0, 1]


def test_only_tools_among_those_asked_for_are_found() -> None:
    assert [hit.number for hit in FINDER.find("create issue", 5, among=[1, 7])] == [7, 1]


def test_near_misses_score_below_one_and_real_hits_above() -> None:
    hits = FINDER.find("meteorology", 5)
    assert [TOOLS[hit.number][1].name for hit in hits] == ["get_forecast"]
    assert all(0 < hit.score < 1 for hit in hits)
    assert all(hit.score >= 1 for hit in FINDER.find("forecast", 5))


def test_a_request_without_any_known_word_finds_nothing() -> None:
    assert FINDER.find("qqqxyz 🙈", 5) == []
    assert FINDER.find("", 5) == []


def test_a_hostile_tool_list_does_not_stop_the_others_from_being_found() -> None:
    odd = [
        ("odd", Tool("x" * 10_000, "word " * 100_000)),
        ("odd", Tool("", "", input_schema={"properties": [1]})),
        ("odd", Tool("\ud800", "\x00", input_schema={"properties": {"a": {"description": {"deep": 1}}, "b": 3}})),
    ]
    finder = Finder([*odd, *TOOLS])
    assert {hit.number - len(odd) for hit in finder.find("create issue", 2)} == {0, 7}


def test_one_server_cannot_fill_an_answer_alone() -> None:
    stuffed = [("evil", tool(f"create_issue_{n}", "create issue bug repository " * 10)) for n in range(500)]
    finder = Finder([*stuffed, *TOOLS])
    hits = finder.find("create an issue in a repository", 8)
    servers = [([*stuffed, *TOOLS])[hit.number][0] for hit in hits]
    assert servers.count("evil") == 6
    assert len(hits) == 8
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    only = finder.find("create an issue in a repository", 8, among=range(50))
    assert len(only) == 8


MARKS = "a" + "\u0300\u0327" * 50_000


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(
            [Tool("x", MARKS, MARKS, input_schema={"properties": {MARKS: {"description": MARKS}}})], id="marks"
        ),
        pytest.param(
            [Tool(f"t{n}", title=" ".join(f"w{n}x{k}abc" for k in range(30_000))) for n in range(10)], id="vocabulary"
        ),
        pytest.param([Tool("y", input_schema={"properties": {f"p{n}": {} for n in range(100_000)}})], id="properties"),
        pytest.param([Tool(f"l{n}", "a b " * 500_000) for n in range(5)], id="long descriptions"),
        pytest.param([Tool("z" * 1_000_000, "q" * 1_000_000)], id="long words"),
    ],
)
def test_no_tool_makes_the_search_slow(hostile: list[Tool]) -> None:
    began = time.process_time()
    finder = Finder([*(("evil", each) for each in hostile), *TOOLS])
    finder.prepare()
    hits = finder.find("crete isue in repositry " + " ".join(f"w{n}x7abd" for n in range(40)), 5)
    assert time.process_time() - began < 1.5
    assert len(hostile) in [hit.number for hit in hits]


@settings(max_examples=50)
@given(st.text(max_size=200), st.integers(1, 5))
def test_any_request_finds_at_most_the_limit_best_first(request: str, limit: int) -> None:
    hits = FINDER.find(request, limit)
    assert len(hits) <= limit
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.number for hit in hits}) == len(hits)


# the labelled requests

CORPUS = Path(__file__).parents[3] / "shared" / "corpus" / "toollists"
QUERIES = Path(__file__).parents[2] / "benchmarks" / "search_queries.json"


BY_MODELS = QUERIES.with_name("search_queries_by_models.json")


@pytest.mark.parametrize(("file", "least"), [(QUERIES, 200), (BY_MODELS, 100)], ids=["people", "models"])
def test_the_labelled_requests_are_many_and_different(file: Path, least: int) -> None:
    labelled = json.loads(file.read_text("utf-8"))
    assert len(labelled) >= least
    assert len({query["query"].casefold() for query in labelled}) == len(labelled)
    assert all(0 < len(query["answers"]) == len(set(query["answers"])) for query in labelled)


def recalls(labelled: list[dict[str, Any]], pairs: list[tuple[str, Tool]], finder: Finder) -> float:
    hits = 0
    for query in labelled:
        best = {f"{pairs[hit.number][0]}/{pairs[hit.number][1].name}" for hit in finder.find(query["query"], 5)}
        hits += not best.isdisjoint(query["answers"])
    return hits / len(labelled)


def pairs_of_corpus() -> list[tuple[str, Tool]]:
    return [
        (file.stem, Tool(each["name"], each.get("description") or "", each.get("title"), each["inputSchema"]))
        for file in sorted(CORPUS.glob("*.json"))
        for each in json.loads(file.read_text("utf-8"))["tools"]
    ]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this repository")
@pytest.mark.parametrize(
    # It is 0.57 and 0.98. By words alone it is 0.33 and 0.90: most requests of people share no word with the name of
    # their answer.
    ("file", "least"),
    [(QUERIES, 0.55), (BY_MODELS, 0.96)],
    ids=["people", "models"],
)
def test_search_is_as_good_as_it_was_over_the_labelled_requests(file: Path, least: float) -> None:
    pairs = pairs_of_corpus()
    assert recalls(json.loads(file.read_text("utf-8")), pairs, Finder(pairs)) > least


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this repository")
def test_two_wishes_in_one_request_both_have_their_tools_among_the_first_five() -> None:
    """Join neighbours of a shuffled list. Each request must still be found beside another one."""
    pairs = pairs_of_corpus()
    finder = Finder(pairs)
    alone = [
        query for query in json.loads(BY_MODELS.read_text("utf-8")) if not re.search(r"[,;/]| and ", query["query"])
    ]
    random.Random(1).shuffle(alone)
    joined = [
        {"query": f"{one['query']}{joint}{other['query']}", "answers": query["answers"]}
        for (one, other), joint in zip(pairwise(alone), cycle([", ", " and ", " or ", ", then "]), strict=False)
        for query in (one, other)
    ]
    # It is 0.93. Ranked as one wish it is 0.84.
    assert recalls(joined, pairs, finder) > 0.91


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this repository")
@pytest.mark.parametrize(("count", "least"), [(3, 0.93), (4, 0.9), (5, 0.88), (6, 0.85)])
def test_a_request_with_several_wishes_finds_a_tool_for_each_among_the_first_eight(count: int, least: float) -> None:
    pairs = pairs_of_corpus()
    finder = Finder(pairs)
    alone = [
        query for query in json.loads(BY_MODELS.read_text("utf-8")) if not re.search(r"[,;/]| and ", query["query"])
    ]
    chosen = random.Random(2)
    found = 0
    for _ in range(100):
        wanted = chosen.sample(alone, count)
        hits = finder.find(", ".join(query["query"] for query in wanted), 8)
        names = {f"{pairs[hit.number][0]}/{pairs[hit.number][1].name}" for hit in hits}
        found += sum(not names.isdisjoint(query["answers"]) for query in wanted)
    # It is 0.95, 0.92, 0.90 and 0.86.
    assert found / (100 * count) > least


# sentences of users, with all tools that a task needs. Each tool may have alternatives.

SENTENCES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "sentences.json").read_text("utf-8"))


def test_the_sentences_of_users_are_sixty_and_different() -> None:
    assert len({each["sentence"].casefold() for each in SENTENCES}) == len(SENTENCES) == 60
    assert [each["half"] for each in SENTENCES] == ["tuned", "held out"] * 30
    assert all(each["tools"] and all(each["tools"]) for each in SENTENCES)


EVERYDAY = {"everything", "excel", "filesystem", "git", "memory", "sqlite", "time"}
"""Servers that one person may have together."""


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the recorded tool lists are not beside this repository")
@pytest.mark.parametrize(
    # It is 22 and 17 of 30 over all 25 servers, and 10 and 9 of 11 over seven servers. The ranking was changed with the
    # first half in view, never with the second one.
    ("half", "servers", "least"),
    [("tuned", None, 21), ("held out", None, 16), ("tuned", EVERYDAY, 9), ("held out", EVERYDAY, 8)],
)
def test_all_tools_of_a_task_are_among_the_first_ten_hits_for_a_users_sentence(
    half: str, servers: set[str] | None, least: int
) -> None:
    pairs = [pair for pair in pairs_of_corpus() if servers is None or pair[0] in servers]
    finder = Finder(pairs)
    found = 0
    for each in SENTENCES:
        needed = {name.partition("/")[0] for alternatives in each["tools"] for name in alternatives}
        if each["half"] == half and (servers is None or needed <= servers):
            hits = {f"{pairs[hit.number][0]}/{pairs[hit.number][1].name}" for hit in finder.find(each["sentence"], 10)}
            found += not any(hits.isdisjoint(alternatives) for alternatives in each["tools"])
    assert found >= least


# hits that are left out


def test_hits_far_below_the_best_are_left_out_and_the_others_are_counted() -> None:
    weak = [(f"server{n}", tool(f"show_{n}", "Shows one thing of many. It has an issue number.")) for n in range(30)]
    strong = [(f"tracker{n}", tool("create_issue", "Create a new issue in a repository.")) for n in range(6)]
    finder = Finder([*weak, *strong])
    hits = finder.find("create an issue in a repository", 4)
    assert (len(hits), hits.total) == (4, 6)
    assert {hit.number for hit in finder.find("create an issue in a repository", 50)} == set(range(30, 36))
    everything = finder.find("create an issue in a repository", 50, among=range(36))
    assert len(everything) == everything.total == 36


def test_no_server_drives_out_the_hits_of_all_others() -> None:
    loud = [("loud", tool(f"create_issue_{n}", "create issue repository " * 10)) for n in range(40)]
    quiet = [(f"quiet{n}", tool("view", "Shows one of many things, such as an issue.")) for n in range(8)]
    hits = Finder([*loud, *quiet]).find("create an issue in a repository", 40)
    assert {hit.number for hit in hits} > set(range(40, 48))


def test_the_first_hits_and_those_of_a_single_server_are_never_left_out() -> None:
    few = [(f"s{n}", tool(f"show_{n}", "Shows one thing of many. It has an issue number.")) for n in range(2)]
    best = [(f"t{n}", tool("create_issue", "Create a new issue in a repository.")) for n in range(2)]
    assert Finder([*few, *best]).find("create an issue in a repository", 9).total == 4
    alone = [("one", each) for _, each in [*few * 9, *best]]
    assert Finder(alone).find("create an issue in a repository", 50).total == 20


def test_a_request_of_megabytes_takes_little_time() -> None:
    request = " ".join(f"create{number} issue" for number in range(200_000))
    began = time.process_time()
    found = FINDER.find(request, 10)
    assert time.process_time() - began < 1
    assert found == FINDER.find(request[:MAX_REQUEST], 10)


# an index after another one


WORDS = ("delete", "create", "list", "book", "author", "stock", "issue", "page", "weather")
TOPICS = st.lists(st.sampled_from(WORDS), max_size=4)


def described(texts: list[list[str]]) -> list[tuple[str, Tool]]:
    return [(f"s{number % 3}", Tool("_".join(words) or "none", " ".join(words))) for number, words in enumerate(texts)]


@given(st.lists(TOPICS, min_size=1, max_size=8), st.lists(TOPICS, min_size=1, max_size=4), TOPICS)
@settings(deadline=None)
def test_tools_that_are_added_to_an_index_have_scores_on_its_scale(
    texts: list[list[str]], more: list[list[str]], request: list[str]
) -> None:
    base = Finder(described(texts))
    query, first, count = " ".join(request), len(texts), len(texts) + len(more)
    both = {hit.number: hit.score for hit in Finder(described(more), base=base).find(query, count)}
    alone = {hit.number: hit.score for hit in base.find(query, count)}
    if any(score >= 1 for score in alone.values()):
        of_base = {number: score for number, score in both.items() if number < first}
        assert of_base.items() <= alone.items(), "beside better tools, some are left out"
    again = {hit.number: hit.score for hit in Finder(described(texts), base=base).find(query, 2 * first)}
    assert all(again.get(number) == again.get(first + number) for number in range(first))


def test_an_index_without_tools_adds_nothing_to_another_one() -> None:
    tools = described([["delete", "book"], ["list", "book"]])
    assert Finder(tools, base=Finder([])).find("delete book", 5) == Finder(tools).find("delete book", 5)
    assert Finder([], base=Finder(tools)).find("delte bok", 5) == Finder(tools).find("delte bok", 5)
