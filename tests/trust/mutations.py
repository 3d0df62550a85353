"""Changes of listings as an attacker would make them, and listings that only look changed.

`python -m tests.trust.mutations [--seed N] [--mutations N] [--relistings N] [--lists FOLDER]` counts how many changes
are held back, and how many relistings in another order are taken for changes.
"""

import argparse
import copy
import json
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codemode_mcp.audit.events import Auditor
from codemode_mcp.base.settings import PolicyRules
from codemode_mcp.catalog.per_caller import build
from codemode_mcp.rules.policy.policy import Policy
from codemode_mcp.rules.trust.service import Trust
from upstream_clients.list_repair import PROMPTS, TEMPLATES, read_items, read_tools
from upstream_clients.spec import UpstreamSpec
from upstream_clients.tools import UpstreamView

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "corpus" / "toollists"
LABELLED = Path(__file__).parent / "labelled" / "benign_independent.json"

HIDDEN = ("\u200b", "\u202e", "\U000e0041", "\ufeff", "\u2066")
MARK = "sidenote-for-the-model"
"""A part of most changed texts, by which a test finds them in what a program can read."""

Raw = dict[str, Any]
"""A listing as the server sends it: `tools`, `prompts`, `templates`, `instructions`, `name`."""

Change = Callable[[Raw, random.Random], bool]
"""A function that changes a listing. It returns False if the listing has nothing to change in this way."""


@dataclass(frozen=True)
class Mutation:
    """A changed listing."""

    kind: str
    server: str
    before: Raw
    after: Raw


def recorded_listings(folder: Path = RECORDED) -> dict[str, Raw]:
    """Return the recorded lists by server; an empty dict if the folder is not there."""
    return {
        file.stem: {"name": file.stem, "tools": json.loads(file.read_text("utf-8"))["tools"]}
        for file in sorted(folder.glob("*.json"))
    }


def labelled_listings() -> dict[str, Raw]:
    """Return listings of the kind that real servers have, from the labelled definitions."""
    listings: dict[str, Raw] = {}
    places = {"tool": "tools", "prompt": "prompts", "template": "templates"}
    for each in json.loads(LABELLED.read_text("utf-8")):
        listing = listings.setdefault(f"server{len(listings) % 25}", {"name": each["server"], "tools": []})
        if len(listings) == 25:
            listing = listings[f"server{int(each['id'][-3:]) % 25}"]
        definition = each["definition"]
        if each["kind"] == "server":
            listing["instructions"] = definition.get("instructions")
        else:
            listing.setdefault(places[each["kind"]], []).append(definition)
    return listings


def view_of(server: str, raw: Raw) -> UpstreamView:
    """Return the view of a listing, as a connection makes it."""
    raw = json.loads(json.dumps(raw))
    tools, _ = read_tools(raw["tools"])
    prompts, templates = (
        None if raw.get(name) is None else read_items(kind, raw[name])[0]
        for name, kind in (("prompts", PROMPTS), ("templates", TEMPLATES))
    )
    return UpstreamView(
        server,
        "ready",
        era="legacy",
        tools=tools,
        instructions=raw.get("instructions"),
        server_name=raw["name"],
        prompts="prompts" in raw,
        resources="templates" in raw,
        prompt_list=prompts,
        template_list=templates,
    )


# changes


def _tool(raw: Raw, pick: random.Random) -> Raw:
    return pick.choice(raw["tools"])


def _schemas(value: Any) -> list[Raw]:
    """Return all schemas below a schema, and itself."""
    found = [value]
    for key in ("properties", "$defs", "definitions", "patternProperties"):
        found += [
            each for below in (value.get(key) or {}).values() if isinstance(below, dict) for each in _schemas(below)
        ]
    for key in ("items", "additionalProperties", "not"):
        if isinstance(value.get(key), dict):
            found += _schemas(value[key])
    for key in ("anyOf", "oneOf", "allOf"):
        found += [each for below in value.get(key) or () if isinstance(below, dict) for each in _schemas(below)]
    return found


def _schema(raw: Raw, pick: random.Random) -> Raw:
    return pick.choice(_schemas(_tool(raw, pick)["inputSchema"]))


def _in_place(text: str | None, word: str, pick: random.Random) -> str:
    at = pick.randrange(len(text or "") + 1)
    return (text or "")[:at] + word + (text or "")[at:]


def change_description(raw: Raw, pick: random.Random) -> bool:
    tool = _tool(raw, pick)
    tool["description"] = _in_place(tool.get("description"), MARK, pick)
    return True


def hide_in_description(raw: Raw, pick: random.Random) -> bool:
    tool = _tool(raw, pick)
    tool["description"] = _in_place(tool.get("description"), pick.choice(HIDDEN), pick)
    return True


def change_argument_text(raw: Raw, pick: random.Random) -> bool:
    schema = _schema(raw, pick)
    schema["description"] = _in_place(str(schema.get("description", "")), pick.choice((MARK, *HIDDEN)), pick)
    return True


def change_title(raw: Raw, pick: random.Random) -> bool:
    tool = _tool(raw, pick)
    tool["title"] = _in_place(tool.get("title"), MARK, pick)
    return True


def change_value(raw: Raw, pick: random.Random) -> bool:
    schema = _schema(raw, pick)
    key = pick.choice(("default", "const", "examples", "enum", "pattern", "format"))
    match key:
        case "enum":
            schema["enum"] = [*(schema.get("enum") or []), MARK]
        case "examples":
            schema["examples"] = [MARK]
        case "format":
            schema["format"] = f"x-{MARK}"
        case _:
            schema[key] = MARK
    return True


def change_bound(raw: Raw, pick: random.Random) -> bool:
    schema = _schema(raw, pick)
    key = pick.choice(("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "multipleOf"))
    schema[key] = schema.get(key, 0) + 1
    return True


def change_type(raw: Raw, pick: random.Random) -> bool:
    found = [each for each in _schemas(_tool(raw, pick)["inputSchema"])[1:] if isinstance(each.get("type"), str)]
    if not found:
        return False
    schema = pick.choice(found)
    schema["type"] = "string" if schema["type"] != "string" else "number"
    return True


def add_argument(raw: Raw, pick: random.Random) -> bool:
    schema = _tool(raw, pick)["inputSchema"]
    schema["properties"] = {**(schema.get("properties") or {}), MARK: {"type": "string"}}
    return True


def change_required(raw: Raw, pick: random.Random) -> bool:
    schema = _tool(raw, pick)["inputSchema"]
    names = list(schema.get("properties") or ())
    if not names:
        return False
    required = set(schema.get("required") or ())
    schema["required"] = sorted(required ^ {pick.choice(names)})
    return True


def change_annotations(raw: Raw, pick: random.Random) -> bool:
    tool = _tool(raw, pick)
    hint = pick.choice(("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"))
    annotations = dict(tool.get("annotations") or {})
    annotations[hint] = annotations.get(hint) is not True
    tool["annotations"] = annotations
    return True


def rename_tool(raw: Raw, pick: random.Random) -> bool:
    tool = _tool(raw, pick)
    tool["name"] = pick.choice((tool["name"] + "_v2", tool["name"].upper() + "X", tool["name"][:-1] + "\u0430"))
    return True


def add_tool(raw: Raw, pick: random.Random) -> bool:
    raw["tools"].insert(
        pick.randrange(len(raw["tools"]) + 1), {"name": MARK, "description": MARK, "inputSchema": {"type": "object"}}
    )
    return True


def swap_definitions(raw: Raw, pick: random.Random) -> bool:
    if len(raw["tools"]) < 2:
        return False
    one, other = pick.sample(raw["tools"], 2)
    one["inputSchema"], other["inputSchema"] = other["inputSchema"], one["inputSchema"]
    return one["inputSchema"] != other["inputSchema"]


def change_instructions(raw: Raw, pick: random.Random) -> bool:
    raw["instructions"] = _in_place(raw.get("instructions"), pick.choice((MARK, *HIDDEN)), pick)
    return True


def change_server_name(raw: Raw, pick: random.Random) -> bool:
    raw["name"] += pick.choice(HIDDEN)
    return True


def change_prompt(raw: Raw, pick: random.Random) -> bool:
    if not raw.get("prompts"):
        return False
    prompt = pick.choice(raw["prompts"])
    match pick.randrange(4):
        case 0:
            prompt["description"] = _in_place(prompt.get("description"), MARK, pick)
        case 1:
            prompt["arguments"] = [*(prompt.get("arguments") or ()), {"name": MARK, "required": True}]
        case 2:
            prompt["name"] += MARK
        case 3:
            raw["prompts"].append({"name": MARK})
    return True


def change_template(raw: Raw, pick: random.Random) -> bool:
    if not raw.get("templates"):
        return False
    template = pick.choice(raw["templates"])
    key = pick.choice(("uriTemplate", "name", "description"))
    template[key] = str(template.get(key) or "") + MARK
    return True


CHANGES: tuple[Change, ...] = (
    *(change_description, hide_in_description, change_argument_text, change_title, change_value, change_bound),
    *(change_type, add_argument, change_required, change_annotations, rename_tool, add_tool, swap_definitions),
    *(change_instructions, change_server_name, change_prompt, change_template),
)


def mutations(listings: dict[str, Raw], count: int, seed: int) -> list[Mutation]:
    """Return changed listings, as many of each kind as there can be."""
    pick = random.Random(seed)
    found: list[Mutation] = []
    servers = [server for server, raw in listings.items() if raw["tools"]]
    while len(found) < count:
        for change in CHANGES:
            for _ in range(1000):
                server = pick.choice(servers)
                after = copy.deepcopy(listings[server])
                if change(after, pick) and after != listings[server]:
                    found.append(Mutation(change.__name__, server, listings[server], after))
                    break
    return found[:count]


def relisted(raw: Raw, pick: random.Random) -> Raw:
    """Return a listing with the same meaning: in another order of items, members and sets, with other white space."""
    shuffled = {key: _reordered(value, pick, key) for key, value in raw.items()}
    return json.loads(json.dumps(shuffled, indent=pick.choice((None, 1, 4)), ensure_ascii=pick.random() < 0.5))


def _reordered(value: Any, pick: random.Random, key: str) -> Any:
    match value:
        case dict():
            members = list(value.items())
            pick.shuffle(members)
            # Under `properties`, `required` and `type` are names that the server has chosen.
            return {
                name: _reordered(member, pick, "" if key in ("properties", "default", "const") else name)
                for name, member in members
            }
        case list():
            items = [_reordered(item, pick, "") for item in value]
            if key in ("tools", "prompts", "templates", "required", "enum", "type"):
                pick.shuffle(items)
            return items
        case int() if not isinstance(value, bool) and abs(value) < 2**53 and pick.random() < 0.5:
            return float(value)
    return value


# what programs get


def trust_of(view: UpstreamView, *later: UpstreamView) -> Trust:
    """Return pins, in memory, whose first listing is that of a view, and whose server lists a later one now."""
    views = [view, *later][-1:]
    trust = Trust(None, lambda: views, Auditor(), lambda: None)
    trust.apply({}, [UpstreamSpec(view.name, "stdio", command="server")])
    trust.trusted(view)
    return trust


def readable(view: UpstreamView) -> str:
    """Return everything that a program can read of a server."""
    catalog = build([view], Policy(PolicyRules()))
    files = [catalog.files.text(path) for path in catalog.files.paths]
    described = [catalog.header(server.identifier, None, schema=True) for server in catalog.servers]
    lists = [view.instructions, view.prompt_list, view.template_list]
    return json.dumps([files, described, lists], default=list, ensure_ascii=False, sort_keys=True)


def escapes(mutation: Mutation) -> str | None:
    """Return how a change reaches a program; None if it is held back."""
    before, after = view_of(mutation.server, mutation.before), view_of(mutation.server, mutation.after)
    trust = trust_of(before, after)
    seen = trust.trusted(after)
    accepted = {tool.name: tool for tool in before.tools}
    if all(report.status in ("accepted", "removed") for report in trust.reports()):
        return "it is not noticed"
    if any(tool != accepted.get(tool.name) for tool in seen.tools):
        return "a program sees another tool than before"
    text = readable(seen)
    hidden = [character for character in HIDDEN if character in text]
    if MARK in text or (hidden and not set(hidden) <= set(readable(before))):
        return "a program can read it"
    if seen.instructions != before.instructions:
        return "the instructions are others than before"
    for shown, known in ((seen.prompt_list, before.prompt_list), (seen.template_list, before.template_list)):
        if any(item not in (known or ()) for item in shown or ()):
            return "a program can list an item that was not there before"
    for tool in after.tools:
        known_tool = accepted.get(tool.name)
        same_shape = known_tool is not None and (known_tool.annotations, _shape(known_tool.input_schema)) == (
            tool.annotations,
            _shape(tool.input_schema),
        )
        if not same_shape and trust.admits(mutation.server, tool) is None:
            return f"a program can call {tool.name!r}"
    return None


def _shape(schema: Any) -> Any:
    """Return a schema without its texts, in a plainer way than the product has."""
    schema = copy.deepcopy(schema)
    for each in _schemas(schema):
        for key in ("description", "title", "$comment"):
            if isinstance(each.get(key), str):
                del each[key]
    return schema


def false_alarms(listings: dict[str, Raw], times: int, seed: int) -> tuple[int, int]:
    """Return how many relistings were taken for changes, and how many there were."""
    pick = random.Random(seed)
    alarms = count = 0
    for server, raw in listings.items():
        trust = trust_of(view_of(server, raw))
        for _ in range(times):
            view = view_of(server, relisted(raw, pick))
            alarms += trust.trusted(view) is not view
            count += 1
    return alarms, count


def main() -> None:
    """Print both counts, and the time of a comparison."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutations", type=int, default=200)
    parser.add_argument("--relistings", type=int, default=100)
    parser.add_argument("--lists", type=Path, default=RECORDED)
    options = parser.parse_args()
    logging.disable()
    listings = recorded_listings(options.lists) | labelled_listings()
    changed = mutations(listings, options.mutations, options.seed)
    escaped = [(mutation, why) for mutation in changed if (why := escapes(mutation)) is not None]
    for mutation, why in escaped:
        print(f"{mutation.kind} of {mutation.server}: {why}")
    print(f"held back: {len(changed) - len(escaped)} of {len(changed)} changes")
    recorded = recorded_listings(options.lists) or listings
    alarms, count = false_alarms(recorded, options.relistings, options.seed)
    print(f"false alarms: {alarms} of {count} relistings of {len(recorded)} lists")
    views = [view_of(server, raw) for server, raw in recorded.items()]
    began = time.process_time()
    for view in views:
        trust_of(view)
    tools = sum(len(view.tools) for view in views)
    each = (time.process_time() - began) / tools * 1e6
    print(f"first comparison: {each:.0f} us of processor time for each of {tools} tools")


if __name__ == "__main__":
    main()
