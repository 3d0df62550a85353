"""Secrets of a configuration are not in the file of suspended programs."""

from __future__ import annotations

import json
import sqlite3
import sys
import zlib
from contextlib import closing, suppress
from pathlib import Path

import pytest
from harness import serve

pytestmark = pytest.mark.anyio

SECRETS = {name: f"planted-{name}-Zk3Qw9" for name in ("env", "argument", "header", "query", "expanded")}

CODE = """
const told = [];
for (const make of [() => MCP.remote.nothing({}), () => MCP.broken.nothing({})]) {
  try { await make() } catch (error) { told.push(error.message, error.stack) }
}
text(told.join()); await store('told', told);
MCP.remote.nothing({}).catch(() => 0); MCP.broken.nothing({}).catch(() => 0);
await yield_control(told.join());
throw new Error(told.join());
"""


def unpacked(data: bytes) -> bytes:
    """Return the data with all packed parts unpacked, so that a search finds text in them."""
    found = [data]
    at = data.find(b"\x78\x01")
    while at >= 0:
        with suppress(zlib.error):
            found.append(zlib.decompressobj().decompress(data[at:], 1 << 24))
        at = data.find(b"\x78\x01", at + 1)
    return b"".join(found)


async def test_no_secret_of_the_configuration_is_in_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTED", SECRETS["expanded"])
    config = tmp_path / "config.json"
    servers = {
        "broken": {
            "command": sys.executable,
            "args": ["-c", "raise SystemExit(3)", SECRETS["argument"]],
            "env": {"TOKEN": SECRETS["env"], "OTHER": "${PLANTED}"},
        },
        "remote": {
            "url": f"http://127.0.0.1:9/mcp?key={SECRETS['query']}",
            "headers": {"Authorization": f"Bearer {SECRETS['header']}"},
        },
    }
    store = {"kind": "sqlite", "path": "kept/runs.sqlite3"}
    config.write_text(json.dumps({"mcpServers": servers, "store": store}), "utf-8")
    async with serve(config) as session:
        ended = await session.finish(await session.exec(CODE))
        assert ended.status == "failed"
        assert (await session.exec(CODE)).status == "waiting"
        # With the write-ahead log, which is gone once no process has the file open.
        data = b"".join(each.read_bytes() for each in (tmp_path / "kept").iterdir() if each.is_file())
    with closing(sqlite3.connect(tmp_path / "kept" / "runs.sqlite3")) as connection:
        for table in ("runs", "snapshots", "calls", "outputs", "catalogs", "kept"):
            rows = connection.execute(f"SELECT * FROM {table}").fetchall()
            data += b"".join(unpacked(value) for row in rows for value in row if isinstance(value, bytes))
    assert data.count(b"yield_control(told.join())") > 0, "the text is found where it would be"
    assert data.count(b"server 'remote'") > 2
    for name, secret in SECRETS.items():
        assert secret.encode() not in data, name
