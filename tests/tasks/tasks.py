"""Ten tasks for the servers of the quick start, each with the way in which a model solves it in each mode.

`calls` solves a task with single calls, whose arguments it writes itself. `program` solves it with one program, after
the declarations of the tools in `reads` were read. Both return the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Call = Callable[..., Awaitable[Any]]
"""Calls a tool by its path without `MCP`, with its arguments by keyword. Returns the structured content."""

LIST, GET, PEOPLE = "tracker.listIssues", "tracker.getIssue", "tracker.listPeople"
CREATE, COMMENT, CLOSE, HOURS = "tracker.createIssue", "tracker.commentIssue", "tracker.closeIssue", "reports.teamHours"
WEEKS = ("2026-W21", "2026-W22", "2026-W23")


@dataclass(frozen=True)
class Task:
    """A task.

    Attributes:
        question: the words of the user.
        looks_for: a search for each tool that the task needs, by its path.
        calls: solves the task by single calls.
        program: solves the task in one program.
        by_program: True if a model that knows all schemas writes a program, False if it makes single calls.
    """

    question: str
    looks_for: dict[str, str]
    calls: Callable[[Call], Awaitable[Any]]
    program: str
    by_program: bool


async def _open_bugs(call: Call) -> Any:
    return (await call(LIST, state="open", label="bug"))["total"]


async def _team(call: Call) -> Any:
    return next(each["team"] for each in (await call(PEOPLE))["people"] if each["name"] == "Chen Wei")


async def _most_hours(call: Call) -> Any:
    return max((await call(HOURS, week="2026-W22"))["people"], key=lambda each: each["hours"])["email"]


async def _unassigned(call: Call) -> Any:
    return [each["id"] for each in (await call(LIST, state="open"))["issues"] if each["assignee"] is None]


async def _create(call: Call) -> Any:
    people = (await call(PEOPLE))["people"]
    email = next(each["email"] for each in people if each["name"] == "Fay Okafor")
    return (await call(CREATE, title="Explain the audit log", label="docs", assignee=email))["assignee"]


async def _comment_and_close(call: Call) -> Any:
    await call(COMMENT, issue_id=12, author="chen@example.com", text="Done in 2.1")
    return (await call(CLOSE, issue_id=12))["state"]


async def _load(call: Call) -> Any:
    people = (await call(PEOPLE))["people"]
    issues = (await call(LIST, state="open"))["issues"]
    hours = {each["email"]: each["hours"] for each in (await call(HOURS, week="2026-W23"))["people"]}
    return [
        [each["name"], sum(issue["assignee"] == each["email"] for issue in issues), hours[each["email"]]]
        for each in people
    ]


async def _most_comments(call: Call) -> Any:
    issues = (await call(LIST, state="open", label="performance"))["issues"]
    details = [await call(GET, issue_id=each["id"]) for each in issues]
    return [each["id"] for each in sorted(details, key=lambda each: (-len(each["comments"]), each["id"]))][:3]


async def _overtime(call: Call) -> Any:
    weeks = [(await call(HOURS, week=week))["people"] for week in WEEKS]
    return sorted({each["email"] for week in weeks for each in week if each["hours"] > 40})


async def _comments(call: Call) -> Any:
    issues = (await call(LIST, label="bug"))["issues"]
    details = [await call(GET, issue_id=each["id"]) for each in issues]
    return sum(len(each["comments"]) for each in details)


TASKS = (
    Task(
        "How many bugs are open?",
        {LIST: "list open bugs"},
        _open_bugs,
        'return unwrap(await MCP.tracker.listIssues({ state: "open", label: "bug" })).total;',
        by_program=False,
    ),
    Task(
        "On which team is Chen Wei?",
        {PEOPLE: "people and their teams"},
        _team,
        'return unwrap(await MCP.tracker.listPeople()).people.find((p) => p.name === "Chen Wei").team;',
        by_program=False,
    ),
    Task(
        "Who worked most in week 22?",
        {HOURS: "hours worked in a week"},
        _most_hours,
        'const { people } = unwrap(await MCP.reports.teamHours({ week: "2026-W22" }));\n'
        "return people.sort((a, b) => b.hours - a.hours)[0].email;",
        by_program=False,
    ),
    Task(
        "Which open issues have no assignee?",
        {LIST: "list open issues and their assignees"},
        _unassigned,
        'const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open" }));\n'
        "return issues.filter((issue) => issue.assignee === null).map((issue) => issue.id);",
        by_program=True,
    ),
    Task(
        "Ask Fay Okafor in a new issue to explain the audit log.",
        {PEOPLE: "people and their e-mail addresses", CREATE: "create an issue"},
        _create,
        'const fay = unwrap(await MCP.tracker.listPeople()).people.find((p) => p.name === "Fay Okafor");\n'
        'const made = await MCP.tracker.createIssue({ title: "Explain the audit log", label: "docs", '
        "assignee: fay.email });\nreturn unwrap(made).assignee;",
        by_program=False,
    ),
    Task(
        "Say in issue 12 that it is done in 2.1, as Chen, and close it.",
        {COMMENT: "comment on an issue", CLOSE: "close an issue"},
        _comment_and_close,
        "await MCP.tracker.commentIssue({ issue_id: 12, author: 'chen@example.com', text: 'Done in 2.1' });\n"
        "return unwrap(await MCP.tracker.closeIssue({ issue_id: 12 })).state;",
        by_program=False,
    ),
    Task(
        "For each person: the number of open issues, and the hours of week 23.",
        {PEOPLE: "list people", LIST: "list issues", HOURS: "hours of the team in a week"},
        _load,
        """\
const [{ people }, { issues }, week] = await Promise.all([
  MCP.tracker.listPeople().then(unwrap),
  MCP.tracker.listIssues({ state: "open" }).then(unwrap),
  MCP.reports.teamHours({ week: "2026-W23" }).then(unwrap),
]);
const hours = Object.fromEntries(week.people.map((each) => [each.email, each.hours]));
return people.map((p) => [p.name, issues.filter((i) => i.assignee === p.email).length, hours[p.email]]);""",
        by_program=True,
    ),
    Task(
        "Which three open performance issues have the most comments?",
        {LIST: "list issues", GET: "comments of an issue"},
        _most_comments,
        """\
const { issues } = unwrap(await MCP.tracker.listIssues({ state: "open", label: "performance" }));
const all = await Promise.all(issues.map((i) => MCP.tracker.getIssue({ issue_id: i.id }).then(unwrap)));
all.sort((a, b) => b.comments.length - a.comments.length || a.id - b.id);
return all.slice(0, 3).map((issue) => issue.id);""",
        by_program=True,
    ),
    Task(
        "Who has worked more than 40 hours in any week?",
        {HOURS: "hours of people in a week"},
        _overtime,
        """\
const weeks = ["2026-W21", "2026-W22", "2026-W23"];
const all = await Promise.all(weeks.map((week) => MCP.reports.teamHours({ week }).then(unwrap)));
return [...new Set(all.flatMap((w) => w.people).filter((p) => p.hours > 40).map((p) => p.email))].sort();""",
        by_program=True,
    ),
    Task(
        "How many comments do all bugs have together?",
        {LIST: "list bugs", GET: "comments of an issue"},
        _comments,
        """\
const { issues } = unwrap(await MCP.tracker.listIssues({ label: "bug" }));
const all = await Promise.all(issues.map((i) => MCP.tracker.getIssue({ issue_id: i.id }).then(unwrap)));
return all.reduce((sum, issue) => sum + issue.comments.length, 0);""",
        by_program=True,
    ),
)
