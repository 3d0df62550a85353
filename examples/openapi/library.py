"""A small lending library as an HTTP API: no MCP, no account, nothing but Python. `library.yaml` is its document.

    python library.py                # until Ctrl-C
    python library.py COMMAND ...    # as long as the command runs

It listens on port 8765 of this machine, or on `$LIBRARY_PORT`. For a command it chooses a free port. Lending and
returning need the key `library-example-key` in the header `X-Library-Key`. Loans are in memory, and gone when it ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

KEY = "library-example-key"
BOOKS = {
    number: {"id": number, "title": title, "author": author, "year": year}
    for number, (title, author, year) in enumerate(
        [
            ("The Mill on the Floss", "George Eliot", 1860),
            ("Middlemarch", "George Eliot", 1871),
            ("Bleak House", "Charles Dickens", 1853),
            ("Hard Times", "Charles Dickens", 1854),
            ("North and South", "Elizabeth Gaskell", 1855),
            ("Cranford", "Elizabeth Gaskell", 1853),
            ("Villette", "Charlotte Brontë", 1853),
        ],
        1,
    )
}
LOANS: dict[int, dict[str, Any]] = {}
LOCK = threading.Lock()


def book_json(number: int) -> dict[str, Any]:
    return {**BOOKS[number], "available": all(loan["bookId"] != number for loan in LOANS.values())}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        match parts.path.strip("/").split("/"):
            case ["books"]:
                author = query.get("author", "")
                self.answer(200, [book_json(number) for number, book in BOOKS.items() if author in book["author"]])
            case ["books", number] if number.isdecimal() and int(number) in BOOKS:
                self.answer(200, book_json(int(number)))
            case ["openapi.yaml"]:
                self.answer(200, (Path(__file__).parent / "library.yaml").read_text("utf-8"), "application/yaml")
            case ["loans"]:
                self.answer(200, list(LOANS.values()))
            case ["catalogue.csv"]:
                lines = [f"{each['id']},{each['title']},{each['year']}" for each in BOOKS.values()]
                self.answer(200, "\n".join(["id,title,year", *lines]) + "\n", "text/csv; charset=utf-8")
            case _:
                self.answer(404, {"message": "there is no such book"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        if self.is_stranger():
            return
        number = body.get("bookId")
        with LOCK:
            if number not in BOOKS:
                self.answer(404, {"message": "there is no such book"})
            elif not book_json(number)["available"]:
                self.answer(409, {"message": "the book is lent"})
            else:
                loan = {"id": max(LOANS, default=0) + 1, "bookId": number, "reader": str(body.get("reader"))}
                LOANS[loan["id"]] = loan
                self.answer(201, loan)

    def do_DELETE(self) -> None:
        if self.is_stranger():
            return
        number = self.path.rpartition("/")[2]
        with LOCK:
            found = LOANS.pop(int(number), None) if number.isdecimal() else None
        if found is None:
            self.answer(404, {"message": "there is no such loan"})
        else:
            self.answer(204, None)

    def is_stranger(self) -> bool:
        """Return True, and answer, if the request has no key."""
        if self.headers.get("X-Library-Key") == KEY:
            return False
        self.answer(401, {"message": "the header X-Library-Key is missing or wrong"})
        return True

    def answer(self, status: int, value: object, kind: str = "application/json") -> None:
        data = b"" if value is None else value.encode() if isinstance(value, str) else json.dumps(value).encode()
        self.send_response(status)
        if data:
            self.send_header("Content-Type", kind)
        if status != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def main() -> int:
    # Behind a command, any free port will do: the configuration reads the variable.
    default = "0" if sys.argv[1:] else "8765"
    server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("LIBRARY_PORT", default))), Handler)
    server.daemon_threads = True
    if not sys.argv[1:]:
        print(f"serving http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environ = {**os.environ, "LIBRARY_PORT": str(server.server_port)}
    return subprocess.run(sys.argv[1:], env=environ, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
