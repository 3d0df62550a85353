"""A small issue tracker as an MCP server over stdio: SQLite, no account, no network.

    python tracker.py               # in memory, gone when it ends
    python tracker.py --db work.db  # kept in a file

It starts with the issues and people below. Needs nothing but the MCP SDK.
"""

from __future__ import annotations

import argparse
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from typing import Annotated, Literal

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

State = Literal["open", "closed"]
Label = Literal["bug", "feature", "docs", "performance"]
Email = Annotated[str, Field(description="E-mail address of a person, as in list_people")]
IssueId = Annotated[int, Field(description="Number of the issue", ge=1)]

READ = ToolAnnotations(read_only_hint=True, open_world_hint=False)
ADD = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False)
CLOSE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False)


class Person(BaseModel):
    email: str
    name: str
    team: Literal["platform", "apps", "docs"]


class Comment(BaseModel):
    author: str
    text: str
    created: str


class Issue(BaseModel):
    id: int
    title: str
    state: State
    label: Label
    assignee: str | None = Field(description="E-mail address, or null for an unassigned issue")
    created: str = Field(description="Date, as 2026-05-04")


class IssueDetails(Issue):
    body: str
    comments: list[Comment]


class Issues(BaseModel):
    issues: list[Issue]
    total: int


class People(BaseModel):
    people: list[Person]


SCHEMA = """
CREATE TABLE people (email TEXT PRIMARY KEY, name TEXT NOT NULL, team TEXT NOT NULL);
CREATE TABLE issues (
    id INTEGER PRIMARY KEY, title TEXT NOT NULL, body TEXT NOT NULL DEFAULT '', state TEXT NOT NULL DEFAULT 'open',
    label TEXT NOT NULL, assignee TEXT REFERENCES people, created TEXT NOT NULL
);
CREATE TABLE comments (issue INTEGER NOT NULL REFERENCES issues, author TEXT NOT NULL, text TEXT NOT NULL,
    created TEXT NOT NULL);
"""
PEOPLE = [
    ("ada@example.com", "Ada Moreau", "platform"),
    ("bo@example.com", "Bo Lindqvist", "platform"),
    ("chen@example.com", "Chen Wei", "apps"),
    ("dina@example.com", "Dina Haddad", "apps"),
    ("emil@example.com", "Emil Novak", "apps"),
    ("fay@example.com", "Fay Okafor", "docs"),
]
ISSUES = [  # title, state, label, assignee, created
    ("Login loops when the session cookie has expired", "open", "bug", "ada", "2026-05-04"),
    ("Export to CSV drops the last row", "closed", "bug", "chen", "2026-05-05"),
    ("Search takes 4 s on projects with 10,000 issues", "open", "performance", "bo", "2026-05-06"),
    ("Dark mode for the dashboard", "open", "feature", "dina", "2026-05-06"),
    ("Document the webhook signature", "open", "docs", "fay", "2026-05-07"),
    ("Attachment upload fails for names with umlauts", "open", "bug", "emil", "2026-05-08"),
    ("Rate limit headers are missing on 429 answers", "open", "bug", "ada", "2026-05-11"),
    ("Keyboard shortcut to assign an issue to oneself", "closed", "feature", "dina", "2026-05-11"),
    ("Quick start shows a removed option", "closed", "docs", "fay", "2026-05-12"),
    ("Nightly backup holds a table lock for 20 minutes", "open", "performance", "bo", "2026-05-12"),
    ("Two people can close one issue at the same time", "open", "bug", "ada", "2026-05-13"),
    ("Saved filters", "open", "feature", "chen", "2026-05-13"),
    ("Time zone is ignored in due dates", "open", "bug", "emil", "2026-05-14"),
    ("Avatars are loaded at full size", "closed", "performance", "chen", "2026-05-15"),
    ("Explain roles and permissions", "open", "docs", None, "2026-05-18"),
    ("E-mail notifications arrive twice", "open", "bug", "bo", "2026-05-18"),
    ("Bulk edit of labels", "open", "feature", None, "2026-05-19"),
    ("Crash when a comment holds a NUL character", "closed", "bug", "ada", "2026-05-19"),
    ("Board does not scroll on tablets", "open", "bug", "dina", "2026-05-20"),
    ("Single sign-on with SAML", "open", "feature", "ada", "2026-05-21"),
    ("API examples in Python", "open", "docs", "fay", "2026-05-22"),
    ("First page load downloads 3 MB of JavaScript", "open", "performance", "emil", "2026-05-25"),
    ("Undo for closing an issue", "open", "feature", "dina", "2026-05-26"),
    ("Mentions of former members raise an error", "open", "bug", "chen", "2026-05-26"),
    ("Sorting by priority is not stable", "closed", "bug", "emil", "2026-05-27"),
    ("Archive projects", "open", "feature", None, "2026-05-28"),
    ("Memory of the worker grows by 50 MB a day", "open", "performance", "bo", "2026-05-29"),
    ("Broken links in the migration guide", "open", "docs", "fay", "2026-06-01"),
    ("Password reset link works twice", "open", "bug", "ada", "2026-06-02"),
    ("Recurring issues", "open", "feature", "chen", "2026-06-03"),
]


def open_database(path: str) -> sqlite3.Connection:
    """The database at `path`, filled with the data above when it is new."""
    db = sqlite3.connect(path, isolation_level=None)
    db.row_factory = sqlite3.Row
    if not db.execute("SELECT 1 FROM sqlite_master").fetchone():
        db.executescript(SCHEMA)
        db.executemany("INSERT INTO people VALUES (?, ?, ?)", PEOPLE)
        db.executemany(
            "INSERT INTO issues (title, state, label, assignee, created) VALUES (?, ?, ?, ? || '@example.com', ?)",
            ISSUES,
        )
    return db


def create_server(db: sqlite3.Connection) -> MCPServer:
    """The server; its tools are coroutines and therefore take turns on the one connection."""
    server = MCPServer(
        "tracker", instructions="Issues of one project and the people who work on them.", log_level="ERROR"
    )

    def issue_row(issue_id: int) -> sqlite3.Row:
        row: sqlite3.Row | None = db.execute("SELECT * FROM issues WHERE id = ?", (issue_id,)).fetchone()
        if row is None:
            raise ToolError(f"There is no issue {issue_id}; list_issues gives the numbers.")
        return row

    def details(issue_id: int) -> IssueDetails:
        comments = db.execute("SELECT author, text, created FROM comments WHERE issue = ? ORDER BY rowid", (issue_id,))
        return IssueDetails(**dict(issue_row(issue_id)), comments=[Comment(**dict(row)) for row in comments])

    def check_person(email: str) -> None:
        if not db.execute("SELECT 1 FROM people WHERE email = ?", (email,)).fetchone():
            raise ToolError(f"No person here has the address {email}; list_people gives the addresses.")

    @server.tool(annotations=READ)
    async def list_issues(
        state: State | None = None, label: Label | None = None, assignee: Email | None = None
    ) -> Issues:
        """List issues, oldest first; every argument narrows the list."""
        rows = db.execute(
            "SELECT * FROM issues WHERE state = coalesce(?1, state) AND label = coalesce(?2, label)"
            " AND (?3 IS NULL OR assignee = ?3) ORDER BY id",
            (state, label, assignee),
        ).fetchall()
        return Issues(issues=[Issue(**dict(row)) for row in rows], total=len(rows))

    @server.tool(annotations=READ)
    async def get_issue(issue_id: IssueId) -> IssueDetails:
        """One issue with its text and comments."""
        return details(issue_id)

    @server.tool(annotations=READ)
    async def list_people() -> People:
        """Everybody who can have issues."""
        return People(people=[Person(**dict(row)) for row in db.execute("SELECT * FROM people ORDER BY email")])

    @server.tool(annotations=ADD)
    async def create_issue(
        title: Annotated[str, Field(min_length=1, max_length=200)],
        label: Label,
        body: str = "",
        assignee: Email | None = None,
    ) -> Issue:
        """Open a new issue."""
        if assignee is not None:
            check_person(assignee)
        values = (title, body, label, assignee, f"{datetime.now(UTC):%Y-%m-%d}")
        insert = "INSERT INTO issues (title, body, label, assignee, created) VALUES (?, ?, ?, ?, ?) RETURNING *"
        return Issue(**dict(db.execute(insert, values).fetchone()))

    @server.tool(annotations=ADD)
    async def comment_issue(issue_id: IssueId, author: Email, text: Annotated[str, Field(min_length=1)]) -> Comment:
        """Add a comment to an issue."""
        issue_row(issue_id)
        check_person(author)
        comment = Comment(author=author, text=text, created=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}")
        db.execute("INSERT INTO comments VALUES (?, ?, ?, ?)", (issue_id, author, text, comment.created))
        return comment

    @server.tool(annotations=CLOSE)
    async def close_issue(issue_id: IssueId) -> Issue:
        """Close an issue for good. Closing a closed one changes nothing."""
        issue_row(issue_id)
        db.execute("UPDATE issues SET state = 'closed' WHERE id = ?", (issue_id,))
        return Issue(**dict(issue_row(issue_id)))

    @server.resource("tracker://labels", mime_type="text/markdown")
    async def labels() -> str:
        """Meanings of the labels."""
        return "- bug: it does not do what it says\n- feature: it does more\n- docs: words\n- performance: it is slow\n"

    @server.resource("issue://{issue_id}", mime_type="application/json")
    async def issue(issue_id: int) -> str:
        """One issue with its text and comments, as JSON."""
        try:
            return details(issue_id).model_dump_json()
        except ToolError as error:
            raise ResourceNotFoundError(str(error)) from error

    @server.prompt()
    async def triage(label: Label = "bug") -> str:
        """Go through the open issues of one label."""
        return f"List the open {label} issues without an assignee. Propose one for each, by the issues they have now."

    return server


def main() -> None:
    parser = argparse.ArgumentParser(description="A small issue tracker as an MCP server over stdio.")
    parser.add_argument("--db", default=":memory:", metavar="FILE", help="keep the issues in this file")
    with closing(open_database(parser.parse_args().db)) as db:
        create_server(db).run()


if __name__ == "__main__":
    main()
