"""A server of bare JSON lines that asks, in ways that no SDK would: of 2025-11-25, or with `modern` of 2026-07-28.

With `roots` it asks for the roots as soon as it is initialized.
"""

from __future__ import annotations

import json
import os
import sys

flags = set(sys.argv[1:])
waiting: dict[int, tuple[dict, list]] = {}
"""Calls that wait for answers: their ids, params, and questions in order."""
answers: dict[str, dict] = {}
"""Answers to questions, by id; at first the whole question."""
log: dict[str, object] = {"cancelled": [], "calls": []}
done: set[str] = set()
late: list[int] = []
asked = 0


def send(**message) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(request_id, value) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    send(id=request_id, result={"resultType": "complete", "content": [{"type": "text", "text": text}]})


def ask(method, params) -> str:
    global asked
    asked += 1
    send(id=f"q{asked}", method=method, params=params)
    return f"q{asked}"


def hear(message) -> None:
    """An answer to a question."""
    body = {"result": message["result"]} if "result" in message else {"error": message["error"]["message"]}
    answers[message["id"]] = body
    for request_id, (_, questions) in list(waiting.items()):
        if all(question in answers for question in questions):
            del waiting[request_id]
            say(request_id, [answers[question] for question in questions])


def call(request_id, params) -> None:
    arguments = params.get("arguments") or {}
    log["calls"].append(params)
    match params["name"]:
        case "ask":
            count = arguments.get("times", 1)
            questions = [ask(*question) for question in arguments["questions"] * count]
            waiting[request_id] = (params, questions)
        case "ask_large":
            question = ask("elicitation/create", {"message": "x" * arguments["bytes"]})
            waiting[request_id] = (params, [question])
        case "ask_late":
            # Ignores its cancellation, and waits for `go_on`.
            late.append(request_id)
        case "proceed":
            waiting[request_id] = (params, [ask("elicitation/create", {"message": "late"})])
        case "answer_late":
            say(late.pop(), "late")
            say(request_id, "ok")
        case "ask_and_hang":
            ask("roots/list", {})
        case "finish":
            # The oldest call has its result, whatever it has asked.
            oldest = next(iter(waiting))
            del waiting[oldest]
            say(oldest, "finished")
            say(request_id, "ok")
        case "take_back":
            for oldest, (_, questions) in list(waiting.items()):
                for question in questions:
                    send(method="notifications/cancelled", params={"requestId": question})
                del waiting[oldest]
                say(oldest, "taken back")
            say(request_id, "ok")
        case "progress":
            for each, _ in waiting.values():
                token = each["_meta"]["progressToken"]
                send(method="notifications/progress", params={"progressToken": token, "progress": 1})
            say(request_id, "ok")
        case "url":
            missing = [each for each in arguments["elicitations"] if each.get("elicitationId") not in done]
            if missing:
                send(
                    id=request_id, error={"code": -32042, "message": "log in first", "data": {"elicitations": missing}}
                )
            else:
                say(request_id, "welcome")
        case "done":
            done.update(arguments["ids"])
            for each in arguments["ids"]:
                send(method="notifications/elicitation/complete", params={"elicitationId": each})
            say(request_id, "ok")
        case "rounds":
            # Each round is a raw result; the state says which comes next.
            number = int(params.get("requestState", "0").split(":")[0])
            if number < len(arguments["rounds"]):
                send(id=request_id, result={"resultType": "input_required", **arguments["rounds"][number]})
            else:
                say(request_id, "through")
        case "log":
            say(request_id, log)
        case "die":
            os._exit(1)


def answer(message) -> None:
    request_id, params = message.get("id"), message.get("params") or {}
    match message.get("method"):
        case None:
            hear(message)
        case "notifications/cancelled":
            log["cancelled"].append(params["requestId"])
        case "server/discover" if "modern" in flags:
            info = {"io.modelcontextprotocol/serverInfo": {"name": "asking", "version": "1"}}
            result = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "prompts": {}}, "_meta": info}
            send(id=request_id, result={"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result})
        case "initialize":
            log["capabilities"] = params["capabilities"]
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}
            send(id=request_id, result={**result, "serverInfo": {"name": "asking", "version": "1"}})
        case "notifications/initialized":
            if "roots" in flags:
                log["early"] = ask("roots/list", None)
                log["answers"] = answers
        case "tools/list":
            send(id=request_id, result={"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"})
        case "tools/call":
            call(request_id, params)
        case "prompts/get":
            if "requestState" not in params:
                question = {"method": "roots/list"}
                result = {"resultType": "input_required", "inputRequests": {"r": question}, "requestState": "s"}
                send(id=request_id, result=result)
            else:
                send(
                    id=request_id, result={"resultType": "complete", "messages": [], "description": json.dumps(params)}
                )
        case "completion/complete":
            values = [params["argument"]["value"] + "!"]
            send(id=request_id, result={"resultType": "complete", "completion": {"values": values}})
        case _ if request_id is not None:
            send(id=request_id, error={"code": -32601, "message": "Method not found"})


for line in sys.stdin:
    answer(json.loads(line))
