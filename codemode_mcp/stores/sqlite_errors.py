"""Messages for result codes of SQLite (https://www.sqlite.org/rescode.html)."""

from __future__ import annotations

import sqlite3


def problem(code: int | None, busy_seconds: float) -> str:
    """Return the end of a message that begins with "the store": the problem, and the remedy.

    Args:
        code: a result code of SQLite, primary or extended; None if unknown.
        busy_seconds: the time for which the database was locked.
    """
    match None if code is None else code & 0xFF:
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return (
                f"has been locked by another process for more than {busy_seconds:g} s; try again; "
                "if that does not help, look for the process that locks it"
            )
        case sqlite3.SQLITE_FULL:
            return "cannot grow: the disk is full; make room and try again"
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            return "cannot be written to; check who may write to the file, its folder and the file system"
        case sqlite3.SQLITE_CORRUPT:
            return (
                "is damaged; end all codemode-mcp processes that use it, move it away together with all files whose "
                "names begin with its name, or replace it by a backup, and start codemode-mcp again"
            )
        case sqlite3.SQLITE_NOTADB:
            return (
                "is not a database of codemode-mcp, or is encrypted by another program; "
                "set store.path to another file, or move this one away"
            )
        case sqlite3.SQLITE_CANTOPEN:
            return "cannot be opened; check that its folder exists and can be written to"
        case sqlite3.SQLITE_IOERR:
            return "cannot be read or written: the disk reports an error, or is full; check it and try again"
        case _:
            return "does not work; see the log of codemode-mcp"
