"""Writes `codemode-mcp.json`: a dozen servers out of one script, and one of them does not start."""

from __future__ import annotations

import json
from pathlib import Path

OFFICES = {"Berlin": 6, "Bogota": 2, "Cairo": 4, "Hanoi": 3, "Lagos": 5, "Lima": 1}
OFFICES |= {"Lisbon": 3, "Nairobi": 4, "Osaka": 7, "Porto": 2, "Quito": 1}


def configuration() -> str:
    def server(city: str, rooms: int, *flags: str) -> str:
        entry = {"command": "${PYTHON:-python3}", "args": ["office.py", city, str(rooms), *flags], "cwd": "."}
        return f"    {json.dumps(city.lower())}: {json.dumps(entry)}"

    servers = [*(server(city, rooms) for city, rooms in OFFICES.items()), server("Oslo", 3, "--closed")]
    return '{\n  "mcpServers": {\n' + ",\n".join(servers) + "\n  }\n}\n"


if __name__ == "__main__":
    target = Path(__file__).with_name("codemode-mcp.json")
    target.write_text(configuration(), "utf-8")
    print(f"{target.name}: {len(OFFICES) + 1} servers")
