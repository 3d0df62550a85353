"""The command that the suite starts as a client: it hands the scenario to the client that the test already runs.

So nothing has to be imported once per scenario, and the client is watched as closely as any test.
"""

import json
import os
import socket
import sys

host, _, port = os.environ["CONFORMANCE_CLIENT"].rpartition(":")
with socket.create_connection((host, int(port))) as connection:
    task = {
        "url": sys.argv[1],
        "scenario": os.environ["MCP_CONFORMANCE_SCENARIO"],
        "revision": os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    connection.sendall(json.dumps(task).encode() + b"\n")
    said = connection.makefile("r", encoding="utf-8").read()
print(said, file=sys.stderr)
sys.exit(0 if said == "done" else 1)
