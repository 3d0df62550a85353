"""Texts of results that read like errors, and ordinary texts with the same words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codemode_mcp.runs.calls.outcome import MAX_TEXT, error_text

ERRORS = """Database error: no such table: users
Error: File not found
error: unknown switch
Error executing query: near "SELEC": syntax error
Error executing tool get_weather: timeout
Error executing tool
SQL Error [1064]: You have an error
MCP error -32602: Invalid arguments
ValueError: invalid literal
sqlite3.OperationalError: no such column: nam
Traceback (most recent call last):
fatal: not a git repository
Failed to fetch https://x
Failed to open file '/a'
Could not connect to server
Cannot read properties of undefined
Unable to find issue 7
Permission denied
Access denied - path outside allowed directories: /etc
ENOENT: no such file or directory, open '/x'
404 Not Found
HTTP 500 Internal Server Error
HTTP error 429: Too many requests
Request failed with status code 404: nothing
Query failed: relation "x" does not exist
Command failed: git log
An error occurred while processing the request
An unexpected error occurred
Sorry, an error occurred: x
❌ Error: cannot divide by zero
**Error**: missing
[ERROR] cannot open
Error - disk full
Internal Server Error
Error
Rate limit exceeded, try later
Unauthorized
Not found
Invalid arguments: missing id
Unknown tool: foo
Missing required argument 'path'
No such file or directory
{"error": "not found"}
{"error": {"code": 5, "message": "x"}}
{"status": "error", "message": "x"}
Exception: boom
Error 404: page missing
Error: 404 not found
Error in line 3: unexpected token
Error from server (NotFound): pods "x" not found
Connection refused
panic: runtime error
API error: 401 Unauthorized
error[E0382]: borrow of moved value
Parse error: unexpected end
Error fetching issues: bad credentials
Invalid path: ../x
Division by zero error: x
Error reading file "a"
Tool 'x' failed: y
Validation failed: name is required
Authentication failed.
Operation failed
Request timed out
Error! not there
Git error: bad revision
"""

ORDINARY = """Error handling in Rust: a guide
Error handling: use try/catch around each call
Errors: 0
Error count: 0
Errors found: none
Error rate: 2%
Mean error: 0.3
Mean squared error: 0.02
Standard error: 1.2
Margin of error: 3%
Last error: none
Error: none
Error: 0
errors: []
No errors found
no error
0 errors, 3 warnings
2026-01-01 12:00:00 ERROR disk full
Error log is empty
Error codes: 1 = bad input, 2 = no access
Error messages should name the thing and say what to do next.
Error budgets are spent by incidents.
Failed tests: 0
Failed jobs: none
Failed login attempts: 3
Tests failed: 0
3 tests failed: a, b
Cannot wait to see you on Friday!
Unable to attend on Friday, sorry
Could not be better, thanks!
# Errors\n\nThe codes are listed here.
# Error handling\n\nErrors are values.
The error is in line 3.
A failure of the pump was reported in March.
Exception list: a.txt, b.txt
Exceptional results in Q3: revenue up 5%
Not found in the index: 0
Notes on failed experiments: see below
invalid: 0, valid: 7
Invalid entries: none
Unknown pleasures is an album of Joy Division.
Missing persons: 2 reports
404 is the number of rooms in the hotel.
500 Days of Summer
Forbidden Planet (1956)
Permission to land was granted.
Access log: 20 lines
Timeout settings: 30 s
fatalities: 0
Panic at the Disco: tour dates
Traceback is a word of Python.
const error = new Error("x");
throw new Error('no');
def error_handler(e): return e
try { run() } catch (error) { log(error) }
import { error } from "./log"
class ValidationError extends Error {}
error_reporting = E_ALL
{"errors": []}
{"error": null, "result": 7}
{"error": "", "ok": true}
{"status": "ok", "error": null}
{"status":"errors fixed"}
Query returned 0 rows
commit 3efc Fix error: handle missing table
Fix error in parser
Fix: error in parser
Subject: Error in your invoice
feat: show errors
Successfully deleted 3 files
Status: failed
status: error
Error Analysis of the Apollo Guidance Computer
Errors and omissions insurance: policy 7
Error-free operation since May
Type I error: rejecting a true null hypothesis
Human error: the leading cause of outages
Rounding error: what it is and how to avoid it
Trial and error: how we found the settings
Exceptions: Sundays and public holidays
HTTP 404 pages: how to design them
404 Not Found pages: how to design them
Connection refused means that no process listens on the port.
Permission denied is the most common problem, see the FAQ.
The Comedy of Errors: a play by Shakespeare
Denied applications: 4
Rate limits: 100 per minute
Rate limit: 100/min
Unauthorized access is prohibited.
Name,Error,Count\na,b,3
| Error | Count |\n|---|---|
forbidden
error
class ProgramError(CodeModeError):
EVERYTHING: the whole list
"""


def result(text: str, **more: Any) -> str:
    return json.dumps({"content": [{"type": "text", "text": text}], **more}, ensure_ascii=False)


@pytest.mark.parametrize("text", ERRORS.strip().splitlines())
def test_a_short_text_that_begins_like_an_error_reads_like_one(text: str) -> None:
    assert error_text(result(text)) == text
    assert error_text(result(text, isError=False)) == text
    assert error_text(result(text, structuredContent={"result": text})) == text


@pytest.mark.parametrize("text", ORDINARY.strip().splitlines())
def test_ordinary_texts_about_errors_do_not(text: str) -> None:
    assert error_text(result(text)) is None
    assert error_text(result(text.replace("\\n", "\n"))) is None


@pytest.mark.parametrize(
    "given",
    [
        result("Error: no", isError=True),
        result("Error: no", structuredContent={"rows": []}),
        result("Error: no" + "x" * MAX_TEXT),
        result("2026-01-01 ERROR: disk full"),
        result("All is well.\nError: no"),
        json.dumps({"content": [{"type": "image", "data": "", "mimeType": "image/png"}]}),
        json.dumps({"content": []}),
        json.dumps({"content": "Error: no"}),
        "[]",
        "null",
        "[" * 1500,
        "no JSON",
    ],
)
def test_other_results_do_not(given: str) -> None:
    assert error_text(given) is None


def test_few_paragraphs_of_the_documentation_do() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs"
    texts = [each for file in folder.glob("**/*.md") for each in file.read_text("utf-8").split("\n\n")]
    assert len(texts) > 500
    assert [each for each in texts if error_text(result(each))] == []
