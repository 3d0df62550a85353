"""Declarations of the operations of OpenAPI documents: TypeScript accepts them, and they say what a call needs."""

from collections.abc import Callable
from typing import Any

from declarations import identifiers, render_server
from tests.openapi.openapi_documents import FEATURES, PETSTORE, read
from upstream_clients.list_repair import read_tools

CALLS = """
async function calls() {
  const wanted = { id: "a", query_id: 2, filter: { a: 1 }, or: [1], "X-Trace": true, class: "a" as const };
  const found = await MCP.features.findBooks(wanted);
  const kind: "novel" | "essay" | null | undefined = found.structuredContent!.parts![0].kind;
  await MCP.features.class_({ id: 1, title: "T", parts: [{ title: "U" }] });
  await MCP.features.patchBook({ id: 1, body: [{}] });
  await MCP.features.postUpload({ file: "AAE=", book: { title: "T" } });
  await MCP.features.deleteUpload();
  await MCP.pets.petsCreate({ name: "Rex" });
  const name: string = (await MCP.pets.listPets()).structuredContent![0].name;
  return [kind, name];
}
"""
WRONG = {
    "MCP.features.findBooks({})": "missing",
    'MCP.features.findBooks({ id: 1, "X-Trace": 1 })': "not assignable",
    "MCP.features.postUpload({})": "missing",
    "MCP.pets.petsCreate({ id: 1, name: 'Rex' })": "'id' does not exist",
    "MCP.pets.getPetsById({})": "missing",
}


def test_typescript_accepts_the_declarations_of_every_feature(type_check: Callable[..., Any]) -> None:
    files = {}
    for server, document in {"features": FEATURES, "pets": PETSTORE}.items():
        tools, problems = read_tools(read(document, base_url="http://a").tools)
        assert not problems
        names = identifiers([tool.name for tool in tools])
        files[f"{server}.d.ts"] = render_server(server, [(names[tool.name], tool) for tool in tools])
    wrong = "\n".join(["async function wrong() {", *(f"  await {call};" for call in WRONG), "}"])
    found = type_check({**files, "calls.ts": CALLS, "wrong.ts": wrong}, together=True)
    assert [found[name] for name in (*files, "calls.ts")] == [[], [], []]
    assert len(found["wrong.ts"]) == len(WRONG)
    for (line, message), expected in zip(found["wrong.ts"], WRONG.values(), strict=True):
        assert expected in message, (line, message)
    assert "\u202e" not in files["features.d.ts"]
    assert "<b>" not in files["features.d.ts"]
